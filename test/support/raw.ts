/** A peer whose other side is the test: it sees each text and feeds whatever it likes, at once. */
import type { AnyPeer, CloseInfo, Receiver, Transport } from "../../src/index.js";
import { Peer } from "../../src/index.js";
import type { AnyOptions } from "./pair.js";

/** The test's end of the connection. */
export interface RawPeer {
  readonly peer: AnyPeer;
  /** The texts that the peer sent. */
  readonly sent: string[];
  /** The same, parsed. */
  readonly messages: () => any[];
  /** What the peer closed its transport with. */
  readonly closes: (readonly [code: number | undefined, reason: string | undefined])[];
  /** What the peer emitted as `error`. */
  readonly errors: unknown[];
  /** Hands the peer a text, or the JSON of anything else, inside this call. */
  readonly feed: (message: unknown) => void;
  /** Ends the connection from outside. */
  readonly cut: (info?: Partial<CloseInfo>) => void;
}

/** How the transport behaves where the rules leave it a choice. */
export interface RawBehaviour {
  /** Called inside `send`; what it returns is what `send` does, true by default. */
  onSend?: (text: string, raw: RawPeer) => boolean | void;
  /** Whether the end is told inside `close`, or only by `cut`. Default true. */
  endsOnClose?: boolean;
  /** Whether it says that the other side is of this package. Default false. */
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
  return raw;
}

/** A request as it stands on the wire. */
export function request(id: unknown, method: string, params?: unknown): object {
  return { jsonrpc: "2.0", id, method, ...(params !== undefined && { params }) };
}

/** A notification as it stands on the wire. */
export function notification(method: string, params?: unknown): object {
  return { jsonrpc: "2.0", method, ...(params !== undefined && { params }) };
}

/** A result as it stands on the wire. */
export function result(id: unknown, value: unknown): object {
  return { jsonrpc: "2.0", id, result: value };
}

/** An error as it stands on the wire. */
export function failure(id: unknown, code: number, message: string, data?: unknown): object {
  return { jsonrpc: "2.0", id, error: { code, message, ...(data !== undefined && { data }) } };
}
