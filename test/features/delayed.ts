/** Two peers joined by a link with latency, under a fake clock. */
import { Peer, type AnyPeer, type Receiver, type Transport } from "../../src/index.js";
import type { AnyOptions } from "../support/pair.js";

/** Two peers and what passed between them. */
export interface Delayed {
  readonly a: AnyPeer;
  readonly b: AnyPeer;
  /** The messages sent, each with its sender and time. */
  readonly sent: { from: "a" | "b"; at: number; message: any }[];
}

/** Joins two peers by a link that delays each message by `delayMs`, independent of its load. */
export function delayed(delayMs: number, ofA: AnyOptions, ofB: AnyOptions = {}): Delayed {
  const sent: Delayed["sent"] = [];
  const receivers: Record<"a" | "b", Receiver | undefined> = { a: undefined, b: undefined };
  const line = (from: "a" | "b", to: "a" | "b"): Transport => ({
    isReciproc: true,
    start: (receiver) => (receivers[from] = receiver),
    send: (text) => {
      sent.push({ from, at: performance.now(), message: JSON.parse(text) });
      setTimeout(() => receivers[to]!.receive(text), delayMs);
      return true;
    },
    close: (code = 1000, reason = "") => {
      for (const side of [from, to]) receivers[side]!.closed({ code, reason });
    },
  });
  return { a: new Peer(line("a", "b"), ofA), b: new Peer(line("b", "a"), ofB), sent };
}
