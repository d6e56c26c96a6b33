/** Serving streams to a test, which is the other side. */
import { inspect } from "../../src/peer/peer.js";
import type { AnyOptions } from "../support/pair.js";
import { notification, rawPeer, request, result, type RawBehaviour, type RawPeer } from "../support/raw.js";
import { turn } from "../support/turns.js";

export const next = (id: unknown, token: unknown): object => request(id, "$/enumerator/next", { token });
export const abort = (token: unknown): object => notification("$/enumerator/abort", { token });
export const cancel = (id: unknown): object => notification("$/cancelRequest", { id });
export const more = (id: unknown, values: unknown[], finished = false): object => result(id, { values, finished });
export const NO_SUCH_STREAM = [-32001, "No such stream"] as const;

/** Returns a peer that serves `source` as `tail`. */
export function tailing(source: unknown, options: AnyOptions = {}, behaviour: RawBehaviour = {}): RawPeer {
  return rawPeer({ ...options, methods: { tail: () => source, ...options.methods } }, behaviour);
}

/** Feeds messages, and waits after each until it was handled. */
export async function feed(raw: RawPeer, ...messages: unknown[]): Promise<void> {
  for (const message of messages) {
    raw.feed(message);
    await turn();
  }
}

/** Returns the messages that the peer sends in answer. */
export async function answersTo(raw: RawPeer, ...messages: unknown[]): Promise<any[]> {
  const before = raw.sent.length;
  await feed(raw, ...messages);
  return raw.messages().slice(before);
}

export const streamsOf = ({ peer }: RawPeer): number => inspect(peer).streams;
