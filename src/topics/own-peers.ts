/** The peers of one node, by id and by principal, and what needs no broker: calls to them, notifications and closes. */
import type { CallOptions } from "../contract/contract.js";
import { ConnectionLostError } from "../message/errors.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";
import type { PeerCalls } from "./remote.js";

/** The server of the peers. */
export interface PeersHost {
  /** The peers of a principal are closed. Clients of it may still be on their way to become peers. */
  disconnected(principal: string): void;
  /** Takes an error that has no caller. */
  report(error: unknown): void;
}

export class OwnPeers implements PeerCalls {
  readonly #host: PeersHost;
  readonly #byId = new Map<string, AnyPeer>();
  readonly #byPrincipal = new Map<string, Set<AnyPeer>>();
  readonly #principals = new Map<AnyPeer, string>();

  constructor(host: PeersHost) {
    this.#host = host;
  }

  /** A peer is open. */
  opened(peer: AnyPeer, principal: string | undefined): void {
    this.#byId.set(peer.id, peer);
    if (principal === undefined) return;
    this.#principals.set(peer, principal);
    let peers = this.#byPrincipal.get(principal);
    if (peers === undefined) this.#byPrincipal.set(principal, (peers = new Set()));
    peers.add(peer);
  }

  /** A peer is closed. */
  closed(peer: AnyPeer): void {
    this.#byId.delete(peer.id);
    const principal = this.#principals.get(peer);
    if (principal === undefined) return;
    this.#principals.delete(peer);
    const peers = this.#byPrincipal.get(principal)!;
    peers.delete(peer);
    if (peers.size === 0) this.#byPrincipal.delete(principal);
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
    for (const peer of this.#byPrincipal.get(principal) ?? []) peer.notify(method, params);
  }

  /** Returns the ids of the peers of a principal. */
  idsOf(principal: string): string[] {
    return Array.from(this.#byPrincipal.get(principal) ?? [], ({ id }) => id);
  }

  async find(principal: string): Promise<{ ids: string[]; unheard: [] }> {
    return { ids: this.idsOf(principal), unheard: [] };
  }

  async disconnect(principal: string, code: number, reason: string): Promise<{ closed: number; unheard: [] }> {
    return { closed: this.closeAll(principal, code, reason), unheard: [] };
  }

  /** Closes the peers of a principal. Returns how many. */
  closeAll(principal: string, code: number, reason: string): number {
    const peers = [...(this.#byPrincipal.get(principal) ?? [])];
    this.#host.disconnected(principal);
    for (const peer of peers) peer.close(code, reason).catch((error: unknown) => this.#host.report(error));
    return peers.length;
  }
}

export const NO_PEER = new Error("no such peer");
