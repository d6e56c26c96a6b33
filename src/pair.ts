/** Two connected peers in memory, for tests and for two parts of one program. */
import type { ContractOptions } from "./contract/checks.js";
import type { AnyMethods, Contract } from "./contract/contract.js";
import { Peer, type Context, type Options } from "./peer/peer.js";
import { peerLimits } from "./message/limits.js";
import { PlainLink } from "./socket/plain.js";
import { memorySockets } from "./socket/memory.js";

/**
 * Makes two connected peers: the first serves `A` and calls `B`, the second serves `B` and calls `A`. Messages are encoded and parsed as
 * on a network, and arrive in a microtask. If one peer closes, both close. Throws a `TypeError` for bad options.
 */
export function pair<A extends Contract<A> = AnyMethods, B extends Contract<B> = AnyMethods>(
  a: NoInfer<Options<A, Context<A, B>>> & ContractOptions<A, B>,
  b: NoInfer<Options<B, Context<B, A>>> & ContractOptions<B, A>,
): [Peer<A, B>, Peer<B, A>] {
  return pairOf<A, B>(Peer, a, b);
}

/** Makes two connected peers of a class. */
export function pairOf<A extends Contract<A>, B extends Contract<B>>(
  PeerClass: typeof Peer,
  a: NoInfer<Options<A, Context<A, B>>> & ContractOptions<A, B>,
  b: NoInfer<Options<B, Context<B, A>>> & ContractOptions<B, A>,
): [Peer<A, B>, Peer<B, A>] {
  const [left, right] = memorySockets(peerLimits(a.limits).maxMessageBytes, peerLimits(b.limits).maxMessageBytes);
  return [new PeerClass<A, B>(new PlainLink(left, true), a), new PeerClass<B, A>(new PlainLink(right, true), b)];
}
