/** The board of the demo: in the file of one node, and in the log that several nodes share. */
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ClientApi, Line, ServerApi, Stroke } from "../../demo/api.js";
import { Journal } from "../../demo/journal.js";
import { SharedBoard } from "../../demo/nodes/shared-board.js";
import { BoardState, type Entry } from "../../demo/state.js";
import { bytes, memory, serve, type Server } from "../../dist/node.js";

const drawing = (id: string, ...numbers: number[]): Stroke => ({
  id,
  color: "red",
  size: 0.01,
  points: bytes(Uint16Array.from(numbers)),
});
const line = (id: string): Line => ({ id, name: "Ada", color: "red", text: id });
const drew = (id: string, ...numbers: number[]): Entry => ({ drew: drawing(id, ...numbers) });
const said = (id: string): Entry => ({ said: line(id) });
const idsOf = ({ strokes }: BoardState): string[] => strokes.map(({ id }) => id);

describe("the journal of the board", () => {
  let folder: string;
  let path: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "reciproc-journal-"));
    path = join(folder, "board.jsonl");
  });
  afterEach(() => rm(folder, { recursive: true }));

  function board(...entries: Entry[]): BoardState {
    const state = new BoardState();
    const journal = new Journal(path, state);
    for (const entry of entries) {
      state.apply(entry);
      journal.append(entry);
    }
    return state;
  }

  it("makes the same board again: strokes in pieces, erased ones, the chat", () => {
    const before = board(drew("a/1", 1, 2), drew("b/1", 3, 4), drew("a/1", 5, 6), said("x"), drew("c/1", 7, 8), {
      erased: "b/1",
    });
    const after = board();
    expect(JSON.stringify(after.strokes)).toBe(JSON.stringify(before.strokes));
    expect(idsOf(after)).toEqual(["a/1", "c/1"]);
    expect(after.chat).toEqual(before.chat);
    expect(board({ cleared: true }).strokes).toEqual([]);
    expect(board().strokes).toEqual([]);
    expect(board().chat).toHaveLength(1);
  });

  it("ignores a last line that is incomplete, and continues after the one before it", async () => {
    board(drew("a/1", 1, 2), drew("b/1", 3, 4));
    const text = await readFile(path, "utf8");
    await writeFile(path, text.slice(0, -9));
    expect(idsOf(board(drew("c/1", 5, 6)))).toEqual(["a/1", "c/1"]);
    expect(idsOf(board())).toEqual(["a/1", "c/1"]);
  });

  it.each(['{"moved":1}', "null", '{"drew":{"id":"x","color":"red","size":1,"points":7}}'])(
    "ends before a line of another kind: %s",
    async (other) => {
      board(drew("a/1", 1, 2));
      await writeFile(path, `${await readFile(path, "utf8")}${other}\n${JSON.stringify(drew("b/1", 3, 4))}\n`);
      expect(idsOf(board())).toEqual(["a/1"]);
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
    expect(idsOf(board())).toEqual(idsOf(state));
    expect(board().chat[0]!.id).toBe("1");
  });
});

describe("the board of several nodes", () => {
  let servers: Server<ServerApi, ClientApi, any>[];
  let first: SharedBoard;
  let second: SharedBoard;

  async function start(length: number): Promise<void> {
    const engine = memory();
    servers = await Promise.all(
      [1, 2].map(() =>
        serve<ServerApi, ClientApi, any>({
          port: 0,
          engine,
          methods: {} as never,
          topics: () => ({ log: { length, ttlMs: 60_000 } }),
        }),
      ),
    );
    [first, second] = servers.map((server) => new SharedBoard(server.topic("board"))) as [SharedBoard, SharedBoard];
  }
  beforeEach(() => start(5_000));
  afterEach(() => Promise.all(servers.map((server) => server.close())));

  const draw = (id: string, ...numbers: number[]): Promise<string> =>
    servers[0]!.topic("board").publish("drew", drawing(id, ...numbers));
  it("is the same on each node: strokes in pieces, erased ones, the chat", async () => {
    await first.update();
    // The position of an empty log.
    expect([first.at, idsOf(first.state)]).toEqual([expect.any(String), []]);
    await draw("a/1", 1, 2);
    await draw("b/1", 3, 4);
    await first.update();
    expect(idsOf(first.state)).toEqual(["a/1", "b/1"]);
    await draw("a/1", 5, 6);
    await servers[1]!.topic("board").publish("erased", { strokes: ["b/1"] });
    await servers[0]!.topic("board").publish("said", line("hello"));
    await Promise.all([first.update(), first.update(), second.update()]);
    expect(JSON.stringify(first.state.entries())).toBe(JSON.stringify(second.state.entries()));
    expect(idsOf(first.state)).toEqual(["a/1"]);
    expect(first.state.strokes[0]!.points).toEqual(bytes(Uint16Array.of(1, 2, 5, 6)));
    expect(first.state.chat.map(({ text }) => text)).toEqual(["hello"]);
    expect(first.at).toBe(second.at);
    await servers[1]!.topic("board").publish("decided", { by: "Ada", outcome: "cleared", answers: [] });
    await first.update();
    expect(idsOf(first.state)).toEqual([]);
    expect(first.state.chat).toHaveLength(1);
  });

  it("has every entry of a long log", async () => {
    await Promise.all(Array.from({ length: 2_000 }, (_, i) => draw(`a/${i}`, 1, 2)));
    await first.update();
    expect(idsOf(first.state)).toHaveLength(2_000);
  });

  it("is what the log still has, if the node missed more", async () => {
    await Promise.all(servers.map((server) => server.close()));
    await start(10);
    await draw("a/0", 1, 2);
    await first.update();
    for (let i = 1; i <= 20; i++) await draw(`a/${i}`, 1, 2);
    await first.update();
    expect(idsOf(first.state)).toEqual(Array.from({ length: 10 }, (_, i) => `a/${i + 11}`));
  });
});
