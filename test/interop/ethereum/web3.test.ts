/** web3-providers-ws 4.0.8 calls a reciproc server, also in batches, and subscribes to it. */
import { WebSocketProvider } from "web3-providers-ws";
import { describe, expect, it } from "vitest";
import { rejection } from "../../support/turns.js";
import { Inbox } from "../support/inbox.js";
import { startNode } from "./node.js";

/** The types accept only methods known to the package, so they are not used. */
async function open(url: string): Promise<any> {
  const provider: any = new WebSocketProvider(url, {}, { autoReconnect: false });
  await new Promise((resolve) => provider.once("connect", resolve));
  return provider;
}

const request = (id: unknown, method: string, params: unknown[] = []): object => ({
  jsonrpc: "2.0",
  id,
  method,
  params,
});

describe("web3-providers-ws", () => {
  it("gets results and errors, many at once", async () => {
    await using node = await startNode();
    const provider = await open(node.url);
    expect(await provider.request(request(1, "eth_blockNumber"))).toEqual({ jsonrpc: "2.0", id: 1, result: "0x0" });
    const address = `0x${"0".repeat(40)}`;
    expect(await provider.request(request("b", "eth_getBalance", [address]))).toEqual({
      jsonrpc: "2.0",
      id: "b",
      error: { code: 4711, message: "no such account", data: { address } },
    });
    const calls = Array.from({ length: 100 }, (_, i) =>
      provider.request(request(i + 2, "eth_getBlockByNumber", [`0x${i.toString(16)}`])),
    );
    expect((await Promise.all(calls)).map(({ result }) => Number(result.number))).toEqual(calls.map((_, i) => i));
    provider.disconnect();
  });

  it("gets the answers to a batch in request order, because it matches the id of the first one", async () => {
    await using node = await startNode();
    const provider = await open(node.url);
    const batch = provider.request([request(1, "slow"), request(2, "eth_blockNumber"), request(3, "eth_nope")]);
    node.slow.resolve("at last");
    expect(await batch).toEqual([
      { jsonrpc: "2.0", id: 1, result: "at last" },
      { jsonrpc: "2.0", id: 2, result: "0x0" },
      { jsonrpc: "2.0", id: 3, error: { code: -32601, message: "Method not found" } },
    ]);
    provider.disconnect();
  });

  it("subscribes and gets every head, also one pushed before the reply", async () => {
    await using node = await startNode({ early: 2 });
    const provider = await open(node.url);
    const messages = new Inbox<any>();
    provider.on("message", messages.push);
    const { result: subscription } = await provider.request(request(1, "eth_subscribe", ["newHeads"]));
    node.mine();
    expect(await messages.next()).toEqual({ jsonrpc: "2.0", id: 1, result: subscription });
    for (const number of ["0x1", "0x2", "0x3"]) {
      expect(await messages.next()).toMatchObject({
        method: "eth_subscription",
        params: { subscription, result: { number } },
      });
    }
    expect(await provider.request(request(2, "eth_unsubscribe", [subscription]))).toMatchObject({ result: true });
    provider.disconnect();
  });

  it("rejects pending calls when the server closes", async () => {
    await using node = await startNode();
    const provider = await open(node.url);
    provider.on("error", () => {});
    const slow = rejection(provider.request(request(1, "slow")));
    await provider.request(request(2, "eth_blockNumber"));
    await (await node.peers.next()).close();
    expect((await slow).message).toBe("Connection not open");
  });
});
