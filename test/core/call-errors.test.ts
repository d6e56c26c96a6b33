/** What an error of a call shows: the method, and the line of its caller. */
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { connect, contract, RpcError, serve, type AnyPeer, type Server } from "../../src/node.js";
import { turn } from "../support/turns.js";

let server: Server;
let peer: AnyPeer;
/** A second client, with `around` and checks. */
let checked: AnyPeer;
let serverPeer: AnyPeer;

beforeEach(async () => {
  const methods = {
    refuse: () => Promise.reject(new RpcError(1, "no")),
    sum: () => "three",
    wait: () => new Promise(() => {}),
    values: async function* () {
      yield 1;
      throw new RpcError(2, "no more");
    },
  };
  server = await serve({ port: 0, methods });
  server.on("error", () => {});
  const connected = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
  peer = await connect(server.url);
  serverPeer = await connected;
  checked = await connect(server.url, {
    around: async (_call, next) => next(),
    remote: contract({ sum: { result: z.number() } }).partial,
    check: "both",
  });
});

afterEach(async () => {
  await Promise.all([peer.close(), checked.close()]);
  await server.close();
});

/** Returns the first line of an error's stack, and the file of its first frame that is not of Node. */
function shown(error: unknown): { head: string; file: string | undefined } {
  const [head = "", ...frames] = (error as Error).stack!.split("\n");
  const [first = ""] = frames.filter((frame) => !frame.includes("node:internal") && frame.includes(":"));
  return { head, file: /([\w.-]+):\d+:\d+\)?$/.exec(first)?.[1] };
}

const HERE = "call-errors.test.ts";

async function caught(call: () => Promise<unknown>): Promise<unknown> {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error("the call has not failed");
}

describe("an error of a call", () => {
  it.each<[string, string, () => Promise<unknown>]>([
    ["the other side answers with", 'RpcError: "missing": Method not found', () => peer.request("missing")],
    ["a handler throws", 'RpcError: "refuse": no', () => peer.remote.refuse()],
    ["of a timeout", 'TimeoutError: "wait" was not answered', () => peer.request("wait", [], { timeoutMs: 1 })],
    ["of bad params", 'TypeError: "add": Expected `params`', () => peer.request("add", 5)],
    ["of a bad option", 'TypeError: "add": Expected `timeoutMs`', () => peer.request("add", [], { timeoutMs: -1 })],
    ["of a result that does not fit", 'ProtocolError: The result of "sum"', () => checked.request("sum")],
    ["let through by `around`", 'RpcError: "refuse": no', () => checked.request("refuse")],
    ["of a call in a batch", 'RpcError: "refuse": no', () => inBatch(peer)],
    [
      "of a call among others",
      'RpcError: "refuse": no',
      () => Promise.all([peer.request("refuse"), peer.request("sum")]),
    ],
    ["of a stream", 'RpcError: "values": no more', () => readAll(peer)],
    ["of a stream that does not begin", 'RpcError: "missing": Method not found', () => readAll(peer, "missing")],
    ["of bad params for the members", 'TypeError: "add": Expected `params`', () => server.peers.request("add", 5)],
    ["of a call of a member", 'RpcError: "missing": Method not found', () => calledAll(server)],
    [
      "of a lost connection",
      'ConnectionLostError: "wait" may have run',
      async () => {
        const call = peer.request("wait");
        await turn();
        void serverPeer.close();
        await call;
      },
    ],
  ])("%s names the method, and begins with the line of the caller", async (_what, head, call) => {
    const error = shown(await caught(call));
    expect(error.head).toContain(head);
    expect(error.file).toBe(HERE);
  });
});

async function inBatch(to: AnyPeer): Promise<unknown> {
  const batch = to.batch();
  const call = batch.request("refuse");
  batch.send();
  return call;
}

async function readAll(from: AnyPeer, method = "values"): Promise<void> {
  for await (const _ of from.stream(method));
}

async function calledAll(all: Server): Promise<void> {
  const [outcome] = await all.peers.request("missing");
  throw outcome!.reason;
}
