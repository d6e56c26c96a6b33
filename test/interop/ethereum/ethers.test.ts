/** ethers 6.17 calls a reciproc server and subscribes to it. */
import { WebSocketProvider } from "ethers";
import { describe, expect, it } from "vitest";
import { rejection, turn } from "../../support/turns.js";
import { Inbox, stateOf } from "../support/inbox.js";
import { CHAIN_ID, startNode } from "./node.js";

/** Returns a provider with a known network. Otherwise it would call the server first. */
function open(url: string): WebSocketProvider & AsyncDisposable {
  const provider = new WebSocketProvider(url, CHAIN_ID);
  return Object.assign(provider, { [Symbol.asyncDispose]: () => provider.destroy() });
}

describe("ethers", () => {
  it("gets results, many at once, by ids that are numbers from 1", async () => {
    await using node = await startNode();
    await using provider = open(node.url);
    node.mine();
    expect(await provider.getBlockNumber()).toBe(1);
    expect(await provider.getBlock(7)).toMatchObject({ number: 7 });
    const calls = Array.from({ length: 100 }, (_, i) =>
      provider.send("eth_getBlockByNumber", [`0x${i.toString(16)}`, false]),
    );
    expect((await Promise.all(calls)).map(({ number }) => Number(number))).toEqual(calls.map((_, i) => i));
    expect(node.requests.map(([, id]) => id)).toEqual(node.requests.map((_, i) => i + 1));
  });

  it("gets errors with code, message and data", async () => {
    await using node = await startNode();
    await using provider = open(node.url);
    const address = `0x${"0".repeat(40)}`;
    const error = await rejection(provider.send("eth_getBalance", [address, "latest"]));
    expect(error.error).toEqual({ code: 4711, message: "no such account", data: { address } });
    expect(await rejection(provider.send("eth_nope", []))).toMatchObject({ error: { code: -32601 } });
  });

  it("subscribes, gets every head in order, and unsubscribes", async () => {
    await using node = await startNode();
    await using provider = open(node.url);
    const numbers = new Inbox<number>();
    await provider.on("block", numbers.push);
    await node.subscribed.next();
    for (let i = 0; i < 3; i++) node.mine();
    for (let i = 1; i <= 3; i++) expect(await numbers.next()).toBe(i);
    expect(node.subscriptions.size).toBe(1);
    await provider.off("block", numbers.push);
    await node.unsubscribed.next();
    expect(node.subscriptions.size).toBe(0);
    // It reports an error if it is destroyed while the answer to unsubscribe is pending.
    await provider.send("eth_chainId", []);
  });

  it("loses no push made before the reply, because the reply is sent first", async () => {
    await using node = await startNode({ early: 3 });
    await using provider = open(node.url);
    const numbers = new Inbox<number>();
    await provider.on("block", numbers.push);
    await node.subscribed.next();
    node.mine();
    for (let i = 1; i <= 4; i++) expect(await numbers.next()).toBe(i);
  });

  it("leaves its calls pending when the server closes, because it ignores the close", async () => {
    await using node = await startNode();
    await using provider = open(node.url);
    const slow = provider.send("slow", []);
    slow.catch(() => {});
    await provider.getBlockNumber();
    const { websocket } = provider;
    const closed = new Promise((resolve) => (websocket as unknown as WebSocket).addEventListener("close", resolve));
    await (await node.peers.next()).close();
    await closed;
    await turn();
    expect(await stateOf(slow)).toBe("pending");
  });
});
