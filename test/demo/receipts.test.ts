import { describe, expect, it } from "vitest";
import { Receipts } from "../../demo/receipts.js";

describe("the receipts of a page", () => {
  it("count the numbers of a range that arrived, and those that arrived more than once", () => {
    const receipts = new Receipts();
    for (const n of [1, 2, 3, 3, 5, 9]) receipts.note("ada", { n });
    receipts.note("bo", { n: 4 });
    expect(receipts.count("ada", 2, 5)).toEqual({ arrived: 3, repeated: 1 });
    expect(receipts.count("cy", 2, 5)).toEqual({ arrived: 0, repeated: 0 });
  });

  it("ignore messages without a number", () => {
    const receipts = new Receipts();
    for (const params of [undefined, null, {}, { n: "1" }, [1]]) receipts.note("ada", params);
    expect(receipts.count("ada", 0, 9)).toEqual({ arrived: 0, repeated: 0 });
  });

  it("forget the page that has been silent longest after 200, and the oldest number after 20,000", () => {
    const receipts = new Receipts();
    for (let page = 0; page < 200; page++) receipts.note(String(page), { n: 1 });
    // The first page sends again, so the second one is the oldest.
    receipts.note("0", { n: 2 });
    receipts.note("200", { n: 1 });
    expect([0, 1, 2, 200].map((page) => receipts.count(String(page), 1, 1).arrived)).toEqual([1, 0, 1, 1]);
    for (let n = 0; n <= 20_000; n++) receipts.note("ada", { n });
    expect(receipts.count("ada", 0, 20_000).arrived).toBe(20_000);
    expect(receipts.count("ada", 0, 0).arrived).toBe(0);
  });
});
