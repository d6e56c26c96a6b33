import { expect, it } from "vitest";
import { atEndOfTurn } from "../../src/core/turns.js";
import { uncaughtIn } from "../support/uncaught.js";

it("ends for everybody, whatever one of them throws, in the order they came", async () => {
  const ended: number[] = [];
  const error = new Error("cannot finish");
  const task = (n: number): { endTurn(): void } => ({
    endTurn: () => {
      ended.push(n);
      if (n === 1) throw error;
    },
  });
  const uncaught = await uncaughtIn(() => {
    for (const n of [0, 1, 2]) atEndOfTurn(task(n));
    expect(ended).toEqual([]);
  });
  expect(ended).toEqual([0, 1, 2]);
  expect(uncaught).toEqual([error]);
  atEndOfTurn(task(3));
  await Promise.resolve();
  expect(ended).toEqual([0, 1, 2, 3]);
});
