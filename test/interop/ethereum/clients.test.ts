import { describe, expect, it } from "vitest";
import { RpcError, serve, Subscriptions, type AnyPeer } from "../../../src/node.js";
import { gate, raising, rejection, turn } from "../../support/turns.js";
import { Inbox, stateOf } from "../../support/inbox.js";
import { CHAIN_ID, ethers, openViem, openWeb3, viem, web3, type EthereumClient } from "./clients.js";

const NO_ACCOUNT = { code: 4711, message: "no such account", data: { address: "0x0" } };

/** Starts a reciproc server with the methods of an Ethereum node. `Subscriptions` sends the heads, unless `withoutHelp`. */
async function startNode(withoutHelp = false) {
  let latest = 0;
  const [peers, subscribed] = [new Inbox<AnyPeer>(), new Inbox()];
  /** The ids of the requests by which viem keeps its connection alive. */
  const keepAlives: unknown[] = [];
  const slow = gate<unknown>();
  const listeners = new Set<(head: unknown) => void>();
  const subscriptions = new Subscriptions({ method: "eth_subscription" });
  const numbered = (number: number) => ({ number: `0x${number.toString(16)}` });
  const mine = (): void => {
    const head = numbered(++latest);
    for (const listen of listeners) listen(head);
  };
  const server = await serve({
    port: 0,
    methods: {
      eth_chainId: () => `0x${CHAIN_ID.toString(16)}`,
      net_version: (_params, { id }) => (keepAlives.push(id), String(CHAIN_ID)),
      eth_blockNumber: () => numbered(latest).number,
      eth_getBlockByNumber: ([number]) => ({ number }),
      eth_getBalance: raising(new RpcError(NO_ACCOUNT.code, NO_ACCOUNT.message, NO_ACCOUNT.data)),
      slow: () => slow.promise,
      async eth_subscribe(_params, context) {
        const { id, notify, signal } = subscriptions.open(context);
        const bare = (result: unknown) => context.peer.notify("eth_subscription", { subscription: id, result });
        const listen = withoutHelp ? bare : notify;
        listeners.add(listen);
        signal.addEventListener("abort", () => listeners.delete(listen));
        // Before the reply.
        mine();
        await turn();
        subscribed.push(id);
        return id;
      },
    },
  });
  server.on("peer", peers.push);
  const errors: unknown[] = [];
  server.on("error", (error) => errors.push(error));
  return {
    url: server.url,
    peers,
    subscriptions,
    subscribed,
    keepAlives,
    slow,
    mine,
    async [Symbol.asyncDispose]() {
      slow.resolve(null);
      await server.close();
      expect(errors).toEqual([]);
    },
  };
}

describe.each(Object.entries({ ethers, viem, web3 }))("%s", (_name, { open, received, lost }) => {
  it("gets results, many at once, and errors with code, message and data", async () => {
    await using node = await startNode();
    await using client = await open(node.url);
    node.mine();
    expect(await client.call("eth_blockNumber")).toBe("0x1");
    const calls = Array.from({ length: 100 }, (_, i) =>
      client.call("eth_getBlockByNumber", [`0x${i.toString(16)}`, false]),
    );
    expect((await Promise.all(calls)).map(({ number }) => Number(number))).toEqual(calls.map((_, i) => i));
    expect(received(await rejection(client.call("eth_getBalance", ["0x0", "latest"])))).toEqual(NO_ACCOUNT);
    expect(received(await rejection(client.call("eth_nope")))).toMatchObject({ code: -32601 });
  });

  it(`${lost === undefined ? "leaves pending calls pending" : "rejects pending calls"} when the server closes`, async () => {
    await using node = await startNode();
    await using client = await open(node.url);
    const slow = client.call("slow");
    const outcome = rejection(slow);
    await client.call("eth_blockNumber");
    await (await node.peers.next()).close(4000, "enough");
    if (lost !== undefined) return expect(await outcome).toMatchObject(lost);
    await client.closed;
    await turn();
    expect(await stateOf(slow)).toBe("pending");
  });
});

describe("viem", () => {
  async function watch(node: Awaited<ReturnType<typeof startNode>>, client: EthereumClient): Promise<Inbox<number>> {
    const numbers = new Inbox<number>();
    await client.subscribe(numbers.push);
    await node.subscribed.next();
    return numbers;
  }

  it("loses a push sent before the reply without `Subscriptions`", async () => {
    await using node = await startNode(true);
    await using client = openViem(node.url);
    const numbers = await watch(node, client);
    node.mine();
    expect(await numbers.next()).toBe(2);
  });

  it("sends heartbeats as requests of id null, which are answered and have no other effect", async () => {
    await using node = await startNode();
    await using client = openViem(node.url, { keepAlive: { interval: 5 } });
    const numbers = await watch(node, client);
    while (node.keepAlives.length < 3) expect(Number(await client.call("eth_chainId"))).toBe(CHAIN_ID);
    expect(new Set(node.keepAlives)).toEqual(new Set([null]));
    expect(await numbers.next()).toBe(1);
  });

  it("reconnects after a cut and subscribes again, by a new id", async () => {
    await using node = await startNode();
    await using client = openViem(node.url, { reconnect: { attempts: 5, delay: 1 } });
    const numbers = await watch(node, client);
    expect(await numbers.next()).toBe(1);
    await (await node.peers.next()).close(4000, "for a moment");
    await node.subscribed.next();
    expect(new Set(node.subscribed.all).size).toBe(2);
    expect(node.subscriptions.size).toBe(1);
    expect(await numbers.next()).toBe(2);
  });
});

it("web3 gets the answers to a batch in request order, because it matches the id of the first one", async () => {
  await using node = await startNode();
  await using client = await openWeb3(node.url);
  const request = (id: number, method: string): object => ({ jsonrpc: "2.0", id, method, params: [] });
  const batch = client.provider.request([request(1, "slow"), request(2, "eth_blockNumber"), request(3, "eth_nope")]);
  node.slow.resolve("at last");
  expect(await batch).toEqual([
    { jsonrpc: "2.0", id: 1, result: "at last" },
    { jsonrpc: "2.0", id: 2, result: "0x0" },
    { jsonrpc: "2.0", id: 3, error: { code: -32601, message: "Method not found" } },
  ]);
});
