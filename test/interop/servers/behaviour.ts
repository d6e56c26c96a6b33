/** The behaviour that a reciproc client must get from every third-party server: one suite, and an adapter for each server. */
import { once } from "node:events";
import { expect, it } from "vitest";
import type { AddressInfo } from "node:net";
import WebSocket, { type WebSocketServer } from "ws";
import { connect, type AnyPeer } from "../../../src/node.js";
import { gate, rejection, type Gate } from "../../support/turns.js";
import { ATTIC } from "../support/service.js";

/** A server that serves `add`, `echo`, `attic` and `wait`, which it answers when the gate of that name opens. */
export interface ForeignServer extends AsyncDisposable {
  readonly url: string;
  /** The result of `wait`. */
  readonly gates: { of(name: string): { resolve(value: unknown): void } };
  /** The params of `note`, in order of arrival. */
  readonly noted: { next(): Promise<unknown> };
  /** Cuts every connection. */
  cut(): void;
}

/** Returns the gate of this name, and creates it on first use. */
export class Gates {
  readonly #gates = new Map<string, Gate<unknown>>();

  of(name: string): Gate<unknown> {
    const known = this.#gates.get(name) ?? gate<unknown>();
    this.#gates.set(name, known);
    return known;
  }
}

/** Returns what all servers over `ws` have in common, once the server listens. */
export async function listeningServer(
  webSockets: WebSocketServer,
): Promise<Pick<ForeignServer, "url" | "cut" | typeof Symbol.asyncDispose>> {
  await once(webSockets, "listening");
  const cut = (): void => webSockets.clients.forEach((client) => client.terminate());
  return {
    url: `ws://127.0.0.1:${(webSockets.address() as AddressInfo).port}`,
    cut,
    async [Symbol.asyncDispose]() {
      cut();
      await new Promise((resolve) => webSockets.close(resolve));
    },
  };
}

/** The differences between servers. */
export interface Traits {
  readonly start: () => Promise<ForeignServer>;
  /** Whether it agrees to an unknown subprotocol, as a `ws` server does by default. Default true. */
  readonly agrees?: boolean;
}

const PROTOCOL = "reciproc.v1";

/** Opens a connection that offers no subprotocol. */
export function connectPlainly(url: string): Promise<AnyPeer> {
  return connect(url, { link: "plain" });
}

/** Runs the suite. */
export function behavesAsServer({ start, agrees = true }: Traits): void {
  it(`${agrees ? "agrees to" : "ignores"} reciproc.v1 without knowing it, and is called by plain JSON-RPC`, async () => {
    await using server = await start();
    const bare = new WebSocket(server.url, PROTOCOL);
    if (agrees) {
      await once(bare, "open");
      expect(bare.protocol).toBe(PROTOCOL);
    } else {
      // `ws` treats it as a failure, as browsers do, so the client connects again without the offer.
      expect(await once(bare, "error")).toMatchObject([{ message: "Server sent no subprotocol" }]);
    }
    bare.terminate();
    await using peer = await connect(server.url);
    expect(await peer.request("add", [1, 2])).toBe(3);
    peer.notify("note", ["noted"]);
    expect(await server.noted.next()).toEqual(["noted"]);
    const calls = Array.from({ length: 50 }, (_, i) => peer.request("add", [i, i]));
    expect(await Promise.all(calls)).toEqual(calls.map((_, i) => 2 * i));
  });

  it("answers calls, by position and by name", async () => {
    await using server = await start();
    await using peer = await connectPlainly(server.url);
    expect(await peer.request("add", [1, 2])).toBe(3);
    expect(await peer.request("add", { a: 40, b: 2 })).toBe(42);
    const rich = [{ deep: [null, true, 1.5, "é😀", { "": [] }] }, "x".repeat(100_000)];
    expect(await peer.request("echo", rich)).toEqual(rich);
    for (const value of [0, "", false, null]) expect(await peer.request("echo", [value])).toEqual([value]);
  });

  it("fails calls with code, message and data", async () => {
    await using server = await start();
    await using peer = await connectPlainly(server.url);
    expect(await rejection(peer.request("attic", []))).toMatchObject({ name: "RpcError", ...ATTIC });
    expect(await rejection(peer.request("nope", []))).toMatchObject({ name: "RpcError", code: -32601 });
    expect(await peer.request("add", [1, 2])).toBe(3);
  });

  it("answers many calls in another order than it received them", async () => {
    await using server = await start();
    await using peer = await connectPlainly(server.url);
    const names = Array.from({ length: 100 }, (_, i) => `call ${i}`);
    const order: string[] = [];
    const calls = names.map(async (name) => {
      const value = await peer.request("wait", [name]);
      order.push(name);
      return value;
    });
    expect(await peer.request("add", [1, 2])).toBe(3);
    const reversed = [...names].reverse();
    for (const name of reversed) server.gates.of(name).resolve(`answer to ${name}`);
    expect(await Promise.all(calls)).toEqual(names.map((name) => `answer to ${name}`));
    expect(order).toEqual(reversed);
  });

  it("answers batches", async () => {
    await using server = await start();
    await using peer = await connectPlainly(server.url);
    const batch = peer.batch();
    const calls = [batch.request("add", [1, 2]), batch.request("attic", []), batch.request("add", [3, 4])];
    batch.notify("note", ["in a batch"]);
    batch.send();
    expect(await calls[0]).toBe(3);
    expect(await rejection(calls[1]!)).toMatchObject(ATTIC);
    expect(await calls[2]).toBe(7);
    expect(await server.noted.next()).toEqual(["in a batch"]);
  });

  it("fails pending calls when it cuts the connection", async () => {
    await using server = await start();
    await using peer = await connectPlainly(server.url);
    const call = peer.request("wait", ["for ever"]);
    await peer.request("add", [1, 2]);
    server.cut();
    expect(await rejection(call)).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
    expect(await rejection(peer.request("add", [1, 2]))).toMatchObject({ outcome: "not-sent" });
    expect(peer.notify("note", ["too late"])).toBe(false);
  });
}
