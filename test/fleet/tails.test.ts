import { expect, it } from "vitest";
import { Tails } from "../../src/fleet/topic-log.js";

it("the tail of a log has at most 64 entries", () => {
  const tails = new Tails();
  for (let offset = 1; offset <= 100; offset++) tails.add("room", offset, "x");
  expect(tails.between("room", 36, 100)).toBeUndefined();
  expect(tails.between("room", 37, 100)).toHaveLength(64);
  expect(tails.between("room", 100, 100)).toEqual([[100, "x"]]);
  expect(tails.between("other", 1, 1)).toBeUndefined();
  tails.drop("room");
  expect(tails.between("room", 100, 100)).toBeUndefined();
});

it("the tail of a log has at most 64 KiB", () => {
  const tails = new Tails();
  for (let offset = 1; offset <= 5; offset++) tails.add("room", offset, "x".repeat(20_000));
  expect(tails.between("room", 2, 5)).toBeUndefined();
  expect(tails.between("room", 3, 5)).toHaveLength(3);
  tails.add("room", 6, "x".repeat(100_000));
  expect(tails.between("room", 6, 6)).toBeUndefined();
});

it("all tails have at most 32 MiB, and the one that was not added to for longest is dropped", () => {
  const tails = new Tails();
  const body = "x".repeat(64 * 1024);
  for (let i = 0; i < 512; i++) tails.add(`room${i}`, 1, body);
  tails.add("room0", 2, body);
  expect(tails.between("room1", 1, 1)).toHaveLength(1);
  tails.add("more", 1, body);
  expect(tails.between("room1", 1, 1)).toBeUndefined();
  expect(tails.between("room0", 2, 2)).toHaveLength(1);
  expect(tails.between("room2", 1, 1)).toHaveLength(1);
  expect(tails.between("more", 1, 1)).toHaveLength(1);
});
