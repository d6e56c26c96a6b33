/** Ten clients of five libraries subscribe at once: each receives every notification of its subscription, in order. */
import { createSolanaRpcSubscriptions } from "@solana/rpc-subscriptions";
import { Client as RpcWebSocketsClient } from "rpc-websockets";
import { describe, expect, it } from "vitest";
import { serve, Subscriptions, type AnyPeer, type Server } from "../../../src/node.js";
import { turn } from "../../support/turns.js";
import { ethers, viem, web3, type Ethereum } from "../ethereum/clients.js";
import { Inbox } from "../support/inbox.js";

/** The notifications of each subscription. The first five are sent before its reply. */
const COUNT = 40;
const ALL = Array.from({ length: COUNT }, (_, i) => i);

/** Sends numbers from the start of each subscription on, several in each tick. */
async function push(notify: (number: number) => unknown): Promise<void> {
  for (let i = 0; i < COUNT; i++) {
    notify(i);
    if (i > 4 && i % 3 === 0) await turn();
  }
}

/** Serves the subscriptions of each library. */
function startPublisher(): Promise<Server<any, any, any>> {
  const heads = new Subscriptions({ method: "eth_subscription" });
  const ticks = new Subscriptions({ method: "tick" });
  let lastSlot = 0;
  const slots = new Subscriptions({ method: "slotNotification", nextId: () => ++lastSlot });
  return serve<any, any, any>({
    port: 0,
    methods: {
      eth_subscribe(_params: unknown, context: { peer: AnyPeer; method: string }) {
        const { id, notify } = heads.open(context);
        void push((i) => notify({ number: `0x${i.toString(16)}` }));
        return id;
      },
      slotSubscribe(_params: unknown, context: { peer: AnyPeer; method: string }) {
        const { id, notify } = slots.open(context);
        void push((i) => notify({ slot: i, parent: i, root: i }));
        return id;
      },
      subscribe(_params: unknown, context: { peer: AnyPeer; method: string }) {
        const { id, notify } = ticks.open(context);
        void push((i) => notify(i));
        return id;
      },
    } as never,
  });
}

/** The messages received by a client, and a function that ends it. */
interface Subscriber {
  readonly numbers: Inbox<number>;
  close(): unknown;
}

/** Subscribes with an Ethereum library. */
function heads({ open }: Ethereum): (url: string) => Promise<Subscriber> {
  return async (url) => {
    const numbers = new Inbox<number>();
    const client = await open(url);
    await client.subscribe(numbers.push);
    return { numbers, close: () => client[Symbol.asyncDispose]() };
  };
}

/** Listens only after it knows the id. */
async function rpcWebSockets(url: string): Promise<Subscriber> {
  const numbers = new Inbox<number>();
  const client = new RpcWebSocketsClient(url, { reconnect: false });
  await new Promise<void>((resolve) => client.once("open", () => resolve()));
  const id = await client.call("subscribe");
  client.on("tick", ({ subscription, result }: any) => {
    if (subscription === id) numbers.push(result);
  });
  return { numbers, close: () => client.close() };
}

async function solana(url: string): Promise<Subscriber> {
  const numbers = new Inbox<number>();
  const abort = new AbortController();
  const slots = await createSolanaRpcSubscriptions(url as "ws://")
    .slotNotifications()
    .subscribe({ abortSignal: abort.signal });
  const reading = (async () => {
    for await (const { slot } of slots) numbers.push(Number(slot));
  })();
  // It rejects when its socket is closed.
  reading.catch(() => {});
  return { numbers, close: () => abort.abort() };
}

describe("ten clients that subscribe at once", () => {
  it.each(Array.from({ length: 10 }, (_, i) => [i + 1]))("receive everything, in order (run %i)", async () => {
    await using server = await startPublisher();
    const libraries = { viem: heads(viem), ethers: heads(ethers), web3: heads(web3), rpcWebSockets, solana };
    const opened = await Promise.all(
      [1, 2].flatMap((n) =>
        Object.entries(libraries).map(async ([name, open]) => [`${name} ${n}`, await open(server.url)] as const),
      ),
    );
    // The last one arrives, even if earlier ones were lost.
    await Promise.all(
      opened.map(async ([, { numbers }]) => {
        while ((await numbers.next()) !== COUNT - 1);
      }),
    );
    const received = Object.fromEntries(opened.map(([name, { numbers }]) => [name, numbers.all.join(" ")]));
    expect(received).toEqual(Object.fromEntries(opened.map(([name]) => [name, ALL.join(" ")])));
    for (const [, { close }] of opened) await close();
  });
});
