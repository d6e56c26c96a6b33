import { describe, expect, it } from "vitest";
import * as node from "../../src/node.js";
import { bytes, connect, contract, pair, Peer, progress, streams, type AnyPeer } from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { readAll } from "../support/pair.js";
import { failure, rawPeer } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";

const methods = {
  async *count() {
    yield* [1, 2];
  },
  report: (_params: unknown, context: any) => context.progress("half") ?? "done",
  take: ([stream]: [never], { peer }: { peer: AnyPeer }) => readAll(peer.iterate(stream)),
};

/** Calls every member that needs a feature, and returns what each rejects with or throws. */
async function useAll(peer: AnyPeer): Promise<unknown[]> {
  const uses = {
    stream: async () => peer.stream("count"),
    iterate: async () => peer.iterate({} as never),
    offer: async () => peer.offer([1]),
    batch: async () => peer.batch(),
    onProgress: () => peer.request("report", {}, { onProgress: () => {} }),
    live: async () => peer.notify("seen", [], { latest: "key" }),
    renewal: () => peer.reauthenticate(),
  };
  const done = Object.values(uses).map((run) => run().then(() => "done"));
  return (await Promise.allSettled(done)).map(
    (end) => (end.status === "fulfilled" ? end.value : end.reason) as unknown,
  );
}

/** The error of a member whose feature a peer has not: a TypeError that names the export. */
const needs = (name: string): unknown =>
  expect.objectContaining({ name: "TypeError", message: expect.stringContaining(`\`${name}\``) as string });

describe("a peer", () => {
  it("without a feature refuses each member that needs it, with the name of the export", async () => {
    const [a] = pair({}, { use: [streams, progress], methods });
    const names = ["streams", "streams", "streams", "batches", "progress", "live", "renewal"];
    expect(await useAll(a)).toEqual(names.map(needs));
    for (const options of [{ compat: "1.0" }, { onForeignMessage: () => {} }] as const)
      expect(() => pair(options, {})).toThrow("`use: [compat]`");
    for (const remote of [undefined, contract({})])
      expect(() => pair({ methods, schemas: {}, remote }, {})).toThrow("`use: [schemas]`");
    expect(a.stats()).toMatchObject({ requestsSent: 0, pending: 0, streams: 0 });
  });

  it("without a feature answers a call whose handler needs it with an internal error, and reports the name of the export", async () => {
    const [a, b] = pair({ methods }, { use: [streams] });
    const errors: unknown[] = [];
    a.on("error", (error) => errors.push(error));
    for (const call of [b.request("report"), b.request("count")])
      expect(await rejection(call)).toMatchObject({ code: -32603 });
    const [c, d] = pair({ use: [streams] }, { use: [streams, bytes], methods });
    c.on("error", (error) => errors.push(error));
    d.on("error", () => {}); // its handler fails with the stream
    expect(await rejection(c.request("take", [c.offer([new Uint8Array(1)])]))).toMatchObject({ code: -32603 });
    expect(errors).toEqual(["progress", "streams", "bytes"].map(needs));
  });

  it("without `batches` refuses an array as one malformed message", () => {
    const { feed, messages, peer } = rawPeer({ use: [], methods });
    feed([{ jsonrpc: "2.0", id: 1, method: "report" }]);
    expect(messages()).toEqual([failure(null, -32600, "Invalid Request")]);
    expect(peer.stats()).toMatchObject({ malformed: 1, requestsReceived: 0 });
  });

  it("gives no handler what a feature has taken, and ends the part of each feature, whatever that of another returns", async () => {
    const seen: string[] = [];
    const partOf = (name: string) => ({ receive: () => seen.push("taken") > 0, end: () => seen.push(name) > 0 });
    const use = ["a", "b"].map((name) => ({ name, methods: () => ["m"], create: () => partOf(name) }));
    const [a, b] = pair({ use, methods: { m: () => seen.push("handled") } }, {});
    b.notify("m");
    await turn();
    await a.close();
    expect(seen).toEqual(["taken", "a", "b"]);
  });

  it.each([
    ["`reciproc/node`", () => node.pair({}, { methods })[0]],
    ["`reciproc/testing`", (kit = testServer({ methods })) => kit.connect(kit.server.url)],
  ])("of %s has all features by default, and is a Peer of every entry", async (_entry, make) => {
    const peer: AnyPeer = await make();
    expect(await useAll(peer)).toEqual([...Array<unknown>(6).fill("done"), needs("auth")]);
    expect([peer instanceof Peer, peer instanceof node.Peer]).toEqual([true, true]);
  });

  it.each([
    ["streams", "use"],
    [[bytes, {}], "use[1]"],
    [[undefined], "use[0]"],
    [[{ name: "own", create: () => ({}) }], "use[0]"],
  ])("refuses %o", async (use, name) => {
    expect(() => pair({ use } as never, {})).toThrow(`\`${name}\``);
    await expect(connect("ws://127.0.0.1:1", { use } as never)).rejects.toThrow(`\`${name}\``);
  });
});
