/** Functions of the application that the library calls, and that are asynchronous. Their rejections would end the process. */
import { runInNewContext } from "node:vm";
import { afterEach, describe, expect, it } from "vitest";
import { Peer, type AnyPeer, type Transport } from "../../src/index.js";
import { attach, memory, Subscriptions } from "../../src/node.js";
import { testServer, type TestServer } from "../../src/testing/index.js";
import { closeAll, makeNode, makeNodes, type Node } from "../fleet/nodes.js";
import { rawPeer, notification } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";
import { uncaughtIn } from "../support/uncaught.js";

const bug = new Error("bug of the application");
const rejects: any = async () => {
  throw bug;
};

const rejectsElsewhere: any = () => runInNewContext("Promise.reject('of another realm')");
const topics = (): object => ({ members: true });

let nodes: Node[] = [];
afterEach(async () => {
  await closeAll(nodes);
  nodes = [];
});

/** Adds the errors that the server of a node emits to a list, and returns it. */
function errorsOf({ server }: Pick<TestServer<any, any, any>, "server">): unknown[] {
  const errors: unknown[] = [];
  server.on("error", (error) => errors.push(error));
  return errors;
}

describe("an asynchronous function that rejects is reported as `error`, if it is", () => {
  it("the `onProgress` of a call to a peer of another node", async () => {
    const engine = memory();
    nodes = [
      makeNode({ engine }),
      makeNode({ engine }, { work: (_params: unknown, { progress }: any) => progress({ part: 1 }) }),
    ];
    const [a, b] = nodes as [Node, Node];
    const bob = await b.client("bob");
    const errors = errorsOf(a);
    const uncaught = await uncaughtIn(async () => {
      await a.server.peer(bob.peer.id).request("work", undefined, { onProgress: rejects });
    });
    expect([uncaught, errors]).toEqual([[], [bug]]);
  });

  it("a listener of `watch`, of a server and of a node without clients", async () => {
    const engine = memory();
    nodes = makeNodes(1, { topics }, engine);
    const [a] = nodes as [Node];
    const errors = errorsOf(a);
    const attached = await attach({ engine, topics });
    attached.on("error", (error) => errors.push(error));
    const ann = await a.client("ann");
    const uncaught = await uncaughtIn(async () => {
      a.server.topic("room").watch(rejects);
      attached.topic("room").watch(rejects);
      await a.server.topic("room").join(ann.peer, { as: "ann" });
      await expect.poll(() => errors.length).toBe(2);
    });
    await attached.close();
    expect([uncaught, errors]).toEqual([[], [bug, bug]]);
  });

  it("a listener whose promise is of another realm", async () => {
    const raw = rawPeer();
    raw.peer.on("notification", rejectsElsewhere);
    expect(await uncaughtIn(() => raw.feed(notification("m")))).toEqual([]);
    expect(raw.errors).toEqual(["of another realm"]);
  });

  it("the `close` of a transport", async () => {
    const transport: Transport = { start() {}, send: () => true, close: rejects };
    const peer: AnyPeer = new Peer(transport, {});
    const errors: unknown[] = [];
    peer.on("error", (error) => errors.push(error));
    expect(await uncaughtIn(() => peer.close())).toEqual([]);
    expect([errors, await peer.closed]).toEqual([[bug], { code: 1006, reason: "" }]);
  });
});

/** Matches the error for a function whose value is needed at once. */
function refusal(name: string): Error {
  return expect.objectContaining({ name: "TypeError", message: expect.stringContaining(`\`${name}\``) }) as Error;
}

describe("an asynchronous function whose value is needed at once is refused with its name, if it is", () => {
  it("`principal`, for a client that connects", async () => {
    const server = testServer({ authenticate: () => ({ name: "ann" }), principal: rejects });
    const errors = errorsOf(server);
    const uncaught = await uncaughtIn(async () => {
      expect(await rejection(server.connect(server.server.url))).toMatchObject({ status: 401 });
    });
    expect(uncaught).toEqual([]);
    expect(errors).toEqual([refusal("principal")]);
    await server.server.close();
  });

  it("`principal`, for a peer that the application accepted", async () => {
    const server = testServer<any, any, any>({ authenticate: () => ({ name: "ann" }), principal: rejects });
    const errors = errorsOf(server);
    const uncaught = await uncaughtIn(async () => {
      server.server.accept({ start() {}, send: () => true, close() {} }, { name: "ann" });
      await server.server.principal("ann").peers();
    });
    expect(uncaught).toEqual([]);
    expect(errors).toEqual([refusal("principal")]);
  });

  it("`topics`", async () => {
    const server = testServer({ topics: rejects });
    const client = await server.connect(server.server.url);
    const [peer] = server.server.peers;
    const refused = refusal("topics");
    const uncaught = await uncaughtIn(async () => {
      const { publish, read, members, join, watch } = bound(server.server.topic("room"));
      expect(() => watch(() => {})).toThrow(refused);
      for (const act of [() => join(peer), () => publish("m", {}), read, members])
        expect(await rejection(act())).toEqual(refused);
    });
    expect(uncaught).toEqual([]);
    await client.close();
    await server.server.close();
  });

  it("the `nextId` of subscriptions", async () => {
    const heads = new Subscriptions({ method: "push", nextId: rejects });
    const server = testServer({ methods: { subscribe: (_params: unknown, context: any) => heads.open(context).id } });
    const errors = errorsOf(server);
    const client = await server.connect(server.server.url);
    const uncaught = await uncaughtIn(async () => {
      expect(await rejection(client.request("subscribe"))).toMatchObject({ code: -32603 });
      await turn();
    });
    expect(uncaught).toEqual([]);
    expect(errors).toEqual([refusal("nextId")]);
    expect(heads.size).toBe(0);
    await client.close();
    await server.server.close();
  });
});

/** Returns the functions of a topic, which need no `this`. */
function bound(topic: any): Record<"publish" | "read" | "members" | "join" | "watch", (...args: unknown[]) => any> {
  const names = ["publish", "read", "members", "join", "watch"] as const;
  return Object.fromEntries(names.map((name) => [name, (...args: unknown[]) => topic[name](...args)])) as never;
}
