/** Sessions that a client discards because another node refused them: their reports to the node that has them. */
import { describe, expect, it, vi } from "vitest";
import { connect } from "../../src/index.js";
import type { AnyPeer } from "../../src/node.js";
import { pass } from "../support/time.js";
import { gate, rejection, turn } from "../support/turns.js";
import { FaultyEngine, type FaultyLink } from "./faulty.js";
import {
  closeAll,
  expectSoon,
  failure,
  makeNode,
  makeNodes,
  nextPeer,
  settled,
  useFleet,
  when,
  type Node,
} from "./nodes.js";

useFleet();

const principal = ({ name }: { name: string }): string => name;
const TOPICS = { topics: () => ({ log: { length: 10, ttlMs: 60_000 }, members: true as const }) };
/** After this time, the nodes know each other. */
const BEAT_MS = 4_000;

/** A client of a page, which a balancer sends to one node and then to another when it connects again. */
async function moving(
  a: Node,
  b: Node,
  options: object = {},
): Promise<{ client: AnyPeer; peer: AnyPeer; move: () => Promise<AnyPeer> }> {
  let target = a;
  const Sockets = function (url: string, protocols: string[]): object {
    return new (target.WebSocket as any)(url, protocols) as object;
  };
  vi.stubGlobal("WebSocket", Object.assign(Sockets, target.WebSocket));
  const first = nextPeer(a);
  const client = (await connect(a.server.url, options)) as AnyPeer;
  const move = (): Promise<AnyPeer> => {
    const second = nextPeer(b);
    target = b;
    a.network.cut();
    return settled(second);
  };
  return { client, peer: await first, move };
}

describe("a client that begins a session on another node", () => {
  it("ends its session on the first node at once, and is a member once", async () => {
    const [a, b] = makeNodes(2, { ...TOPICS, principal }) as [Node, Node];
    const { client, peer, move } = await moving(a, b);
    const lost: unknown[] = [];
    client.on("lost", (error) => lost.push(error));
    await a.server.topic("room").join(peer, { as: "ann" });
    const later = await move();
    expect(await peer.closed).toMatchObject({ code: 4000, reason: expect.stringContaining("discarded") });
    await b.server.topic("room").join(later, { as: "ann" });
    expect(await b.server.topic("room").members()).toEqual([{ id: later.id, as: "ann" }]);
    expect(a.server.stats()).toMatchObject({ peers: 0, suspended: 0 });
    await expectSoon(() => lost.length, 1);
    await client.close();
  });

  it.each([{}, { auth: "ann" }])(
    "settles the calls of that session, of its own node and of others: %j",
    async (auth) => {
      const options = { principal, authenticate: (_request: unknown, name = "") => ({ name }) };
      const [a, b, c] = makeNodes(3, options) as [Node, Node, Node];
      const { client, peer, move } = await moving(a, b, { ...auth, methods: { never: () => new Promise(() => {}) } });
      const calls = [peer.request("never"), c.server.peer(peer.id).request("never")].map(rejection);
      await when(() => client.stats().running === 2);
      await move();
      for (const error of await settled(Promise.all(calls)))
        expect(error).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
      expect(await failure(c.server.peer(peer.id).request("never"))).toMatchObject({ outcome: "not-sent" });
      await client.close();
    },
  );

  it("ends it as soon as the broker is back, for each of the two nodes", async () => {
    for (const cut of [0, 1]) {
      const engine = new FaultyEngine();
      const [a, b] = makeNodes(2, { principal }, engine) as [Node, Node];
      await pass(BEAT_MS);
      const { client, peer, move } = await moving(a, b);
      engine.links[cut]!.down();
      await move();
      await turn();
      expect(peer.state).toBe("suspended");
      engine.links[cut]!.up();
      expect(await settled(peer.closed)).toMatchObject({ code: 4000 });
      await client.close();
      await settled(closeAll([a, b]));
    }
  });

  it("ends no session of another principal, and no unknown one", async () => {
    const engine = new FaultyEngine();
    const [a, b] = makeNodes(2, { principal }, engine) as [Node, Node];
    const { client, peer, move } = await moving(a, b);
    const [first, second] = engine.links as [FaultyLink, FaultyLink];
    const frames: string[] = [];
    first.loses = (_channel, frame) => frame.startsWith("1z") && frames.push(frame) > 0;
    await move();
    await when(() => frames.length === 1);
    first.loses = () => false;
    const [kind, from, hash, has, name] = frames[0]!.slice(0, -1).split("\t");
    const others = [
      [kind, from, hash, has, "eve"],
      [kind, from, hash, "", ""],
      [kind, from, "other", has, name],
      [kind, from],
      [kind],
    ];
    const inbox = `n:${a.server.nodes.id}` as const;
    for (const fields of others) await second.send(inbox, `${fields.join("\t")}\n`);
    await turn();
    expect(peer.state).toBe("suspended");
    await second.send(inbox, frames[0]!);
    expect(await peer.closed).toMatchObject({ code: 4000 });
    await client.close();
  });
});

