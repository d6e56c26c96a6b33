/** A peer whose transport outlives its connections. The test suspends and resumes it, and loses its connection. */
import type { Link, LinkReceiver } from "../../src/message/transport.js";
import type { AnyPeer, CloseInfo } from "../../src/index.js";
import { Peer } from "../../src/index.js";
import { closeAtEnd, use, type AnyOptions } from "./pair.js";

/** A transport whose socket a test takes away and gives back, as that of a session. */
export class SessionTransport implements Link {
  /** A test with another server sets it before `resume`. */
  isReciproc: boolean;
  readonly isConnecting: boolean;
  maxMessageBytes: number | undefined;
  unsentBytes = 0;
  /** The texts that were sent. */
  readonly sent: string[] = [];
  readonly closes: CloseInfo[] = [];
  /** The bytes that the peer buffers for the other side, as it reported them. */
  kept = 0;
  /** Called inside `send`, when a text is sent. */
  onSend: (text: string) => void = () => {};
  #receiver!: LinkReceiver;
  #isClosed = false;

  constructor(isReciproc: boolean, isConnecting: boolean) {
    this.isReciproc = isReciproc;
    this.isConnecting = isConnecting;
  }

  start(receiver: LinkReceiver): void {
    this.#receiver = receiver;
  }

  send(text: string): boolean {
    if (this.#isClosed || Buffer.byteLength(text) > (this.maxMessageBytes ?? Infinity)) return false;
    this.sent.push(text);
    this.onSend(text);
    return true;
  }

  keeps(by: number): void {
    this.kept += by;
  }

  close(code = 1000, reason = "", retryMs?: number): void {
    this.closes.push({ code, reason, ...(retryMs !== undefined && { retryMs }) });
    this.end({ code, reason });
  }

  /** Delivers a text, or the JSON of another value, to the peer. */
  feed(message: unknown): void {
    this.#receiver.receive(typeof message === "string" ? message : JSON.stringify(message));
  }

  suspend(): void {
    this.#receiver.suspended?.();
  }

  resume(): void {
    this.#receiver.resumed?.();
  }

  lose(error: Error): void {
    this.#receiver.lost(error);
  }

  /** Ends the transport for good. */
  end(info: CloseInfo): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#receiver.closed(info);
  }
}

export type SessionPeer = ReturnType<typeof sessionPeer>;

/** Makes a peer whose connection is open. `isConnecting`: the first `resume` of the transport opens it. */
export function sessionPeer(options: AnyOptions = {}, { isReciproc = false, isConnecting = false } = {}) {
  const transport = new SessionTransport(isReciproc, isConnecting);
  const peer: AnyPeer = new Peer(transport, { use, ...options });
  closeAtEnd(peer, () => void peer.close());
  /** The connection events, in order, with the peer's state during each. */
  const events: string[] = [];
  const errors: unknown[] = [];
  for (const name of ["suspend", "lost", "resume", "close"] as const)
    peer.on(name, () => events.push(`${name} (${peer.state})`));
  peer.on("error", (error) => errors.push(error));
  /** Returns the messages sent since the last call. */
  const take = (): any[] => transport.sent.splice(0).map((text) => JSON.parse(text) as unknown);
  return { peer, transport, take, events, errors };
}
