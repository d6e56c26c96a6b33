/** Links over sockets made by a test, without the driver and the registry. */
import { endpointLimits, longestFrame } from "../../src/session/sizes.js";
import { peerLimits } from "../../src/core/limits.js";
import type { CloseInfo, EncodedMessage, Transport } from "../../src/core/transport.js";
import type { Socket } from "../../src/link/socket.js";
import type { EndpointLimits } from "../../src/session/state.js";
import { HELLO, helloOf } from "../../src/session/frames.js";
import { PackedLink, type LinkDelegate } from "../../src/session/link.js";
import { ServerLink } from "../../src/server/link.js";

/** The limits of a peer that sets none. */
export const PEER_LIMITS = endpointLimits(peerLimits(undefined));

/** Returns a server's link that keeps no session. Its hello is sent. */
export function serverLink(socket: Socket, limits = PEER_LIMITS): ServerLink {
  socket.send(HELLO);
  const link = new ServerLink(limits, undefined);
  link.accept(socket, undefined);
  socket.maxFrameBytes = longestFrame(limits.maxMessageBytes);
  return link;
}

/** Returns a client's link without a session that has not received the server's hello. */
export function clientLink(socket: Socket, limits = PEER_LIMITS): PackedLink {
  const link = new PackedLink(limits, false, undefined);
  link.attach(socket, true, undefined, false);
  return link;
}

/** The events of a test's client, in order. */
export interface ClientNotes {
  suspended?(): void;
  flows?(isFresh: boolean): void;
  /** Returns true if the client begins a new connection. */
  over?(end: CloseInfo): boolean;
}

/** A client whose sockets are supplied by the test. */
export class TestClient implements LinkDelegate {
  link: PackedLink;
  readonly #limits: EndpointLimits;
  readonly #notes: ClientNotes;
  #isFresh = true;
  #hello: unknown;
  #isAgreed = true;

  /**
   * `hello`: the server's hello, `undefined` if it has not arrived, `"plain"` if the server speaks plain JSON-RPC.
   * `isAwaited`: as of `Endpoint.attach`.
   */
  constructor(socket: Socket, limits: EndpointLimits, notes: ClientNotes = {}, hello?: unknown, isAwaited = true) {
    this.#limits = limits;
    this.#notes = notes;
    this.link = this.#makeLink();
    this.attach(socket, hello, isAwaited);
  }

  /** True if there is a session to resume. */
  get isResumable(): boolean {
    return this.link.endpoint.state.session !== undefined;
  }

  /** Attaches the next socket. `hello`, `isAwaited`: as in the constructor. */
  attach(socket: Socket, hello?: unknown, isAwaited = true): void {
    this.#isAgreed = hello !== "plain";
    this.#hello = this.#isAgreed ? hello : undefined;
    this.link.attach(socket, this.#isAgreed, this.#hello, isAwaited);
  }

  /** Attaches the next socket as the driver does: after the server's first frame, which the socket buffers for the link. */
  dial(socket: Socket): void {
    const frame = (text: string): void => {
      this.attach(socket, helloOf(text) ?? "plain");
      if (this.link.socket !== undefined) this.link.frame(text);
    };
    socket.start({ frame, closed() {} });
  }

  flows(): void {
    this.#notes.flows?.(this.#isFresh);
    this.#isFresh = false;
  }

  suspended(): void {
    this.#notes.suspended?.();
  }

  succeed(end: CloseInfo): PackedLink | undefined {
    if (this.#notes.over?.(end) === false) return undefined;
    return (this.link = this.#makeLink(this.link));
  }

  discarded(reason: string): void {
    const before = this.link;
    this.link = this.#makeLink(before);
    before.handOver(this.link, reason, this.#isAgreed, this.#hello);
  }

  #makeLink(lost?: PackedLink): PackedLink {
    this.#isFresh = true;
    return new PackedLink(this.#limits, true, this, lost);
  }
}

/** Returns the length of what a client logs and queues. */
export function heldBy({ endpoint }: PackedLink): number {
  return (endpoint.state.session?.logLength ?? 0) + endpoint.queuedLength;
}

/** Sends a message that is encoded for many peers. */
export function sendEncoded(transport: Transport, message: EncodedMessage): boolean {
  return transport.send(message.text, undefined, message) === true;
}
