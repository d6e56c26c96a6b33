/** `server.runOnce`: a repeat of a change has its first outcome, on one server and on several. */
import { describe, expect, it } from "vitest";
import { EngineError, RpcError } from "../../src/node.js";
import { Random } from "../faults/random.js";
import { pass, sleep } from "../support/time.js";
import { gate, raising } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";
import { makeNodes, settled, useFleet } from "./nodes.js";

useFleet();

/** What a caller gets if nothing ran, and if the outcome is not known. */
const UNKNOWN = { code: -32011, message: expect.any(String) };
const INTERNAL = { code: -32603, message: "Internal error" };
const TOO_LARGE = { code: -32008, message: expect.any(String), data: { maxReplyBytes: 65_536 } };

/** Starts two servers, and connects "ann" to each. `changes`: the option. */
async function start(changes: object = {}, options: object = {}) {
  const engine = new FaultyEngine();
  const app = { ran: [] as unknown[], errors: [] as string[], run: (): unknown => app.ran.length };
  const change = ({ key }: { key: unknown }, context: any): unknown =>
    context.server.runOnce(context, () => (app.ran.push(key), app.run()));
  const rules = { principal: ({ name }: { name: string }) => name, changes: { ttlMs: 60_000, ...changes } };
  const nodes = makeNodes(2, { ...rules, methods: { change, remove: change }, ...options }, engine);
  for (const { server } of nodes) server.on("error", (error) => app.errors.push((error as Error).message));
  const anns = [await nodes[0]!.client("ann"), await nodes[1]!.client("ann")];
  /** Makes a change of "ann" on a node. Resolves with its result, or with what its error says. */
  const make = (key: unknown, at = 0, method = "change", { client } = anns[at]!): Promise<unknown> =>
    client
      .request(method, { key }, { timeoutMs: 100_000 })
      .catch(({ code, message, data }: RpcError) => ({ code, message, ...(data !== undefined && { data }) }));
  return { app, engine, nodes, make };
}

describe.each([
  ["without an engine", 0, { engine: undefined }],
  ["with one", 1, {}],
])("a server %s", (_title, other, options) => {
  it.each<[string, () => unknown, unknown]>([
    ["a result, by way of JSON", () => ({ at: new Date(0), none: undefined }), { at: "1970-01-01T00:00:00.000Z" }],
    ["no result", () => {}, null],
    ["a promise", async () => [1], [1]],
    ["an RpcError", raising(new RpcError(402, "no money", [1])), { code: 402, message: "no money", data: [1] }],
    ["any other error", raising(new Error("secret")), INTERNAL],
    ["an error of the broker", raising(new EngineError("away", "unknown")), UNKNOWN],
    ["a value without a JSON form", () => new Map(), INTERNAL],
    ["an RpcError with data that JSON cannot carry", raising(new RpcError(402, "no money", new Map())), INTERNAL],
    ["a stream", async function* () {}, INTERNAL],
    ["a result of more than 64 KiB", () => "\u00e4".repeat(33_000), TOO_LARGE],
    ["an error of more than 64 KiB", raising(new RpcError(402, "x".repeat(66_000))), TOO_LARGE],
  ])(
    "runs a change once for a principal, a method and a key, and repeats its outcome: %s",
    async (_what, run, outcome) => {
      const { app, make, nodes } = await start({}, options);
      app.run = run;
      const twice = await Promise.all([make("k"), settled(make("k", other))]);
      expect([...twice, await make("k"), await make("k", other), app.ran.length]).toEqual([
        ...Array<unknown>(4).fill(outcome),
        1,
      ]);
      expect(app.errors.length).toBeLessThan(2);
      const bob = await nodes[0]!.client("bob");
      const others = [await make("l"), await make("k", other, "remove"), await make("k", 0, "change", bob)];
      expect([others, app.ran.length]).toEqual([[outcome, outcome, outcome], 4]);
    },
  );

  it.each<[string, object, number]>([
    ["its log has no room for it", { length: 4 }, 0],
    ["its log has no bytes for it", { bytes: 400 }, 0],
    ["its log has expired", {}, 60_000],
  ])("runs a change again when %s, also if it was repeated", async (_why, changes, ms) => {
    const { app, make } = await start(changes, options);
    expect([await make("k"), await make("a"), await make("k", other), await make("b")]).toEqual([1, 2, 1, 3]);
    await pass(ms);
    expect([await make("k", other), await make("k"), app.ran.length]).toEqual([4, 4, 4]);
  });

  it("refuses at once what its log had no room for, and runs it later", async () => {
    const { app, make } = await start({ length: 2 }, options);
    const outcomes = await Promise.all(["a", "b", "c", "d"].map((key) => make(key)));
    expect(outcomes).toEqual([UNKNOWN, UNKNOWN, 1, 2]);
    expect([await make("a", other), app.ran]).toEqual([3, ["c", "d", "a"]]);
  });

  it("refuses what is no key with -32602, needs a principal and a function, and stops a stream", async () => {
    const { app, make, nodes } = await start({}, options);
    for (const key of [undefined, "", 5, "x".repeat(257), "\ud800"])
      expect(await make(key)).toMatchObject({ code: -32602, message: expect.stringContaining("1 to 256 characters") });
    expect([app.errors, await make("x".repeat(256))]).toEqual([[], 1]);
    const { server } = nodes[0]!;
    await expect(server.runOnce({ key: "k" } as never, () => 1)).rejects.toThrow("`context` to be the context of");
    const cancelled = gate<unknown>();
    app.run = () => new ReadableStream({ cancel: cancelled.resolve });
    await Promise.all([make("s"), cancelled.promise]);
    const unnamed = await start({}, { ...options, principal: undefined });
    expect([await unnamed.make("k"), unnamed.app.errors]).toEqual([INTERNAL, [expect.stringContaining("`principal`")]]);
  });
});

