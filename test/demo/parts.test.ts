/** The parts of the demo that need no page, and the files of its page. */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import type { Profile } from "../../demo/api.js";
import { templateOf } from "../../demo/page/editor/snippet.js";
import { distinctProfile } from "../../demo/profiles.js";
import { Receipts } from "../../demo/receipts.js";

const ROOT = join(import.meta.dirname, "../..");
/** One character of 11 UTF-16 units. */
const FAMILY = "\u{1F468}\u200D\u{1F469}\u200D\u{1F467}\u200D\u{1F466}";

it("the receipts of a page count the numbers of a range that arrived, and those that arrived more than once", () => {
  const receipts = new Receipts();
  for (const n of [1, 2, 3, 3, 5, 9]) receipts.note("ada", { n });
  receipts.note("bo", { n: 4 });
  for (const params of [undefined, null, {}, { n: "1" }, [1]]) receipts.note("bo", params);
  expect(receipts.count("bo", 0, 9)).toEqual({ arrived: 1, repeated: 0 });
  expect(receipts.count("ada", 2, 5)).toEqual({ arrived: 3, repeated: 1 });
  expect(receipts.count("cy", 2, 5)).toEqual({ arrived: 0, repeated: 0 });
});

it("the receipts of a page forget the page that has been silent longest after 200, and the oldest number after 20,000", () => {
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

it.each([
  ["Ada", [], "Ada"],
  ["Ada", ["Bo"], "Ada"],
  ["Ada", ["Ada", "Ada 2"], "Ada 3"],
  ["Ada 2", ["Ada 2", "Ada 3"], "Ada 4"],
  ["x".repeat(24), ["x".repeat(24)], `${"x".repeat(22)} 2`],
  [`${"x".repeat(13)}${FAMILY}`, [`${"x".repeat(13)}${FAMILY}`], `${"x".repeat(13)} 2`],
])("a profile among others with the name %s among %j is %s", (name, taken, expected) => {
  const others = taken.map((other) => ({ name: other, color: "red" as const }));
  expect(distinctProfile({ name, color: "blue" }, others).name).toBe(expected);
});

it("a profile among others has an unused colour, or else one of the least used", () => {
  const people: Profile[] = [];
  for (let i = 0; i < 10; i++) people.push(distinctProfile({ name: `${i}`, color: "red" }, people));
  expect(new Set(people.slice(0, 8).map(({ color }) => color)).size).toBe(8);
  expect(new Set(people.slice(8).map(({ color }) => color)).size).toBe(2);
});

it.each([
  ["color: $0;", "color: ${0};"],
  ['"limits": {$1}', '"limits": \\{${1}\\}'],
  ["${1:name} = ${2:value}$0", "${1:name} = ${2:value}${0}"],
  ["${1|packed,plain|}", "${1:packed}"],
  ["\\$5 \\} \\\\ $", "$5 \\} \\ $"],
  ["${1:a\\}b}", "${1}"],
  ["#{x} ${", "#\\{x\\} $\\{"],
])("a snippet of a language server %s is %s for CodeMirror", (snippet, template) => {
  expect(templateOf(snippet)).toBe(template);
});

it("the page and its icons use no character of an emoji font", async () => {
  const folder = join(ROOT, "demo/page");
  const files = (await readdir(folder, { recursive: true })).filter((name) => /\.(?:ts|html|css|svg)$/.test(name));
  expect(files.length).toBeGreaterThan(20);
  for (const file of files) {
    const text = await readFile(join(folder, file), "utf8");
    expect([file, text.match(/\p{Emoji_Presentation}|\uFE0F/u)]).toEqual([file, null]);
  }
});
