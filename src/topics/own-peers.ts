/** The peers of one node, by id and by principal, and what needs no broker: calls to them, notifications and closes. */
import type { CallOptions } from "../contract/contract.js";
import { ConnectionLostError } from "../message/errors.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";
import type { NodeHost } from "./host.js";
import type { PeerCalls, PrincipalCalls } from "./remote.js";

/** The peers of one node. As `calls` and `principals`, it is all that a server without an engine needs. */
export class OwnPeers implements PeerCalls, PrincipalCalls {
  readonly #host: NodeHost;
  readonly #changed: (principal: string, isHere: boolean) => void;
  readonly #byId = new Map<string, AnyPeer>();
  /** The peers of each principal, and when their clients were authenticated. */
  readonly #byPrincipal = new Map<string, Map<AnyPeer, number>>();
  readonly #principals = new Map<AnyPeer, string>();

  /** `changed`: a principal has its first peer here, or has none any more. */
  constructor(host: NodeHost, changed: (principal: string, isHere: boolean) => void = () => {}) {
    this.#host = host;
    this.#changed = changed;
  }

  /** A peer is open. `since`: when its client was authenticated. */
  opened(peer: AnyPeer, principal: string | undefined, since = performance.now()): void {
    this.#byId.set(peer.id, peer);
    if (principal === undefined) return;
    this.#principals.set(peer, principal);
    let peers = this.#byPrincipal.get(principal);
    if (peers === undefined) {
      this.#byPrincipal.set(principal, (peers = new Map()));
      this.#changed(principal, true);
    }
    peers.set(peer, since);
  }

  /** A peer is closed. */
  closed(peer: AnyPeer): void {
    this.#byId.delete(peer.id);
    const principal = this.#principals.get(peer);
    if (principal === undefined) return;
    this.#principals.delete(peer);
    const peers = this.#byPrincipal.get(principal)!;
    peers.delete(peer);
    if (peers.size > 0) return;
    this.#byPrincipal.delete(principal);
    this.#changed(principal, false);
  }

  get(id: string): AnyPeer | undefined {
    return this.#byId.get(id);
  }

  #find(id: string, method: string): AnyPeer {
    const peer = this.#byId.get(id);
    if (peer === undefined) throw new ConnectionLostError(method, "not-sent", NO_PEER);
    return peer;
  }

  async request(id: string, method: string, params: unknown, options: CallOptions = {}): Promise<unknown> {
    return connectionOf(this.#find(id, method)).outgoing.request(method, params, options);
  }

  notify(id: string, method: string, params: unknown): void {
    this.#byId.get(id)?.notify(method, params);
  }

  async close(id: string, code: number, reason: string): Promise<void> {
    await this.#find(id, "close").close(code, reason);
  }

  notifyAll(principal: string, method: string, params: unknown): void {
    for (const peer of this.#byPrincipal.get(principal)?.keys() ?? []) peer.notify(method, params);
  }

  /** Returns the ids of the peers of a principal. */
  idsOf(principal: string): string[] {
    return Array.from(this.#byPrincipal.get(principal)?.keys() ?? [], ({ id }) => id);
  }

  async find(principal: string): Promise<{ ids: string[]; isComplete: true }> {
    return { ids: this.idsOf(principal), isComplete: true };
  }

  async disconnect(principal: string, code: number, reason: string): Promise<{ closed: number; isComplete: true }> {
    return { closed: this.closeAll(principal, code, reason), isComplete: true };
  }

  /** Closes the peers of a principal whose clients were authenticated until `until`. Returns how many. */
  closeAll(principal: string, code: number, reason: string, until = Infinity): number {
    const peers = [...(this.#byPrincipal.get(principal) ?? [])].flatMap(([peer, since]) => (since > until ? [] : peer));
    this.#host.disconnected(principal, until);
    for (const peer of peers) peer.close(code, reason).catch((error: unknown) => this.#host.report(error));
    return peers.length;
  }
}

/** Why a call to an id that no peer of the node has was not sent. */
export const NO_PEER = new Error("no such peer");
