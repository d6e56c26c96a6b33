import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Journal } from "../../demo/journal.js";
import { BoardState, type Entry } from "../../demo/state.js";
import { bytes } from "../../dist/node.js";

let folder: string;
let path: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "reciproc-journal-"));
  path = join(folder, "board.jsonl");
});
afterEach(() => rm(folder, { recursive: true }));

const drew = (id: string, ...numbers: number[]): Entry => ({
  drew: { id, color: "red", size: 0.01, points: bytes(Uint16Array.from(numbers)) },
});
const said = (id: string): Entry => ({ said: { id, name: "Ada", color: "red", text: id } });

/** Opens the file with an empty board, and applies the entries. */
function board(...entries: Entry[]): BoardState {
  const state = new BoardState();
  const journal = new Journal(path, state);
  for (const entry of entries) {
    state.apply(entry);
    journal.append(entry);
  }
  return state;
}

describe("the journal of the board", () => {
  it("makes the same board again: strokes in pieces, erased ones, the chat", () => {
    const before = board(drew("a/1", 1, 2), drew("b/1", 3, 4), drew("a/1", 5, 6), said("x"), drew("c/1", 7, 8), {
      erased: "b/1",
    });
    const after = board();
    expect(JSON.stringify(after.strokes)).toBe(JSON.stringify(before.strokes));
    expect(after.strokes.map(({ id }) => id)).toEqual(["a/1", "c/1"]);
    expect(after.chat).toEqual(before.chat);
    expect(board({ cleared: true }).strokes).toEqual([]);
    expect(board().strokes).toEqual([]);
    expect(board().chat).toHaveLength(1);
  });

  it("ignores a last line that is incomplete, and continues after the one before it", async () => {
    board(drew("a/1", 1, 2), drew("b/1", 3, 4));
    const text = await readFile(path, "utf8");
    await writeFile(path, text.slice(0, -9));
    expect(board(drew("c/1", 5, 6)).strokes.map(({ id }) => id)).toEqual(["a/1", "c/1"]);
    expect(board().strokes.map(({ id }) => id)).toEqual(["a/1", "c/1"]);
  });

  it.each(['{"moved":1}', "null", '{"drew":{"id":"x","color":"red","size":1,"points":7}}'])(
    "ends before a line of another kind: %s",
    async (line) => {
      board(drew("a/1", 1, 2));
      await writeFile(path, `${await readFile(path, "utf8")}${line}\n${JSON.stringify(drew("b/1", 3, 4))}\n`);
      expect(board().strokes.map(({ id }) => id)).toEqual(["a/1"]);
    },
  );

  it("is replaced with a short one when it is longer than 4 MiB, and readable by its owner only", async () => {
    const state = new BoardState();
    const journal = new Journal(path, state);
    const long = Array.from({ length: 500 }, (_, i) => i);
    let length = 0;
    for (let i = 0; i < 4000; i++) {
      const entry = drew(`a/${i}`, ...long);
      state.apply(entry);
      journal.append(entry);
      length += JSON.stringify(entry).length;
    }
    expect(length).toBeGreaterThan(4 * 2 ** 20);
    const { size, mode } = await stat(path);
    expect(size).toBeLessThan(4 * 2 ** 20);
    expect(mode & 0o077).toBe(0);
    expect(JSON.stringify(board().strokes)).toBe(JSON.stringify(state.strokes));
  });

  it("drops the oldest strokes and lines of a full board, the same ones each time", () => {
    const long = Array.from({ length: 500 }, (_, i) => i);
    const state = board(...Array.from({ length: 300 }, (_, i) => drew(`a/${i}`, ...long)));
    expect(state.strokes.length).toBeLessThan(200);
    expect(board(...Array.from({ length: 101 }, (_, i) => said(`${i}`))).chat).toHaveLength(100);
    expect(board().strokes.map(({ id }) => id)).toEqual(state.strokes.map(({ id }) => id));
    expect(board().chat[0]!.id).toBe("1");
  });
});
