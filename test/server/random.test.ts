/** The random texts of a server. */
import { afterEach, expect, it, vi } from "vitest";
import { randomText } from "../../src/server/random.js";

afterEach(() => void vi.restoreAllMocks());

/** Records the arrays that are filled with random bytes. Returns a copy of each, as it was then, beside the array. */
function recordBytes(): { array: Uint8Array; bytes: Uint8Array }[] {
  const filled: { array: Uint8Array; bytes: Uint8Array }[] = [];
  const fill = crypto.getRandomValues.bind(crypto);
  vi.spyOn(crypto, "getRandomValues").mockImplementation((array) => {
    fill(array as Uint8Array<ArrayBuffer>);
    filled.push({ array: array as Uint8Array, bytes: (array as Uint8Array).slice() });
    return array;
  });
  return filled;
}

it("a text has the requested length, and all 64 characters appear in texts, of which no two are equal", () => {
  const texts = Array.from({ length: 10_000 }, () => randomText(22));
  expect(texts.filter((text) => !/^[\w-]{22}$/.test(text))).toEqual([]);
  expect(new Set(texts.join(""))).toHaveProperty("size", 64);
  expect(new Set(texts)).toHaveProperty("size", 10_000);
  expect([0, 1, 21, 2_048].map((length) => randomText(length).length)).toEqual([0, 1, 21, 2_048]);
});

it("a text of more than 2,048 characters is refused, and the next one is made of fresh bytes", () => {
  for (const length of [2_049, 4_096])
    expect(() => randomText(length)).toThrow(new RangeError(`Expected at most 2048 characters, got \`${length}\``));
  const text = randomText(2_048);
  expect(new Set(text).size).toBeGreaterThan(40);
  expect(randomText(2_048)).not.toBe(text);
});

it("the bytes of about 100 texts are requested at once, and each is used in one text", () => {
  randomText(2_048);
  const filled = recordBytes();
  const texts = Array.from({ length: 150 }, (_, i) => randomText(21 + (i % 2)));
  expect(filled).toHaveLength(2);
  const [first, second] = filled.map(({ bytes }) => bytes) as [Uint8Array, Uint8Array];
  let [bytes, at] = [first, 0];
  // Equal bits give equal characters, and different bits give different ones, whatever the order of the alphabet is.
  const pairs = new Set<string>();
  for (const text of texts) {
    if (at + text.length > bytes.length) [bytes, at] = [second, 0];
    // `nanoid` takes the last byte for the first character.
    at += text.length;
    for (let i = 0; i < text.length; i++) pairs.add(`${bytes[at - 1 - i]! & 63} ${text[i]}`);
  }
  expect(pairs).toHaveProperty("size", 64);
  expect(bytes).toBe(second);
});

it("no bytes of a text stay in memory", () => {
  randomText(2_048);
  const filled = recordBytes();
  randomText(22);
  randomText(21);
  const [{ array, bytes }] = filled as [{ array: Uint8Array; bytes: Uint8Array }];
  expect(array.slice(0, 43)).toEqual(new Uint8Array(43));
  expect(array.slice(43)).toEqual(bytes.slice(43));
});
