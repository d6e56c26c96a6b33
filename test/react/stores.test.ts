/** What the hooks subscribe to, without React. */
import { EventEmitter } from "node:events";
import { expect, it, vi } from "vitest";
import { z } from "zod";
import { ConnectionLostError, contract, open, serve, type AnyPeer } from "../../src/node.js";
import { providedPeerOf, topicOf } from "../../src/react/stores.js";
import { uncaughtIn } from "../support/uncaught.js";

/** A peer whose calls reject with the errors that the test gives, and then resolve with no members. */
class Failing extends EventEmitter {
  state = "open";
  requests = 0;
  readonly #errors: Error[];

  constructor(...errors: Error[]) {
    super();
    this.#errors = errors;
  }

  request(): Promise<unknown> {
    this.requests++;
    const error = this.#errors.shift();
    return error === undefined ? Promise.resolve([]) : Promise.reject(error);
  }

  notify(): boolean {
    return true;
  }
}

const FULL = new ConnectionLostError("topic/join", "not-sent", new Error("the queue is full"));

it("shows that a topic could not be joined because the queue is full", async () => {
  const den = topicOf(() => new Failing(FULL) as unknown as AnyPeer, "den");
  const leave = den.subscribe(() => {});
  await vi.waitFor(() => expect(den.get().error).toBe(FULL));
  leave();
});

it("ignores a member that joined without saying which, and shows the next", async () => {
  const peer = new Failing();
  const den = topicOf(() => peer as unknown as AnyPeer, "den");
  const leave = den.subscribe(() => {});
  await vi.waitFor(() => expect(den.get().members).toEqual([]));
  const uncaught = await uncaughtIn(async () => {
    for (const params of [{ topic: "den" }, { topic: "den", member: null }, { topic: "den", member: { as: "ann" } }])
      peer.emit("notification", "topic/joined", params);
    peer.emit("notification", "topic/joined", { topic: "den", member: { id: "bob" } });
    await vi.waitFor(() => expect(den.get().members).toEqual([{ id: "bob" }]));
  });
  expect(uncaught).toEqual([]);
  leave();
});

it("refuses an `open` that returns a promise, as `connect` does", async () => {
  vi.stubGlobal("window", {});
  const connection = providedPeerOf({ url: "ws://localhost", open: (async () => Promise.reject(FULL)) as any });
  const uncaught = await uncaughtIn(() => {
    expect(() => connection.get()).toThrow(new TypeError("`open` must be synchronous, and it returned a promise"));
  });
  vi.unstubAllGlobals();
  expect(uncaught).toEqual([]);
});

it("opens a peer with a contract whose handlers are added later, and checks their params", async () => {
  const api = contract({ confirm: { params: z.object({ question: z.string() }), result: z.boolean() } });
  const server = await serve({ port: 0, methods: {} });
  vi.stubGlobal("window", {});
  const connection = providedPeerOf({
    url: server.url,
    options: { contract: api, reconnect: false },
    open: open as any,
  });
  const peer = connection.get();
  vi.unstubAllGlobals();
  peer.handle("confirm", () => true);
  await peer.opened;
  const [client] = server.peers;
  expect(await client!.request("confirm", { question: "tea?" })).toBe(true);
  await expect(client!.request("confirm", { question: 7 })).rejects.toMatchObject({ code: -32602 });
  await server.close();
});
