/** Two peers joined by every kind of link that matters to the features, with all messages sent. */
import { afterEach, expect } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { connect, ErrorCode, Peer, serve, type AnyPeer, type Transport } from "../../src/node.js";
import { plain } from "../../src/link/plain.js";
import { inspect } from "../../src/peer/peer.js";
import { memorySockets } from "../../src/sockets/memory.js";
import { testServer } from "../../src/testing/index.js";
import { clientLink, serverLink } from "../support/links.js";
import type { AnyOptions } from "../support/pair.js";
import { turn } from "../support/turns.js";

/** One message and its sender. */
export interface Sent {
  readonly from: "a" | "b";
  readonly message: any;
}

/** Two peers that must leave no pending state. */
export interface Joined extends AsyncDisposable {
  readonly a: AnyPeer;
  readonly b: AnyPeer;
  /** All messages sent so far, except those of `settled`. */
  readonly sent: readonly Sent[];
  /** Returns the messages of one side with this method or this id. */
  from(side: "a" | "b", methodOrId: unknown): any[];
  /** Resolves when all sent messages have been handled. */
  settled(): Promise<void>;
  /** Returns the `error` events of both peers since the last call. Unread ones fail the test at its end. */
  takeErrors(): unknown[];
}

/** A way to join two peers. If one is a server, it is `a`. */
export type Join = (ofA?: Omit<AnyOptions, "around">, ofB?: AnyOptions) => Promise<Joined>;

const MAX = 2 ** 20;
const SYNC = "a test waits for this";

/** Joined in memory, each message unchanged. */
export const overMemory: Join = async (ofA = {}, ofB = {}) => {
  const [left, right] = memorySockets(MAX, MAX);
  return joined(plain(left, true), plain(right, true), ofA, ofB);
};

/** The same, but as plain JSON-RPC peers: extensions are used only if a dialect was chosen. */
export const asPlainPeers: Join = async (ofA = {}, ofB = {}) => {
  const [left, right] = memorySockets(MAX, MAX);
  return joined(plain(left), plain(right), ofA, ofB);
};

/** Joined in memory by `reciproc.v1`. */
export const overPacks: Join = async (ofA = {}, ofB = {}) => {
  const [left, right] = memorySockets(MAX, MAX);
  const both = joined(serverLink(left), clientLink(right), ofA, ofB);
  await turn();
  return both;
};

/** A server and a client of it, over a real WebSocket. */
export const overWs: Join = async (ofA = {}, ofB = {}) => {
  const server = await serve({ port: 0, ...ofA });
  const welcome = new Promise<AnyPeer>((resolve) => server.once("peer", (peer) => resolve(peer)));
  const b: AnyPeer = await connect(server.url, ofB);
  const a = await welcome;
  return watched(a, b, [], () => server.close());
};

/** A server in memory, and a client of it that has a session, over a network that a test controls. */
export const overTestServer: Join = async (ofA = {}, ofB = {}) => {
  const { server, connect: connectInMemory } = testServer(ofA);
  const welcome = new Promise<AnyPeer>((resolve) => server.once("peer", (peer) => resolve(peer)));
  const b: AnyPeer = await connectInMemory(server.url, ofB);
  return watched(await welcome, b, [], () => server.close());
};

/** All ways, by name. Messages are recorded in memory only. */
export const everyWay: [string, Join][] = [
  ["in memory", overMemory],
  ["over packs", overPacks],
  ["over ws", overWs],
  ["of a test server", overTestServer],
];

function joined(left: Transport, right: Transport, ofA: Omit<AnyOptions, "around">, ofB: AnyOptions): Joined {
  const sent: Sent[] = [];
  return watched(new Peer(spied(left, "a", sent), ofA), new Peer(spied(right, "b", sent), ofB), sent, async () => {});
}

function spied(transport: Transport, from: Sent["from"], sent: Sent[]): Transport {
  const send = transport.send.bind(transport);
  transport.send = (text) => {
    const message: any = JSON.parse(text);
    // The method is not served, so its answers are these errors.
    if (message.method !== SYNC && message.error?.code !== ErrorCode.MethodNotFound) sent.push({ from, message });
    return send(text);
  };
  return transport;
}

function watched(a: AnyPeer, b: AnyPeer, sent: Sent[], end: () => Promise<void>): Joined {
  const errors: unknown[] = [];
  for (const peer of [a, b]) peer.on("error", (error) => errors.push(error));
  return {
    a,
    b,
    sent,
    from: (side, key) =>
      sent.flatMap(({ from, message }) =>
        from === side && (message.method === key || (message.method === undefined && message.id === key))
          ? message
          : [],
      ),
    async settled() {
      for (let i = 0; i < 3; i++) {
        await Promise.allSettled([a.request(SYNC), b.request(SYNC)]);
        await turn();
      }
    },
    takeErrors: () => errors.splice(0),
    async [Symbol.asyncDispose]() {
      await Promise.all([a.close(), b.close()]);
      await end();
      // Lets handlers finish after their signals aborted.
      await turn();
      expectNothingOpen(a, b);
      expect(errors).toEqual([]);
    },
  };
}

/** Waits until the condition holds. Otherwise the test times out. */
export async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await turn();
}

/** Asserts after each test of the file that no deadline is pending. */
export function expectNoDeadlines(): void {
  afterEach(() => expect(countDeadlines()).toEqual({ waiting: 0, armed: false }));
}

/** Asserts that neither side serves a stream, has a pending call, runs a handler or awaits reports. */
export function expectIdle({ a, b }: Joined): void {
  expectNothingOpen(a, b);
}

function expectNothingOpen(...peers: AnyPeer[]): void {
  for (const peer of peers) {
    expect(inspect(peer)).toMatchObject({ pending: 0, openBatches: 0, running: 0, streams: 0, progress: 0 });
  }
}

/** Reads a stream to its end. */
export async function readAll(stream: AsyncIterable<unknown>): Promise<unknown[]> {
  const values: unknown[] = [];
  for await (const value of stream) values.push(value);
  return values;
}
