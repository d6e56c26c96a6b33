/** What an endpoint works with: its limits, the wire that it writes to, whom it reports to, and its states. */
import type { CloseInfo, EncodedFrame } from "../core/transport.js";
import type { SessionLimits } from "./frames.js";
import type { Session } from "./session.js";

/** What an end accepts and keeps. */
export interface EndpointLimits extends SessionLimits {
  /** Most that may be queued while there is no socket, as `SendQueue.length` counts it. */
  readonly queueLength: number;
  /** The same while there is a socket. A hard limit, because the connection checks how fast its other side reads. */
  readonly burstLength: number;
  /** While so many bytes are unsent, no message gets a number, so that a queued call can be cancelled and was not sent. */
  readonly highWaterBytes: number;
}

/** Where an endpoint writes. A socket is one. */
export interface Wire {
  /** Whether frames are taken. */
  readonly open: boolean;
  /** Bytes that were written and have not left. */
  readonly unsentBytes: number;
  /** Writes one frame, which may be encoded for many wires. */
  send(frame: string | EncodedFrame): boolean;
  /** Writes several frames at once, where it can. */
  sendAll?(frames: readonly string[]): void;
}

/** What an endpoint reports. */
export interface EndpointHooks {
  /** Takes a frame of a side that sends no packs: one message or one batch. */
  receiveText(text: string): void;
  /** Takes the messages of a pack. */
  receivePack(messages: unknown[]): void;
  /** Messages flow, for the first time or again. */
  flows(): void;
  /** The endpoint has ended the connection. `isRemote`: the other side did, and closes the socket. */
  ended(end: CloseInfo, isRemote: boolean): void;
  /** The other side does not have the session, and the socket goes on without it. On a client, a new one can begin there. */
  discarded(reason: string): void;
  /** Server: the client has the newest token (rule 4). */
  confirmed?(): void;
}

/** The states of `docs/PROTOCOL.md`. `session` is there in the states that have one. */
export type State =
  /** Client: there is no socket yet. Messages are queued. */
  | { readonly kind: "connecting"; readonly session: undefined }
  /** Client: the server's first frame decides. */
  | { readonly kind: "opening"; readonly session: undefined }
  /** Server: its hello is sent, and the client's may come. A server that keeps sessions has offered one. */
  | { readonly kind: "greeting"; readonly session: Session | undefined }
  /** The other side does not speak `reciproc.v1`. */
  | { readonly kind: "plain"; readonly session: undefined }
  /** Both sides speak it, and there is no session. */
  | { readonly kind: "packed"; readonly session: undefined }
  /** There is a session, and messages flow. */
  | { readonly kind: "live"; readonly session: Session }
  /** There is a session, and no socket, or one on which the server's hello is still to come. Messages are queued. */
  | { readonly kind: "suspended"; readonly session: Session }
  /** Client: `resume` is sent and not answered. Messages are queued. */
  | { readonly kind: "resuming"; readonly session: Session }
  /** The connection is over: nothing more is read, and nothing more leaves. */
  | { readonly kind: "ended"; readonly session: undefined; readonly end: CloseInfo };
