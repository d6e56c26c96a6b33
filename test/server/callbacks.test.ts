/** Functions of the application that the library calls, and that are asynchronous. Their rejections would end the process. */
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { Peer, type AnyPeer, type Transport } from "../../src/index.js";
import { attach, memory, Subscriptions } from "../../src/node.js";
import { testServer, type TestServer } from "../../src/testing/index.js";
import { makeNode } from "../fleet/nodes.js";
import { rawPeer, notification } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";
import { uncaughtIn } from "../support/uncaught.js";
import { recorded } from "./by-hand.js";
import { joinSilent } from "./members.js";

const bug = new Error("bug of the application");
const rejects: any = async () => {
  throw bug;
};

const rejectsElsewhere: any = () => runInNewContext("Promise.reject('of another realm')");
const topics = (): object => ({ members: true });

describe("an asynchronous function that rejects is reported as `error`, if it is", () => {
  it("the `onProgress` of a call to a peer of another node", async () => {
    const engine = memory();
    await using a = makeNode({ engine });
    await using b = makeNode({ engine }, { work: (_params: unknown, { progress }: any) => progress({ part: 1 }) });
    const bob = await b.client("bob");
    const { errors } = recorded(a.server);
    const uncaught = await uncaughtIn(async () => {
      await a.server.peer(bob.peer.id).request("work", undefined, { onProgress: rejects });
    });
    expect([uncaught, errors]).toEqual([[], [bug]]);
  });

  it("a listener of `watch`, of a server and of a node without clients", async () => {
    const engine = memory();
    await using a = makeNode({ engine, topics });
    const { errors } = recorded(a.server);
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
  const NAMED = { authenticate: () => ({ name: "ann" }), principal: rejects };
  const heads = new Subscriptions({ method: "push", nextId: rejects });
  const subscribe = (_params: unknown, context: any): string | number => heads.open(context).id;

  it.each<[name: string, when: string, options: object, act: (kit: TestServer<any, any, any>) => Promise<unknown>]>([
    [
      "principal",
      "for a client that connects",
      NAMED,
      async ({ connect, server }) => expect(await rejection(connect(server.url))).toMatchObject({ status: 401 }),
    ],
    [
      "principal",
      "for a peer that the application accepted",
      NAMED,
      async ({ server }) => {
        joinSilent(server, {}, { name: "ann" });
        await server.principal("ann").peers();
      },
    ],
    [
      "nextId",
      "of subscriptions",
      { methods: { subscribe } },
      async ({ connect, server }) => {
        const client = await connect(server.url);
        expect(await rejection(client.request("subscribe"))).toMatchObject({ code: -32603 });
        await turn();
        expect(heads.size).toBe(0);
      },
    ],
  ])("`%s`, %s", async (name, _when, options, act) => {
    await using kit = testServer<any, any, any>(options);
    const { errors } = recorded(kit.server);
    expect(await uncaughtIn(() => act(kit))).toEqual([]);
    expect(errors).toEqual([refusal(name)]);
  });

  it("`topics`", async () => {
    const server = testServer({ topics: rejects });
    const client = await server.connect(server.server.url);
    const [peer] = server.server.peers;
    const refused = refusal("topics");
    const uncaught = await uncaughtIn(async () => {
      const room: any = server.server.topic("room");
      expect(() => room.watch(() => {})).toThrow(refused);
      for (const [name, given] of Object.entries({ join: [peer], publish: ["m", {}], read: [], members: [] }))
        expect(await rejection((async () => room[name](...given))())).toEqual(refused);
    });
    expect(uncaught).toEqual([]);
    await client.close();
    await server.server.close();
  });
});
