/** The board that several nodes share, rebuilt from the log of a topic. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { ClientApi, ServerApi } from "../../demo/api.js";
import { SharedBoard } from "../../demo/nodes/shared-board.js";
import { bytes, memory, serve, type Server } from "../../dist/node.js";

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
  servers[0]!
    .topic("board")
    .publish("drew", { id, color: "red", size: 0.01, points: bytes(Uint16Array.from(numbers)) });
const say = (id: string): Promise<string> =>
  servers[0]!.topic("board").publish("said", { id, name: "Ada", color: "red", text: id });
const idsOf = ({ state }: SharedBoard): string[] => state.strokes.map(({ id }) => id);

describe("the board of several nodes", () => {
  it("is the same on each node: strokes in pieces, erased ones, the chat", async () => {
    await first.update();
    // The position of an empty log.
    expect([first.at, idsOf(first)]).toEqual([expect.any(String), []]);
    await draw("a/1", 1, 2);
    await draw("b/1", 3, 4);
    await first.update();
    expect(idsOf(first)).toEqual(["a/1", "b/1"]);
    await draw("a/1", 5, 6);
    await servers[1]!.topic("board").publish("erased", { strokes: ["b/1"] });
    await say("hello");
    await Promise.all([first.update(), first.update(), second.update()]);
    expect(JSON.stringify(first.state.entries())).toBe(JSON.stringify(second.state.entries()));
    expect(idsOf(first)).toEqual(["a/1"]);
    expect(first.state.strokes[0]!.points).toEqual(bytes(Uint16Array.of(1, 2, 5, 6)));
    expect(first.state.chat.map(({ text }) => text)).toEqual(["hello"]);
    expect(first.at).toBe(second.at);
    await servers[1]!.topic("board").publish("decided", { by: "Ada", outcome: "cleared", answers: [] });
    await first.update();
    expect(idsOf(first)).toEqual([]);
    expect(first.state.chat).toHaveLength(1);
  });

  it("has every entry of a long log", async () => {
    await Promise.all(Array.from({ length: 2_000 }, (_, i) => draw(`a/${i}`, 1, 2)));
    await first.update();
    expect(idsOf(first)).toHaveLength(2_000);
  });

  it("is what the log still has, if the node missed more", async () => {
    await Promise.all(servers.map((server) => server.close()));
    await start(10);
    await draw("a/0", 1, 2);
    await first.update();
    for (let i = 1; i <= 20; i++) await draw(`a/${i}`, 1, 2);
    await first.update();
    expect(idsOf(first)).toEqual(Array.from({ length: 10 }, (_, i) => `a/${i + 11}`));
  });
});
