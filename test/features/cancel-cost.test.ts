/** A received cancel takes one lookup, and allocates an error only when the handler reads it. */
import { afterEach, describe, expect, it, vi } from "vitest";
import { lsp } from "../../src/index.js";
import { List } from "../../src/core/list.js";
import { inspect } from "../../src/peer/peer.js";
import { countMade } from "../support/counting.js";
import { failure, request, result } from "../support/raw.js";
import { turn } from "../support/turns.js";
import { cancel, CANCELLED, waiting } from "./waiting.js";

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

describe("a cancel", () => {
  it("of a call that does not exist copies no list of the running calls and makes no error", () => {
    const errors = countMade("DOMException");
    const raw = waiting();
    for (let i = 0; i < 100; i++) raw.feed(request(i, "stay"));
    const copies = vi.spyOn(List.prototype, "toArray");
    for (let i = 0; i < 1000; i++) raw.feed(cancel(-1 - i));
    // The first cancel builds the index.
    expect(copies.mock.calls.length).toBeLessThanOrEqual(1);
    expect(errors.count).toBe(0);
    expect(raw.contexts.every(({ signal }) => !signal.aborted)).toBe(true);
    raw.open.resolve(null);
  });

  it("creates its error when a handler first reads `signal`, and one for all calls of that id", () => {
    const errors = countMade("DOMException");
    const raw = waiting();
    for (const method of ["stay", "stay", "stay"]) raw.feed(request("same", method));
    raw.feed(cancel("same"));
    expect(errors.count).toBe(0);
    const reasons = raw.contexts.map(({ signal }) => signal.reason as unknown);
    expect(errors.count).toBe(1);
    expect(new Set(reasons).size).toBe(1);
    raw.open.resolve(null);
  });

  it("does not visit cancelled calls a second time", () => {
    let visits = 0;
    const cancelDialect = {
      ...lsp.cancel,
      get exempt() {
        visits++;
        return [];
      },
    };
    const raw = waiting({ dialect: { ...lsp, cancel: cancelDialect } });
    for (let i = 0; i < 50; i++) raw.feed(request("same", "stay"));
    for (let i = 0; i < 100; i++) raw.feed(cancel("same"));
    expect(visits).toBe(50);
    raw.open.resolve(null);
  });

  it("finds calls by their ids exactly, those made after an earlier cancel included", async () => {
    const raw = waiting();
    raw.feed(request(1, "wait"));
    raw.feed(cancel(99));
    for (const id of ["1", null, 1.5, "", 2]) raw.feed(request(id, "wait"));
    const aborted = (): unknown[] => raw.contexts.filter(({ signal }) => signal.aborted).map(({ id }) => id);
    raw.feed(cancel("1"));
    expect(aborted()).toEqual(["1"]);
    raw.feed(cancel(null));
    raw.feed(cancel(1.5));
    expect(aborted()).toEqual(["1", null, 1.5]);
    raw.feed(cancel(1));
    raw.feed(cancel(""));
    expect(aborted()).toEqual([1, "1", null, 1.5, ""]);
    raw.feed(cancel(2));
    await turn();
    expect(inspect(raw.peer).running).toBe(0);
    // All calls have ended, and later calls are found in the same way.
    raw.feed(request(1, "wait"));
    raw.feed(cancel(1));
    await turn();
    expect(raw.messages().at(-1)).toEqual(failure(1, ...CANCELLED));
    expect(inspect(raw.peer).running).toBe(0);
  });

  it("reaches neither a call that has ended nor the other calls when that call ends", async () => {
    const raw = waiting({ methods: { soon: () => turn() } });
    raw.feed(request(1, "stay"));
    raw.feed(cancel(9));
    raw.feed(request(2, "soon"));
    raw.feed(request(2, "stay"));
    await turn();
    await turn();
    expect(raw.messages()).toEqual([result(2, null)]);
    raw.feed(cancel(2));
    expect(raw.contexts.map(({ signal }) => signal.aborted)).toEqual([false, true]);
    raw.open.resolve("done");
    await turn();
    expect(raw.messages()).toEqual([result(2, null), result(1, "done"), result(2, "done")]);
  });
});
