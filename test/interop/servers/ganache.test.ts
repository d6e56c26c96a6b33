/** A reciproc client calls ganache 7.9.2, an Ethereum node with non-conforming answers that affect no call. */
import ganache from "ganache";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { AnyPeer } from "../../../src/node.js";
import { connect } from "../../support/connect.js";
import { Relay } from "../../support/relay.js";
import { rejection } from "../../support/turns.js";
import { Inbox } from "../../support/inbox.js";

const node = ganache.server({ logging: { quiet: true }, wallet: { totalAccounts: 1 } });
let url: string;
beforeAll(async () => {
  await node.listen(0, "127.0.0.1");
  url = `ws://127.0.0.1:${node.address().port}`;
});
afterAll(() => node.close());

const CHAIN = "0x539";

function open(methods = {}): Promise<AnyPeer> {
  return connect(url, { link: "plain", methods });
}

describe("ganache", () => {
  it("is called by plain JSON-RPC, even if reciproc.v1 is offered, and fails calls with -32700", async () => {
    await using peer = await connect(url);
    expect(await Promise.all([1, 2, 3].map(() => peer.request("eth_chainId", [])))).toEqual([CHAIN, CHAIN, CHAIN]);
    expect(await rejection(peer.request("nope", []))).toMatchObject({ name: "RpcError", code: -32700, method: "nope" });
    expect(await rejection(peer.request("eth_getBalance", ["nonsense"]))).toMatchObject({ code: -32700 });
  });

  it("answers a notification with a result that names no call, also in a batch, which is ignored", async () => {
    await using peer = await open();
    const errors = new Inbox();
    peer.on("error", errors.push);
    expect(peer.notify("eth_chainId", [])).toBe(true);
    // ganache answers in order, so that answer arrived before this one.
    expect(await peer.request("eth_chainId", [])).toBe(CHAIN);
    const batch = peer.batch();
    const calls = [batch.request("eth_chainId", []), batch.request("nope", []), batch.request("eth_chainId", [])];
    batch.notify("eth_chainId", []);
    batch.send();
    expect(await calls[0]).toBe(CHAIN);
    expect(await rejection(calls[1]!)).toMatchObject({ code: -32700 });
    expect(await calls[2]).toBe(CHAIN);
    expect(peer.stats()).toMatchObject({ pending: 0 });
    expect(errors.all).toEqual([]);
  });

  it("answers `[]` with `[]`, which the client answers once with -32600, without further messages", async () => {
    await using relay = await Relay.to(url);
    await using peer = await connect(relay.url, { link: "plain" });
    const errors = new Inbox();
    peer.on("error", errors.push);
    // reciproc never sends `[]`. This is its frame, masked by zeros.
    const [line] = relay.lines;
    line!.write("server", Buffer.from([0x81, 0x82, 0, 0, 0, 0, ...Buffer.from("[]")]));
    // ganache mistakes the refusal for a call, and answers it with id null.
    expect(await errors.next()).toMatchObject({ name: "RpcError", message: expect.stringContaining("undefined") });
    expect(await peer.request("eth_chainId", [])).toBe(CHAIN);
    expect(errors.all).toHaveLength(1);
  });

  it("pushes subscribed heads, each with the id of its subscription", async () => {
    const pushed = new Inbox<{ subscription: string; result: { number: string } }>();
    await using peer = await open({ eth_subscription: pushed.push });
    const first = await peer.request("eth_subscribe", ["newHeads"]);
    const second = await peer.request("eth_subscribe", ["newHeads"]);
    const before = Number(await peer.request("eth_blockNumber", []));
    await peer.request("evm_mine", []);
    const heads = [await pushed.next(), await pushed.next()];
    expect(heads.map(({ subscription }) => subscription).sort()).toEqual([first, second]);
    expect(heads.map(({ result }) => Number(result.number))).toEqual([before + 1, before + 1]);
    expect(await peer.request("eth_unsubscribe", [first])).toBe(true);
    expect(await peer.request("eth_unsubscribe", [first])).toBe(false);
    await peer.request("evm_mine", []);
    expect(await pushed.next()).toMatchObject({ subscription: second });
    expect(pushed.left).toEqual([]);
  });
});
