/** Imports `link/tick`: no task of the library throws, so no peer can show that the others still run. */
import { expect, it } from "vitest";
import { atEndOfTick } from "../../src/link/tick.js";
import { uncaughtIn } from "../support/uncaught.js";

it("ends every task in the order of registration, even if one of them throws", async () => {
  const ended: number[] = [];
  const error = new Error("cannot finish");
  const task = (n: number): { endTick(): void } => ({
    endTick: () => {
      ended.push(n);
      if (n === 1) throw error;
    },
  });
  const uncaught = await uncaughtIn(() => {
    for (const n of [0, 1, 2]) atEndOfTick(task(n));
    expect(ended).toEqual([]);
  });
  expect(ended).toEqual([0, 1, 2]);
  expect(uncaught).toEqual([error]);
  atEndOfTick(task(3));
  await Promise.resolve();
  expect(ended).toEqual([0, 1, 2, 3]);
});
