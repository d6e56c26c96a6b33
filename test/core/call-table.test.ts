import { array, assert, nat, property, record } from "fast-check";
import { expect, it } from "vitest";
import { CallTable } from "../../src/core/call-table.js";

interface Call {
  readonly id: number;
  beside: Call | undefined;
}

function call(id: number): Call {
  return { id, beside: undefined };
}

it("holds the same calls as a Map, for any order of removal and any number of calls", () => {
  // For each number of calls, the calls to answer, by their index among the pending ones.
  const steps = array(record({ added: nat(40), answered: array(nat()) }), { maxLength: 30 });
  assert(
    property(steps, (rounds) => {
      const table = new CallTable<Call>();
      const map = new Map<number, Call>();
      let id = 0;
      for (const { added, answered } of rounds) {
        for (let i = 0; i < added; i++) {
          const one = call(++id);
          table.add(one);
          map.set(id, one);
        }
        for (const place of answered) {
          const one = [...map.values()].at(place % map.size);
          if (one === undefined) continue;
          expect(table.take(one.id)).toBe(one);
          map.delete(one.id);
        }
        expect(table.size).toBe(map.size);
        expect(table.toArray()).toEqual([...map.values()]);
        for (let any = 0; any <= id + 70; any++) expect(table.get(any)).toBe(map.get(any));
      }
    }),
    { numRuns: 200 },
  );
});

it("holds calls again after many calls were answered", () => {
  const table = new CallTable<Call>();
  for (let id = 1; id <= 2000; id++) table.add(call(id));
  for (let id = 1; id <= 2000; id++) expect(table.take(id)?.id).toBe(id);
  expect(table.toArray()).toEqual([]);
  table.add(call(2001));
  expect(table.get(2001)?.id).toBe(2001);
  expect(table.get(1)).toBeUndefined();
});

it.each(["1", "__proto__", 1.5, -1, 17, NaN, Infinity, 2 ** 32 + 1, null, undefined, true, [1]])(
  "has no call for an id that is %j",
  (id) => {
    const table = new CallTable<Call>();
    table.add(call(1));
    expect(table.get(id)).toBeUndefined();
    expect(table.get(1)?.id).toBe(1);
  },
);