it("lets a repeat wait for the first run, for at most 30 s, and not longer than its caller", async () => {
  const { app, engine, make, nodes } = await start();
  const running = gate<string>();
  app.run = () => running.promise;
  const first = make("k");
  await pass(0);
  const ending = new AbortController();
  const { client } = await nodes[1]!.client("ann");
  const ended = client.request("change", { key: "k" }, { signal: ending.signal }).catch(String);
  await pass(1_000);
  ending.abort();
  await pass(1_000);
  const reads = engine.links[1]!.count("read");
  await pass(5_000);
  expect([await ended, engine.links[1]!.count("read")]).toEqual([expect.any(String), reads]);
  const repeats = [make("k"), make("k", 1)];
  await pass(31_000);
  expect(await Promise.all(repeats)).toEqual([UNKNOWN, UNKNOWN]);
  const again = [make("k"), make("k", 1)];
  await pass(29_000);
  running.resolve("done");
  await pass(500);
  expect([await first, await Promise.all(again), app.ran.length]).toEqual(["done", ["done", "done"], 1]);
});

it.each([0, 0.1, 0.5])(
  "runs once, and has one outcome, when both nodes get it at once and lose %d of the answers of their broker",
  async (lost) => {
    const { app, engine, make } = await start();
    const random = new Random(1);
    for (const link of engine.links) {
      link.before = () => sleep(random.below(50));
      link.after = async (command) => {
        await sleep(random.below(50));
        if (command !== "send" && random.chance(lost)) throw new EngineError("lost", "unknown");
      };
    }
    const keys = Array.from({ length: 50 }, (_, i) => `${i}`);
    const outcomes = await settled(Promise.all(keys.map((key) => Promise.all([make(key), make(key, 1)]))));
    expect([outcomes.filter(([a, b]) => typeof a !== "number" || a !== b), app.ran.length]).toEqual([[], 50]);
    expect(new Set(app.ran).size).toBe(50);
  },
);

type World = Awaited<ReturnType<typeof start>>;
it.each<[string, (of: World) => unknown, unknown, unknown]>([
  ["is the first one if its node has no broker for 20 s", async ({ engine: { links } }) => (links[0]!.down(), await sleep(20_000), links[0]!.up()), 1, 1], // prettier-ignore
  ["is not known if its node has no broker for longer", ({ engine }) => engine.links[0]!.down(), 1, UNKNOWN],
  ["is not known if its node ends", ({ nodes }) => nodes[0]!.server.close(), { code: "CONNECTION_LOST" }, UNKNOWN],
])("the outcome of a repeat %s, and nothing runs twice", async (_why, act, first, repeat) => {
  const world = await start();
  const { app, make } = world;
  app.run = () => (void act(world), sleep(1).then(() => app.ran.length));
  expect([await settled(make("k"))]).toMatchObject([first]);
  expect([await settled(make("k", 1)), app.ran.length]).toEqual([repeat, 1]);
});

it("runs nothing while the broker is away, and all that waited when it is back within 30 s", async () => {
  const { app, engine, make } = await start();
  const [link] = engine.links as [FaultyEngine["links"][number]];
  link.down();
  expect([await settled(make("k")), app.ran.length]).toEqual([UNKNOWN, 0]);
  const waiting = make("k");
  await pass(20_000);
  link.up();
  expect([await settled(waiting), await make("k", 1), app.ran.length]).toEqual([1, 1, 1]);
  // What waits ends with the server: no timer is left.
  link.down();
  void make("l");
  await pass(1_000);
});
