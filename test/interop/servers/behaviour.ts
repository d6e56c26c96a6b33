/** The behaviour that a reciproc client must get from every third-party server: one suite, and an adapter for each server. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { expect, it } from "vitest";
import WebSocket from "ws";
import type { AnyPeer } from "../../../src/node.js";
import { connect } from "../../support/connect.js";
import { rejection } from "../../support/turns.js";
import { ATTIC } from "../support/service.js";

/** A server that serves `add`, `echo`, `attic`, and `wait`, which it answers at the notification `release` of the same name. */
export interface ForeignServer extends AsyncDisposable {
  readonly url: string;
  /** The params of `note`, in order of arrival. */
  readonly noted: { next(): Promise<unknown> };
  cut(): void;
}

export interface Traits {
  readonly start: () => Promise<ForeignServer>;
  /** Whether it agrees to an unknown subprotocol, as a `ws` server does by default. Default true. */
  readonly agrees?: boolean;
  /** Whether it has a method `ask`, which calls `confirm` of the client before it answers. Default false. */
  readonly calls?: boolean;
}

const PROTOCOL = "reciproc.v1";

export function connectPlainly(url: string): Promise<AnyPeer> {
  return connect(url, { link: "plain" });
}

/** Offers reciproc.v1 to a server. Returns the subprotocol that its response names. */
export async function agreedProtocol(url: string): Promise<string | undefined> {
  const bare = new WebSocket(url, PROTOCOL);
  // `ws` treats a response without one as a failure, as browsers do, so the client connects again without the offer.
  bare.on("error", () => {});
  const [{ headers }] = (await once(bare, "upgrade")) as [IncomingMessage];
  bare.terminate();
  return headers["sec-websocket-protocol"];
}

export function behavesAsServer({ start, agrees = true, calls = false }: Traits): void {
  it(`${agrees ? "agrees to" : "ignores"} reciproc.v1 without knowing it, and is called by plain JSON-RPC`, async () => {
    await using server = await start();
    expect(await agreedProtocol(server.url)).toBe(agrees ? PROTOCOL : undefined);
    await using peer = await connect(server.url);
    peer.notify("note", ["noted"]);
    expect(await server.noted.next()).toEqual(["noted"]);
    const sums = Array.from({ length: 50 }, (_, i) => peer.request("add", [i, i]));
    expect(await Promise.all(sums)).toEqual(sums.map((_, i) => 2 * i));
  });

  it("answers calls, by position and by name, and fails them with code, message and data", async () => {
    await using server = await start();
    await using peer = await connectPlainly(server.url);
    expect(await peer.request("add", [1, 2])).toBe(3);
    expect(await peer.request("add", { a: 40, b: 2 })).toBe(42);
    const rich = [{ deep: [null, true, 1.5, "é😀", { "": [] }] }, "x".repeat(100_000), 0, "", false, null];
    expect(await peer.request("echo", rich)).toEqual(rich);
    expect(await rejection(peer.request("attic", []))).toMatchObject({ name: "RpcError", ...ATTIC });
    expect(await rejection(peer.request("nope", []))).toMatchObject({ name: "RpcError", code: -32601 });
  });

  it("answers many calls in another order than it received them", async () => {
    await using server = await start();
    await using peer = await connectPlainly(server.url);
    const names = Array.from({ length: 100 }, (_, i) => `call ${i}`);
    const order: unknown[] = [];
    const answered = names.map((name) => peer.request("wait", [name]).then((value) => order.push(value)));
    expect(await peer.request("add", [1, 2])).toBe(3);
    const reversed = [...names].reverse();
    for (const name of reversed) peer.notify("release", [name]);
    await Promise.all(answered);
    expect(order).toEqual(reversed);
  });

  it("answers batches", async () => {
    await using server = await start();
    await using peer = await connectPlainly(server.url);
    const batch = peer.batch();
    const outcomes = [batch.request("add", [1, 2]), batch.request("attic", []), batch.request("add", [3, 4])];
    batch.notify("note", ["in a batch"]);
    batch.send();
    expect(await outcomes[0]).toBe(3);
    expect(await rejection(outcomes[1]!)).toMatchObject(ATTIC);
    expect(await outcomes[2]).toBe(7);
    expect(await server.noted.next()).toEqual(["in a batch"]);
  });

  if (calls) {
    it("calls the client before it answers", async () => {
      await using server = await start();
      const methods = { confirm: ({ question }: { question: string }) => `yes to ${question}` };
      await using peer = await connect(server.url, { methods });
      const asked = ["a", "b", "c"].map((question) => peer.request("ask", { question }));
      expect(await Promise.all(asked)).toEqual(["a", "b", "c"].map((question) => `you said yes to ${question}`));
    });
  }

  it("fails pending calls when it cuts the connection", async () => {
    await using server = await start();
    await using peer = await connectPlainly(server.url);
    const call = peer.request("wait", ["for ever"]);
    await peer.request("add", [1, 2]);
    server.cut();
    expect(await rejection(call)).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
    expect(await rejection(peer.request("add", [1, 2]))).toMatchObject({ outcome: "not-sent" });
  });
}