const HELLO = '{"hello":{}}';
const isReport = (frame: string): boolean => frame.startsWith("1z");

/** A node beside another one, and clients whose sessions it refuses. `sent`: the frames that it has sent. */
async function reporting(options: object = {}) {
  const engine = new FaultyEngine();
  const first = makeNode({ engine });
  const node = makeNode({ engine, principal, authenticate: authenticated, ...options });
  await pass(BEAT_MS);
  const link = engine.links[1]!;
  const limits = { maxMessageBytes: 1_000, logFrames: 10, logLength: 1_000 };

  /** Returns a socket whose `resume` the node has refused, and what came after that. */
  const refuse = async (token = `${first.server.nodes.id}.elsewhere`, name = "ann") => {
    const socket = new node.WebSocket(node.server.url, {
      protocols: ["reciproc.v1", "reciproc.resume"],
      headers: { "x-name": name },
    });
    const messages: unknown[] = [];
    const closed = gate<number>();
    socket.addEventListener("message", ({ data }: any) => messages.push(JSON.parse(data as string)));
    socket.addEventListener("close", ({ code }: any) => closed.resolve(code as number));
    await when(() => messages.length === 1);
    socket.send(JSON.stringify({ resume: { token, received: 0, attempt: 1, limits } }));
    await when(() => messages.length === 2);
    messages.length = 0;
    return { socket, messages, closed: closed.promise };
  };
  /** Makes the node report that a client has discarded a session. */
  const report = async (token: string, name?: string): Promise<void> => {
    const { socket } = await refuse(token, name);
    socket.send(HELLO);
    await pass(0);
  };
  const reports = (): string[] => link.sent.filter(isReport);
  return { first, node, link, refuse, report, reports };
}

/** The principal of a client without a name is `undefined`. */
function authenticated({ headers }: { headers: Record<string, unknown> }): { name: unknown } {
  return { name: headers["x-name"] };
}

