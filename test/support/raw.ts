/** A peer whose other side is the test, which records each text and feeds messages synchronously. */
import type { Link, LinkReceiver } from "../../src/message/transport.js";
import type { AnyPeer, CloseInfo } from "../../src/index.js";
import { Peer } from "../../src/index.js";
import { closeAtEnd, use, type AnyOptions } from "./pair.js";

/** The behaviour of the transport in points that the interface leaves open. */
export interface RawBehaviour {
  /** Called inside `send`, which returns its result. Default: returns true. */
  onSend?: (text: string, raw: { feed: (message: unknown) => void; cut: () => void }) => boolean | void;
  /** Whether `close` reports the end itself, or only `cut`. Default true. */
  endsOnClose?: boolean;
  /** Whether the other side is a reciproc peer. Default false. */
  isReciproc?: boolean;
  /** As `Link.afterRead`. */
  afterRead?: (then: () => void) => boolean;
}

export type RawPeer = ReturnType<typeof rawPeer>;

/** Makes a peer on a hand-made, synchronous transport. */
export function rawPeer(
  options: AnyOptions = {},
  { onSend, endsOnClose = true, isReciproc = false, afterRead }: RawBehaviour = {},
) {
  let receiver!: LinkReceiver;
  let ended = false;
  /** The texts that the peer sent. */
  const sent: string[] = [];
  /** The sent texts, parsed. */
  const messages = (): any[] => sent.map((text) => JSON.parse(text) as unknown);
  /** The arguments with which the peer closed its transport. */
  const closes: (readonly [code: number | undefined, reason: string | undefined])[] = [];
  const errors: unknown[] = [];
  /** Delivers a text, or the JSON of another value, to the peer inside this call. */
  const feed = (message: unknown): void =>
    receiver.receive(typeof message === "string" ? message : JSON.stringify(message));
  /** Ends the connection from outside. */
  const cut = (info?: Partial<CloseInfo>): void => {
    if (ended) return;
    ended = true;
    receiver.closed({ code: 1006, reason: "", ...info });
  };
  const transport: Link = {
    isReciproc,
    ...(afterRead && { afterRead }),
    start: (given) => (receiver = given),
    send: (text: string) => {
      sent.push(text);
      return onSend?.(text, { feed, cut }) ?? true;
    },
    close: (code, reason) => {
      closes.push([code, reason]);
      if (endsOnClose) cut({ code: code ?? 1000, reason: reason ?? "" });
    },
  };
  const peer: AnyPeer = new Peer(transport, { use, ...options });
  peer.on("error", (error) => errors.push(error));
  closeAtEnd(peer, () => {
    void peer.close();
    cut();
  });
  return { peer, sent, messages, closes, errors, feed, cut };
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
