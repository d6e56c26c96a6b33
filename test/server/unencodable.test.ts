/** Objects of the library that an application sends by mistake. `JSON.stringify` would show what a peer is known by, or write `{}`. */
import { format } from "node:util";
import { describe, expect, it } from "vitest";
import { attach, bytes, encodeResult, memory, RpcError, Subscriptions } from "../../src/node.js";
import type { AnyPeer, Server } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { rejection, turn } from "../support/turns.js";

interface Context {
  readonly peer: AnyPeer;
  readonly server: Server<any, any, any>;
}

async function world(methods: Record<string, (params: any, context: any) => unknown> = {}) {
  const errors: unknown[] = [];
  const kit = testServer<any, any, any>({
    authenticate: () => ({ name: "ada", token: "a token of the session" }),
    principal: ({ name }) => name as string,
    methods,
  });
  kit.server.on("error", (error) => errors.push(error));
  const got: unknown[] = [];
  const client = await kit.connect(kit.server.url, {
    methods: { vote: () => true },
    fallback: (params, { method }) => void got.push([method, params]),
  });
  const [peer] = kit.server.peers;
  return { ...kit, client, peer: peer!, errors, got, [Symbol.asyncDispose]: () => kit.server.close() };
}

/** What an application sends, what the error calls it, what the error says to write, and what a log in JSON shows. */
const OBJECTS: [name: string, make: (context: Context) => unknown, what: string, remedy: string, shown?: string][] = [
  ["peer", ({ peer }) => peer, "peer", "`peer.id`"],
  ["topic", ({ server, peer }) => server.topic("den").add(peer), "group of peers", "({ id }) => id", "den"],
  ["`server.peers`", ({ server }) => server.peers, "group of peers", "({ id }) => id", "peers"],
  ["peer of any node", ({ server, peer }) => server.peer(peer.id), "peer", "`peer.id`"],
  ["`remote` of a peer", ({ peer }) => peer.remote, "`remote` of a peer", "`peer.id`", "remote"],
  ["principal", ({ server }) => server.principal("ada"), "principal", "its name", "ada"],
  ["server", ({ server }) => server, "server", "what is needed of it", "server"],
];

describe("an object of the library", () => {
  it.each(OBJECTS)("is refused at any depth, and is a name in a log: %s", async (_name, make, what, remedy, shown) => {
    await using on = await world({
      whole: (_params, context) => make(context),
      deep: async (_params, context) => ({ list: [{ x: [1, { found: make(context) }] }] }),
    });
    for (const method of ["whole", "deep"])
      expect(await rejection(on.client.request(method))).toMatchObject({ code: -32603, message: "Internal error" });
    const value = make(on);
    expect(() => on.peer.notify("said", { list: [value] })).toThrow(TypeError);
    expect(on.errors).toEqual([expect.any(TypeError), expect.any(TypeError)]);
    const [whole, deep] = on.errors.map((error) => (error as Error).message) as [string, string];
    for (const part of [`the ${what}`, remedy]) expect(whole).toContain(part);
    for (const part of [`the ${what} \`found\``, remedy, '"deep"']) expect(deep).toContain(part);
    const text = JSON.stringify(shown ?? on.peer.id);
    expect([JSON.stringify({ value }), format("%j", value)]).toEqual([`{"value":${text}}`, text]);
  });

  it("is refused in everything else that is sent", async () => {
    const thrown: unknown[] = [];
    const subscriptions = new Subscriptions({ method: "push" });
    const attempts: Record<string, (value: object, context: any) => unknown> = {
      notify: (value, { peer }) => peer.notify("said", value),
      request: (value, { peer }) => peer.request("vote", value),
      batch: (value, { peer }) => peer.batch().notify("said", value),
      group: (value, { server }) => server.peers.notify("said", value),
      groupRequest: (value, { server }) => server.peers.request("vote", value),
      principal: (value, { server }) => server.principal("ada").notify("said", value),
      nodes: (value, { server }) => server.nodes.notify("said", value),
      progress: (value, { progress }) => progress(value),
      push: (value, context) => subscriptions.open(context).notify(value),
    };
    await using on = await world({
      async attempted(_params, context) {
        for (const [name, attempt] of Object.entries(attempts)) {
          const { message } = await rejection((async () => attempt({ list: [{ found: context.peer }] }, context))());
          thrown.push([name, message]);
        }
      },
      data: (_params, { peer }) => {
        throw new RpcError(1, "failed", { found: peer });
      },
      stream: async function* (_params, { peer }) {
        yield { found: peer };
      },
      context: (_params, context) => context as unknown,
      outcomes: async (_params, { server }) => server.peers.request("vote"),
      bytes: (_params, { peer }) => ({ image: bytes(new Uint8Array(1)), peer }),
      // Its own text is made as a log makes it, after another message was encoded.
      toJSON: (_params, { peer }) => ({ found: { peer, toJSON: () => (encodeResult(1, 2), JSON.stringify(peer)) } }),
    });
    await on.client.request("attempted", {}, { onProgress: (value: unknown) => on.got.push(value) });
    expect(thrown).toEqual(Object.keys(attempts).map((name) => [name, expect.stringContaining("the peer `found`")]));
    expect(on.errors).toEqual([]);
    for (const method of ["data", "context", "outcomes", "bytes", "toJSON"])
      expect([method, await rejection(on.client.request(method))]).toMatchObject([method, { code: -32603 }]);
    expect(
      await rejection(on.client.stream("stream")[Symbol.asyncIterator]().next() as Promise<unknown>),
    ).toMatchObject({ code: -32603 });
    for (const { message } of on.errors as Error[]) expect(message).toContain("the peer");
    await turn();
    expect(on.got).toEqual([]);
    // A message that could not be encoded changes no later log.
    expect(JSON.stringify(on.peer)).toBe(`"${on.peer.id}"`);
  });

  it("is refused also if it is of an attached process, and is its name or a tag in a log", async () => {
    await using worker = await attach({ engine: memory() });
    const values: [unknown, what: string, shown?: string][] = [
      [worker, "server", "server"],
      [worker.topic("den"), "group of peers", "den"],
      [worker.principal("ada"), "principal"],
      [worker.peer("a.b"), "peer"],
    ];
    for (const [found, what, shown] of values) {
      expect(() => worker.nodes.notify("said", { found })).toThrow(`the ${what} \`found\``);
      if (shown !== undefined) expect(JSON.stringify({ found })).toBe(`{"found":"${shown}"}`);
    }
  });
});

it("what `peer.remote` has for each name makes it no stream", async () => {
  await using on = await world({ found: async (_params, { peer }) => peer.remote as unknown });
  const { client } = on;
  expect(await rejection(client.request("found"))).toMatchObject({ code: -32603 });
  for (const error of [
    await rejection(client.request("found", { x: client.remote })),
    await rejection(client.request("found", client.remote as object, { onProgress: () => {} })),
  ])
    expect([error instanceof TypeError, error.message]).toEqual([true, expect.stringContaining("`remote` of a peer")]);
  await turn();
  expect(on.got).toEqual([]);
});
