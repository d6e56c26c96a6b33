/** Objects of the library that an application sends by mistake. `JSON.stringify` would show what a peer is known by, or write `{}`. */
import { format } from "node:util";
import { describe, expect, it } from "vitest";
import {
  attach,
  bytes,
  encodeResult,
  memory,
  RpcError,
  Subscriptions,
  type AnyPeer,
  type Server,
} from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { rejection, turn } from "../support/turns.js";

const SECRET = "a token of the session";

interface Context {
  readonly peer: AnyPeer;
  readonly server: Server<any, any, any>;
  readonly progress: (value: unknown) => void;
}

/** What a handler sends, what the error calls it, and what the error says to write. */
const SENT: [name: string, make: (context: Context) => unknown, what: string, remedy: string][] = [
  ["peer", ({ peer }) => peer, "peer", "write `peer.id`"],
  ["peer with a listener", ({ peer }) => peer.on("close", () => {}), "peer", "write `peer.id`"],
  [
    "topic",
    ({ server, peer }) => server.topic("den").add(peer),
    "group of peers",
    "write `[...it].map(({ id }) => id)`",
  ],
  ["`server.peers`", ({ server }) => server.peers, "group of peers", "write `[...it].map(({ id }) => id)`"],
  ["peer of any node", ({ server, peer }) => server.peer(peer.id), "peer", "write `peer.id`"],
  ["`remote` of a peer", ({ peer }) => peer.remote, "`remote` of a peer", "write `peer.id`"],
  [
    "`remote` of a peer of any node",
    ({ server, peer }) => server.peer(peer.id).remote,
    "`remote` of a peer",
    "write `peer.id`",
  ],
  ["principal", ({ server }) => server.principal("ada"), "principal", "write its name"],
  ["server", ({ server }) => server, "server", "write what is needed of it"],
];

/** A server whose only client is asked for a vote, and that has the secret. */
function world(methods: Record<string, (params: any, context: any) => unknown>) {
  const errors: unknown[] = [];
  const kit = testServer<any, any, any>({
    authenticate: () => ({ name: "ada", token: SECRET }),
    principal: ({ name }) => name as string,
    methods,
  });
  kit.server.on("error", (error) => errors.push(error));
  const got: unknown[] = [];
  const client = kit.connect(kit.server.url, {
    methods: { vote: () => true },
    fallback: (params, { method }) => void got.push([method, params]),
  });
  return { ...kit, client, errors, got };
}

describe.each(SENT)("a %s", (_name, make, what, remedy) => {
  const refused = (key: string): string => `JSON cannot carry the ${what}${key}: ${remedy}`;

  it("is refused as a result, and at any depth of one, with an error that says what to write", async () => {
    await using on = world({
      whole: (_params, context) => make(context),
      member: (_params, context) => ({ found: make(context) }),
      deep: async (_params, context) => ({ list: [{ x: [1, { found: make(context) }] }] }),
    });
    const client = await on.client;
    for (const method of ["whole", "member", "deep"])
      expect(await rejection(client.request(method))).toMatchObject({ code: -32603, message: "Internal error" });
    expect(on.errors.map((error) => (error as Error).message)).toEqual([
      `The result of "whole": ${refused("")}`,
      `The result of "member": ${refused(" `found`")}`,
      `The result of "deep": ${refused(" `found`")}`,
    ]);
    for (const error of on.errors) expect(error).toBeInstanceOf(TypeError);
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
    const attempted = async (_params: unknown, context: Context): Promise<void> => {
      for (const [name, attempt] of Object.entries(attempts)) {
        try {
          await attempt({ list: [{ found: make(context) }] }, context);
          thrown.push([name, "nothing"]);
        } catch (error) {
          thrown.push([name, (error as Error).message]);
        }
      }
    };
    await using on = world({
      attempted,
      data: (_params, context) => {
        throw new RpcError(1, "failed", { list: [{ found: make(context) }] });
      },
      stream: async function* (_params, context) {
        yield { list: [{ found: make(context) }] };
      },
    });
    const client = await on.client;
    const reports: unknown[] = [];
    await client.request("attempted", {}, { onProgress: (value: unknown) => reports.push(value) });
    expect(thrown).toEqual(Object.keys(attempts).map((name) => [name, refused(" `found`")]));
    expect(await rejection(client.request("data"))).toMatchObject({ code: -32603 });
    const values = client.stream("stream")[Symbol.asyncIterator]();
    expect(await rejection(values.next() as Promise<unknown>)).toMatchObject({ code: -32603 });
    await turn();
    expect([reports, on.got]).toEqual([[], []]);
  });
});

