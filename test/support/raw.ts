/** A peer whose other side is the test, which records each text and feeds messages synchronously. */
import type { AnyPeer, CloseInfo, Receiver, Transport } from "../../src/index.js";
import { Peer } from "../../src/index.js";
import { closeAtEnd, type AnyOptions } from "./pair.js";

/** The test's end of the connection. */
export interface RawPeer {
  readonly peer: AnyPeer;
  /** The texts that the peer sent. */
  readonly sent: string[];
  /** The sent texts, parsed. */
  readonly messages: () => any[];
  /** The arguments with which the peer closed its transport. */
  readonly closes: (readonly [code: number | undefined, reason: string | undefined])[];
  /** The `error` events of the peer. */
  readonly errors: unknown[];
  /** Delivers a text, or the JSON of another value, to the peer inside this call. */
  readonly feed: (message: unknown) => void;
  /** Ends the connection from outside. */
  readonly cut: (info?: Partial<CloseInfo>) => void;
}

/** The behaviour of the transport in points that the interface leaves open. */
export interface RawBehaviour {
  /** Called inside `send`, which returns its result. Default: returns true. */
  onSend?: (text: string, raw: RawPeer) => boolean | void;
  /** Whether `close` reports the end itself, or only `cut`. Default true. */
  endsOnClose?: boolean;
  /** Whether the other side is a reciproc peer. Default false. */
  isReciproc?: boolean;
  /** As `Transport.afterRead`. */
  afterRead?: (then: () => void) => boolean;
}

/** Makes a peer on a hand-made, synchronous transport. */
export function rawPeer(
  options: AnyOptions = {},
  { onSend, endsOnClose = true, isReciproc = false, afterRead }: RawBehaviour = {},
): RawPeer {
  let receiver!: Receiver;
  let ended = false;
  const sent: string[] = [];
  const closes: RawPeer["closes"] = [];
  const errors: unknown[] = [];
  const transport: Transport = {
    isReciproc,
    ...(afterRead && { afterRead }),
    start: (given) => (receiver = given),
    send: (text) => {
      sent.push(text);
      return onSend?.(text, raw) ?? true;
    },
    close: (code, reason) => {
      closes.push([code, reason]);
      if (endsOnClose) raw.cut({ code: code ?? 1000, reason: reason ?? "" });
    },
  };
  const peer: AnyPeer = new Peer(transport, options);
  peer.on("error", (error) => errors.push(error));
  const raw: RawPeer = {
    peer,
    sent,
    closes,
    errors,
    messages: () => sent.map((text) => JSON.parse(text) as unknown),
    feed: (message) => receiver.receive(typeof message === "string" ? message : JSON.stringify(message)),
    cut: (info) => {
      if (ended) return;
      ended = true;
      receiver.closed({ code: 1006, reason: "", ...info });
    },
  };
  closeAtEnd(peer, () => {
    void peer.close();
    raw.cut();
  });
  return raw;
}

/** Returns a request as it is sent on the wire. */
export function request(id: unknown, method: string, params?: unknown): object {
  return { jsonrpc: "2.0", id, method, ...(params !== undefined && { params }) };
}

/** Returns a notification as it is sent on the wire. */
export function notification(method: string, params?: unknown): object {
  return { jsonrpc: "2.0", method, ...(params !== undefined && { params }) };
}

/** Returns a result as it is sent on the wire. */
export function result(id: unknown, value: unknown): object {
  return { jsonrpc: "2.0", id, result: value };
}

/** Returns an error as it is sent on the wire. */
export function failure(id: unknown, code: number, message: string, data?: unknown): object {
  return { jsonrpc: "2.0", id, error: { code, message, ...(data !== undefined && { data }) } };
}
