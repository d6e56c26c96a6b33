/** viem 2.57.1 calls a reciproc server and subscribes to it. It loses no push before the reply, and reconnects after a cut. */
import { describe, expect, it } from "vitest";
import { createPublicClient, RpcRequestError, webSocket, type PublicClient } from "viem";
import { rejection } from "../../support/turns.js";
import { Inbox } from "../support/inbox.js";
import { CHAIN_ID, startNode, type Head } from "./node.js";

type Opened = PublicClient<ReturnType<typeof webSocket>> & AsyncDisposable;

/** Returns a client with its own socket, because viem shares sockets by URL and options. It must end before its node, or it reconnects. */
function open(url: string, options: Parameters<typeof webSocket>[1] = {}): Opened {
  const client = createPublicClient({
    transport: webSocket(url, { keepAlive: false, reconnect: false, retryCount: 0, ...options }),
  });
  const dispose = async (): Promise<void> => (await client.transport.getRpcClient()).close();
  return Object.assign(client, { [Symbol.asyncDispose]: dispose }) as never;
}

/** Subscribes to heads as `watchBlocks` does, and records their numbers. */
async function subscribe(client: Opened): Promise<{
  numbers: Inbox<number>;
  errors: Inbox;
  subscriptionId: unknown;
  unsubscribe: () => Promise<any>;
}> {
  const numbers = new Inbox<number>();
  const errors = new Inbox();
  const { subscriptionId, unsubscribe } = await client.transport.subscribe({
    params: ["newHeads"],
    onData: ({ result }) => numbers.push(Number((result as Head).number)),
    onError: errors.push,
  });
  return { numbers, errors, subscriptionId, unsubscribe };
}

describe("viem", () => {
  it("gets results, many at once, by ids that are numbers", async () => {
    await using node = await startNode();
    await using client = open(node.url);
    expect(await client.getChainId()).toBe(CHAIN_ID);
    expect(await client.getBlock({ blockNumber: 7n })).toMatchObject({ number: 7n });
    node.mine();
    const calls = Array.from({ length: 100 }, (_, i) => client.getBlock({ blockNumber: BigInt(i) }));
    expect((await Promise.all(calls)).map(({ number }) => number)).toEqual(calls.map((_, i) => BigInt(i)));
    expect(node.requests.every(([, id]) => typeof id === "number")).toBe(true);
  });

  it("gets errors with code, message and data", async () => {
    await using node = await startNode();
    await using client = open(node.url);
    const address = `0x${"0".repeat(40)}` as const;
    const error = await rejection(client.getBalance({ address }));
    const cause = error.walk((inner: unknown) => inner instanceof RpcRequestError);
    expect(cause).toMatchObject({ code: 4711, details: "no such account", data: { address } });
    const unknown = await rejection(client.request({ method: "eth_nope" as never }));
    expect(unknown).toMatchObject({ name: "MethodNotFoundRpcError", code: -32601 });
  });

  it("subscribes, gets every head in order, and unsubscribes", async () => {
    await using node = await startNode();
    await using client = open(node.url);
    const { numbers, subscriptionId, unsubscribe } = await subscribe(client);
    expect(subscriptionId).toMatch(/^0x[1-9a-f]{32}$/);
    for (let i = 0; i < 3; i++) node.mine();
    for (let i = 1; i <= 3; i++) expect(await numbers.next()).toBe(i);
    expect(node.subscriptions.size).toBe(1);
    expect(await unsubscribe()).toMatchObject({ result: true });
    expect(node.subscriptions.size).toBe(0);
    expect(await unsubscribe()).toMatchObject({ result: false });
  });

  it("loses no push made before the reply, because the reply is sent first", async () => {
    await using node = await startNode({ early: 3 });
    await using client = open(node.url);
    const { numbers } = await subscribe(client);
    node.mine();
    for (let i = 1; i <= 4; i++) expect(await numbers.next()).toBe(i);
  });

  it("loses a push sent before the reply without `Subscriptions`", async () => {
    await using node = await startNode({ early: 3, withoutHelp: true });
    await using client = open(node.url);
    const { numbers } = await subscribe(client);
    node.mine();
    expect(await numbers.next()).toBe(4);
    expect(numbers.all).toEqual([4]);
  });

  it("gets the reason for a refused subscription", async () => {
    await using node = await startNode();
    await using client = open(node.url);
    const refused = client.transport.subscribe({ params: ["logs" as "newHeads"], onData() {} });
    expect(await rejection(refused)).toMatchObject({ code: -32602, data: { topic: "logs" } });
  });

  it("watches blocks by the subscription, with its own action", async () => {
    await using node = await startNode();
    await using client = open(node.url);
    const numbers = new Inbox<bigint>();
    const errors = new Inbox();
    const stop = client.watchBlockNumber({ onBlockNumber: numbers.push, onError: errors.push });
    await node.subscribed.next();
    node.mine();
    node.mine();
    expect([await numbers.next(), await numbers.next()]).toEqual([1n, 2n]);
    stop();
    await node.unsubscribed.next();
    expect(node.subscriptions.size).toBe(0);
    expect(errors.all).toEqual([]);
  });

  it("sends heartbeats as requests of id null, which are answered and have no other effect", async () => {
    await using node = await startNode();
    await using client = open(node.url, { keepAlive: { interval: 5 } });
    const { numbers, errors } = await subscribe(client);
    while (node.requests.filter(([method, id]) => method === "net_version" && id === null).length < 3) {
      expect(await client.getChainId()).toBe(CHAIN_ID);
    }
    node.mine();
    expect(await numbers.next()).toBe(1);
    expect(errors.all).toEqual([]);
  });

  it("rejects pending calls when the server closes, and its subscription gets the error", async () => {
    await using node = await startNode();
    await using client = open(node.url);
    const { errors } = await subscribe(client);
    const slow = rejection(client.request({ method: "slow" as never }));
    await client.getChainId();
    await (await node.peers.next()).close(4000, "enough");
    expect((await slow).walk()).toMatchObject({ name: "SocketClosedError" });
    expect(await errors.next()).toMatchObject({ name: "SocketClosedError" });
    expect(node.subscriptions.size).toBe(0);
  });

  it("reconnects after a cut and subscribes again, by a new id", async () => {
    await using node = await startNode();
    await using client = open(node.url, { reconnect: { attempts: 5, delay: 1 } });
    const { numbers } = await subscribe(client);
    await node.subscribed.next();
    node.mine();
    expect(await numbers.next()).toBe(1);
    await (await node.peers.next()).close(4000, "for a moment");
    await node.subscribed.next();
    expect(node.subscriptions.size).toBe(1);
    // The reply and this push may be read together. They are two messages, in order.
    node.mine();
    expect(await numbers.next()).toBe(2);
  });
});