describe("the outcomes of a request to a group", () => {
  it("cannot be returned as they are, and can with the ids of their peers", async () => {
    await using on = world({
      raw: async (_params, { server }) => server.peers.request("vote"),
      ids: async (_params, { server }) => {
        const outcomes = await server.peers.request("vote");
        return outcomes.map(({ peer, status, value }: any) => ({ id: peer.id, status, value }));
      },
    });
    const client = await on.client;
    expect(await rejection(client.request("raw"))).toMatchObject({ code: -32603 });
    expect((on.errors[0] as Error).message).toContain("JSON cannot carry the peer `peer`: write `peer.id`");
    const [peer] = on.server.peers;
    expect(await client.request("ids")).toEqual([{ id: peer!.id, status: "fulfilled", value: true }]);
  });
});

it("the context of a handler is refused, and so is what `around` gets", async () => {
  await using on = world({ context: (_params, context) => context as unknown });
  const client = await on.client;
  expect(await rejection(client.request("context"))).toMatchObject({ code: -32603 });
  expect((on.errors[0] as Error).message).toContain("JSON cannot carry the peer `peer`");
});

it("an attached process and its topics are refused", async () => {
  await using worker = await attach({ engine: memory() });
  const values: [unknown, string][] = [
    [worker, "server"],
    [worker.topic("den"), "topic"],
    [worker.principal("ada"), "principal"],
    [worker.peer("a.b"), "peer"],
  ];
  for (const [found, what] of values)
    expect(() => worker.nodes.notify("said", { found })).toThrow(`JSON cannot carry the ${what} \`found\``);
});

it("a peer in a failed assertion is shown, and in a log of an application it is no secret", async () => {
  await using on = world({ ping: () => "pong" });
  await on.client;
  const [peer] = on.server.peers;
  const failed = await rejection((async () => expect({ peer }).toEqual({ peer: 1 }))());
  expect(failed).toMatchObject({ name: "AssertionError" });
  expect(JSON.stringify({ level: "info", peer })).toBe(`{"level":"info","peer":"${peer!.id}"}`);
});

describe("a log in JSON, `%j` and what a test prints", () => {
  it("show an id, a name or a tag for objects that cannot be sent", async () => {
    await using on = world({});
    await on.client;
    await using worker = await attach({ engine: memory() });
    const { server } = on;
    const [peer] = server.peers;
    const { id } = peer!;
    const logged: [unknown, string][] = [
      [peer, id],
      [server.peer(id), id],
      [server.topic("den"), "den"],
      [worker.topic("den"), "den"],
      [server.peers, "peers"],
      [server.principal("ada"), "ada"],
      [server, "server"],
      [worker, "server"],
      [peer!.remote, "remote"],
      [server.peer(id).remote, "remote"],
    ];
    for (const [value, shown] of logged) {
      expect(JSON.stringify({ value })).toBe(JSON.stringify({ value: shown }));
      expect(format("%j", value)).toBe(JSON.stringify(shown));
    }
  });

  it("work in a listener of `error`, which gets the peer", async () => {
    const kit = testServer({
      methods: {
        boom: () => {
          throw new Error("boom");
        },
      },
    });
    const lines: string[] = [];
    kit.server.on("error", ({ message }: any, peer, call) => lines.push(JSON.stringify({ message, peer, call })));
    const client = await kit.connect(kit.server.url);
    expect(await rejection(client.request("boom"))).toMatchObject({ code: -32603 });
    const [peer] = kit.server.peers;
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0]!)).toMatchObject({ message: "boom", peer: peer!.id, call: { method: "boom" } });
  });

  it("work after a message that could not be encoded, also with bytes", async () => {
    await using on = world({ found: (_params, { peer }) => ({ image: bytes(new Uint8Array(1)), peer }) });
    const client = await on.client;
    const [peer] = on.server.peers;
    expect(await rejection(client.request("found"))).toMatchObject({ code: -32603 });
    expect((on.errors[0] as Error).message).toContain("JSON cannot carry the peer `peer`");
    expect(JSON.stringify(peer)).toBe(`"${peer!.id}"`);
  });

  it("made by a `toJSON` of the application are a part of its message", async () => {
    await using on = world({ found: (_params, { peer }) => ({ found: { peer, toJSON: written } }) });
    const client = await on.client;
    expect(await rejection(client.request("found"))).toMatchObject({ code: -32603 });
    expect((on.errors[0] as Error).message).toContain("write `peer.id`");
  });
});

it("what `peer.remote` has for each name makes it no stream", async () => {
  await using on = world({ found: async (_params, { peer }) => peer.remote as unknown });
  const client = await on.client;
  expect(await rejection(client.request("found"))).toMatchObject({ code: -32603 });
  expect(await rejection(client.request("found", { x: client.remote }))).toEqual(
    new TypeError("JSON cannot carry the `remote` of a peer `x`: write `peer.id`"),
  );
  expect(await rejection(client.request("found", client.remote as object, { onProgress: () => {} }))).toEqual(
    new TypeError("JSON cannot carry the `remote` of a peer: write `peer.id`"),
  );
  await turn();
  expect(on.got).toEqual([]);
});

/** A `toJSON` that encodes another message, and writes its own object as a log does. */
function written(this: { peer: unknown }): string {
  encodeResult(1, "another message");
  return JSON.stringify(this.peer);
}
