/** Ten clients of five libraries subscribe at once: each receives every notification of its subscription, in order. */
import { createSolanaRpcSubscriptions } from "@solana/rpc-subscriptions";
import { WebSocketProvider as EthersProvider } from "ethers";
import { Client as RpcWebSocketsClient } from "rpc-websockets";
import { createPublicClient, webSocket } from "viem";
import { WebSocketProvider as Web3Provider } from "web3-providers-ws";
import { describe, expect, it } from "vitest";
import { serve, Subscriptions, type AnyPeer, type Server } from "../../../src/node.js";
import { turn } from "../../support/turns.js";
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

async function viem(url: string): Promise<Subscriber> {
  const numbers = new Inbox<number>();
  const transport = webSocket(url, { keepAlive: false, reconnect: false, retryCount: 0 });
  const client = createPublicClient({ transport });
  await client.transport.subscribe({
    params: ["newHeads"],
    onData: ({ result }) => numbers.push(Number((result as { number: string }).number)),
  });
  return { numbers, close: async () => (await client.transport.getRpcClient()).close() };
}

async function ethers(url: string): Promise<Subscriber> {
  const numbers = new Inbox<number>();
  const provider = new EthersProvider(url, 1);
  await provider.on("block", numbers.push);
  return { numbers, close: () => provider.destroy() };
}

async function web3(url: string): Promise<Subscriber> {
  const numbers = new Inbox<number>();
  const provider: any = new Web3Provider(url, {}, { autoReconnect: false });
  await new Promise((resolve) => provider.once("connect", resolve));
  const { result: id } = await provider.request({ jsonrpc: "2.0", id: 1, method: "eth_subscribe", params: [] });
  provider.on("message", ({ params }: any) => {
    if (params?.subscription === id) numbers.push(Number(params.result.number));
  });
  return { numbers, close: () => provider.disconnect() };
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
    const libraries = { viem, ethers, web3, rpcWebSockets, solana };
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
