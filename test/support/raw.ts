/** Peers whose other side is the test, over the one double of a transport, and the messages that the test feeds. */
import type { Link, LinkReceiver } from "../../src/message/transport.js";
import { Peer, type AnyPeer, type CloseInfo } from "../../src/index.js";
import { closeAtEnd, use, type AnyOptions } from "./pair.js";

/** The behaviour of the double in points that the interface leaves open, and members in place of its own. */
export type RawBehaviour = Partial<Link> & Partial<Pick<TestLink, "onSend" | "endsOnClose">>;

/** A synchronous transport without a queue. As that of a session, it continues after a lost socket. */
export class TestLink implements Link {
  isReciproc = false;
  isConnecting = false;
  maxMessageBytes: number | undefined;
  unsentBytes = 0;
  /** Whether `close` reports the end itself, or only `end`. */
  endsOnClose = true;
  /** Called inside `send`, which returns its result. Default: true. */
  onSend: ((text: string, link: TestLink) => boolean | void) | undefined;
  receiver!: LinkReceiver;
  readonly sent: string[] = [];
  readonly closes: CloseInfo[] = [];
  /** The bytes that the peer buffers for the other side, as it reported them. */
  kept = 0;
  #hasEnded = false;

  constructor(behaviour: RawBehaviour = {}) {
    Object.assign(this, behaviour);
  }

  start(receiver: LinkReceiver): void {
    this.receiver = receiver;
  }

  send(text: string): unknown {
    if (Buffer.byteLength(text) > (this.maxMessageBytes ?? Infinity)) return false;
    this.sent.push(text);
    return this.onSend?.(text, this) ?? true;
  }

  keeps(by: number): void {
    this.kept += by;
  }

  close(code = 1000, reason = "", retryMs?: number): void {
    this.closes.push({ code, reason, ...(retryMs !== undefined && { retryMs }) });
    if (this.endsOnClose) this.end({ code, reason });
  }

  /** Delivers a text, or the JSON of another value, inside this call. */
  readonly feed = (message: unknown): void =>
    this.receiver.receive(typeof message === "string" ? message : JSON.stringify(message));

  /** Ends the transport for good, by default as one that is lost. */
  readonly end = (info?: Partial<CloseInfo>): void => {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.receiver.closed({ code: 1006, reason: "", ...info });
  };

  suspend(): void {
    this.receiver.suspended();
  }

  resume(): void {
    this.receiver.resumed();
  }

  lose(error: Error): void {
    this.receiver.lost(error);
  }
}

export type RawPeer = ReturnType<typeof rawPeer>;

export function rawPeer(options: AnyOptions = {}, behaviour?: RawBehaviour) {
  const link = new TestLink(behaviour);
  const { sent, closes, feed, end: cut } = link;
  /** The sent texts, parsed. */
  const messages = (): any[] => sent.map((text) => JSON.parse(text) as unknown);
  /** Returns the messages sent since the last call. */
  const take = (): any[] => sent.splice(0).map((text) => JSON.parse(text) as unknown);
  const errors: unknown[] = [];
  const peer: AnyPeer = new Peer(link, { use, ...options });
  peer.on("error", (error) => errors.push(error));
  closeAtEnd(peer, () => {
    void peer.close();
    cut();
  });
  return { peer, link, sent, messages, take, closes, errors, feed, cut };
}

export type SessionPeer = ReturnType<typeof sessionPeer>;

/** Makes a peer whose connection is open. With `isConnecting`, the first `resume` of the transport opens it. */
export function sessionPeer(options: AnyOptions = {}, behaviour?: RawBehaviour) {
  const { peer, link: transport, take, errors } = rawPeer(options, behaviour);
  /** The connection events, in order, with the peer's state during each. */
  const events: string[] = [];
  for (const name of ["suspend", "lost", "resume", "close"] as const)
    peer.on(name, () => events.push(`${name} (${peer.state})`));
  return { peer, transport, take, events, errors };
}

export function request(id: unknown, method: string, params?: unknown): object {
  return { jsonrpc: "2.0", id, method, ...(params !== undefined && { params }) };
}

export function notification(method: string, params?: unknown): object {
  return { jsonrpc: "2.0", method, ...(params !== undefined && { params }) };
}

export function result(id: unknown, value: unknown): object {
  return { jsonrpc: "2.0", id, result: value };
}

export function failure(id: unknown, code: number, message: string, data?: unknown): object {
  return { jsonrpc: "2.0", id, error: { code, message, ...(data !== undefined && { data }) } };
}
