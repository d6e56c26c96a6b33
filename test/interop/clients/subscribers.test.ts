/** Ten clients of five libraries subscribe at once: each receives every notification of its subscription, in order. */
import { createSolanaRpcSubscriptions } from "@solana/rpc-subscriptions";
import { Client as RpcWebSocketsClient } from "rpc-websockets";
import { expect, it } from "vitest";
import { serve, Subscriptions, type AnyPeer, type Server } from "../../../src/node.js";
import { turn } from "../../support/turns.js";
import { ethers, viem, web3, type Ethereum } from "../ethereum/clients.js";
import { Inbox } from "../../support/inbox.js";

/** The notifications of each subscription. The first five are sent before its reply. */
const COUNT = 40;
const ALL = Array.from({ length: COUNT }, (_, i) => i);

/** Serves the subscriptions of each library. Numbers are sent from the start of each subscription on, several in each tick. */
function startPublisher(): Promise<Server<any, any, any>> {
  const serving = (subscriptions: Subscriptions<unknown>, resultOf: (n: number) => unknown) => {
    return (_params: unknown, context: { peer: AnyPeer; method: string }) => {
      const { id, notify } = subscriptions.open(context);
      void (async () => {
        for (const n of ALL) {
          notify(resultOf(n));
          if (n > 4 && n % 3 === 0) await turn();
        }
      })();
      return id;
    };
  };
  let lastSlot = 0;
  const slots = new Subscriptions({ method: "slotNotification", nextId: () => ++lastSlot });
  const methods = {
    eth_subscribe: serving(new Subscriptions({ method: "eth_subscription" }), (n) => ({
      number: `0x${n.toString(16)}`,
    })),
    slotSubscribe: serving(slots, (n) => ({ slot: n, parent: n, root: n })),
    subscribe: serving(new Subscriptions({ method: "tick" }), (n) => n),
  };
  return serve<any, any, any>({ port: 0, methods: methods as never });
}

/** Subscribes, passes each received number to `push`, and returns what ends the client. */
type Subscribe = (url: string, push: (number: number) => void) => Promise<() => unknown>;

function heads({ open }: Ethereum): Subscribe {
  return async (url, push) => {
    const client = await open(url);
    await client.subscribe(push);
    return () => client[Symbol.asyncDispose]();
  };
}

/** Listens only after it knows the id. */
const rpcWebSockets: Subscribe = async (url, push) => {
  const client = new RpcWebSocketsClient(url, { reconnect: false });
  await new Promise<void>((resolve) => client.once("open", () => resolve()));
  const id = await client.call("subscribe");
  client.on("tick", ({ subscription, result }: any) => {
    if (subscription === id) push(result);
  });
  return () => client.close();
};

const solana: Subscribe = async (url, push) => {
  const abort = new AbortController();
  const slots = await createSolanaRpcSubscriptions(url as "ws://")
    .slotNotifications()
    .subscribe({ abortSignal: abort.signal });
  const reading = (async () => {
    for await (const { slot } of slots) push(Number(slot));
  })();
  // It rejects when its socket is closed.
  reading.catch(() => {});
  return () => abort.abort();
};

it("ten clients that subscribe at once receive everything, in order", async () => {
  await using server = await startPublisher();
  const libraries = [heads(viem), heads(ethers), heads(web3), rpcWebSockets, solana];
  const subscribers = await Promise.all(
    [...libraries, ...libraries].map(async (subscribe) => {
      const numbers = new Inbox<number>();
      return { numbers, close: await subscribe(server.url, numbers.push) };
    }),
  );
  for (const { numbers } of subscribers) {
    // The last one arrives, even if earlier ones were lost.
    while ((await numbers.next()) !== COUNT - 1);
    expect(numbers.all).toEqual(ALL);
  }
  for (const { close } of subscribers) await close();
});
