/** Two peers joined in memory, which must leave no state. */
import { expect } from "vitest";
import type { AnyMethods, AnyPeer, Context, Options } from "../../src/index.js";
import { batches, compat, pair, progress, schemas, streams } from "../../src/index.js";
import { turn } from "./turns.js";

export type AnyOptions = Options<AnyMethods, Context>;

export type ConnectedPair = ReturnType<typeof connected>;

/** Joins two peers. Disposing closes them, and asserts that their tables are empty and that all errors were read. */
export function connectedPair(ofA: AnyOptions = {}, ofB: AnyOptions = {}): ConnectedPair {
  return connected(...(pair({ use, ...ofA }, { use, ...ofB }) as [AnyPeer, AnyPeer]));
}

/** The features of the peers of tests. */
export const use = [streams, progress, batches, schemas, compat];

/** Returns two joined peers as such a pair. `end` ends what they do not close. */
export function connected(a: AnyPeer, b: AnyPeer, end?: () => Promise<unknown>) {
  const errors: unknown[] = [];
  for (const peer of [a, b]) peer.on("error", (error) => errors.push(error));
  return {
    a,
    b,
    /** Returns the `error` events of both peers since the last call. */
    takeErrors: () => errors.splice(0),
    async [Symbol.asyncDispose]() {
      await Promise.all([a.close(), b.close()]);
      await end?.();
      // Lets handlers finish after their signals aborted.
      await turn();
      expectEmpty(a);
      expectEmpty(b);
      expect(errors).toEqual([]);
    },
  };
}

/** Reads a stream to its end, into `values`, which it returns. */
export async function readAll(stream: AsyncIterable<unknown>, values: unknown[] = []): Promise<unknown[]> {
  for await (const value of stream) values.push(value);
  return values;
}

export function inBatch(peer: AnyPeer, method: string, params?: object): Promise<unknown> {
  const batch = peer.batch();
  const call = batch.request(method, params);
  batch.send();
  return call;
}

export function expectEmpty(peer: AnyPeer): void {
  expect(peer.stats()).toMatchObject({ pending: 0, running: 0, streams: 0 });
}

/** The peers made in the running test, each with the function that ends its connection. */
const made = new Map<AnyPeer, () => void>();

/** Registers a peer for `closeMade`. `end` closes the peer, also if its transport does not report its own end. */
export function closeAtEnd(peer: AnyPeer, end: () => void): void {
  made.set(peer, end);
}

/** Closes all peers made since the last call, and asserts that their tables are empty. `useVirtualClock` calls it after each test. */
export async function closeMade(): Promise<void> {
  const peers = [...made];
  made.clear();
  for (const [, end] of peers) end();
  await turn();
  for (const [peer] of peers) expectEmpty(peer);
}