describe("a client that begins a session on a node that refused another one", () => {
  it("is reported when its hello has come, and not before", async () => {
    const { node, link, refuse } = await reporting();
    for (const isGreeted of [false, true]) {
      const { socket, closed } = await refuse();
      if (isGreeted) socket.send(HELLO);
      await pass(0);
      socket.close();
      await settled(closed);
      node.server.nodes.notify("after");
    }
    expect(link.sent.map((frame) => frame.slice(0, 2))).toEqual(["1s", "1z", "1s"]);
  });

  it("is reported also if there is no slot for it any more", async () => {
    const { node, refuse, reports } = await reporting({ limits: { maxConnections: 2 } });
    await node.client();
    const both = [await refuse(), await refuse()];
    for (const { socket } of both) socket.send(HELLO);
    expect(await settled(Promise.race(both.map(({ closed }) => closed)))).toBe(4503);
    expect(node.server.stats().peers).toBe(2);
    await pass(20);
    expect(
      reports()
        .join("")
        .match(/elsewhere/g),
    ).toHaveLength(2);
  });

  const closing = { code: 1001, reason: expect.any(String) };
  const bye = '{"bye":{"code":1000,"reason":""}}';
  it.each([
    ["drains", "its hello", HELLO, { ...closing, retryMs: 10 }],
    ["drains", "its bye", bye, undefined],
    ["drains", "nothing within a second", undefined, undefined],
    ["closes", "its hello", HELLO, closing],
    ["closes", "nothing within a second", undefined, undefined],
  ])("is waited for by a server that %s, which receives %s", async (how, what, frame, answer) => {
    // The wait itself must end.
    const { node, refuse, reports } = await reporting({ limits: { handshakeTimeoutMs: 300_000 } });
    const { socket, messages, closed } = await refuse();
    const over = how === "drains" ? node.server.drain({ retryMs: 10 }) : node.server.close();
    await pass(900);
    expect(socket.readyState).toBe(1);
    if (frame !== undefined) socket.send(frame);
    await pass(frame === undefined ? 200 : 0);
    expect(await settled(closed)).toBe(1001);
    await settled(over);
    expect(messages).toEqual(answer === undefined ? [] : [{ bye: answer }]);
    expect(reports()).toHaveLength(what === "its hello" ? 1 : 0);
  });
});

describe("the report of a node", () => {
  it("goes to the node that the token names, with the principal if there is one", async () => {
    for (const options of [{}, { principal: undefined }]) {
      const { first, node, link, report } = await reporting(options);
      const { id } = first.server.nodes;
      const channels: string[] = [];
      link.engine.links[0]!.loses = (channel, frame) => isReport(frame) && channels.push(channel) < 0;
      for (const token of [`${id}.a`, "no node", `${node.server.nodes.id}.b`, `${"x".repeat(65)}.c`])
        await report(token);
      expect(channels).toEqual([`n:${id}`]);
      const fields = "principal" in options ? "\t\t" : "\tp\tann";
      expect(link.sent.filter(isReport)).toEqual([`1z\t${node.server.nodes.id}\t${id}.a${fields}\n`]);
    }
  });

  it.each<[when: string, change: (link: FaultyLink, first: Node) => unknown, counts: number[]]>([
    ["the node has not received it: each time that it is heard", (link) => void (link.counted = () => 0), [1, 18, 18]],
    [
      "the node has not received it: once if it is not heard any more",
      (link, first) => {
        link.counted = () => 0;
        link.engine.unheard.add(first.server.nodes.id);
      },
      [1, 1, 1],
    ],
    ["it may be lost", (link) => link.fails("send", { times: Infinity, when: "after" }), [5, 24, 24]],
    ["the node may lack it: once if it has it", (link) => void (link.counted = () => 1), [1, 1, 1]],
    [
      "the node may lack it: once if the broker does not count",
      (link) => void (link.counted = () => undefined),
      [1, 1, 1],
    ],
    ["the node lives: once if it has ended", (_link, first) => first.server.close(), [1, 1, 1]],
  ])("is repeated for a minute, ever more seldom, while %s", async (_when, change, counts) => {
    const { first, link, report, reports } = await reporting();
    const token = `${first.server.nodes.id}.t1`;
    void change(link, first);
    await pass(0);
    await report(token);
    for (const [i, ms] of [1_600, 60_000, 120_000].entries()) {
      await pass(ms);
      expect(reports()).toHaveLength(counts[i]!);
    }
  });

  it("waits for the connection beside the commands", async () => {
    const { first, node, link, report, reports } = await reporting(TOPICS);
    link.down();
    const publish = (): Promise<unknown> => node.server.topic("room").publish("said", {}, { timeoutMs: 60_000 });
    const publishing = Array.from({ length: 1_000 }, publish);
    await report(`${first.server.nodes.id}.1`);
    expect([reports(), node.server.stats().engine!.dropped]).toEqual([[], 0]);
    link.up();
    await Promise.all(publishing);
    await pass(0);
    expect(reports()).toHaveLength(1);
  });
});
