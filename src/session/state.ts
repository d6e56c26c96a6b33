/** The parts of an endpoint: its limits, the wire that it writes to, the hooks that it calls, and its states. */
import type { CloseInfo, EncodedFrame } from "../core/transport.js";
import type { SessionLimits } from "./frames.js";
import type { Session } from "./session.js";

/** The limits of an end. */
export interface EndpointLimits extends SessionLimits {
  /** The high-water mark. Above this number of unsent bytes, no message is taken, so that it can be cancelled as not sent. */
  readonly highWaterBytes: number;
  /** Whether this end takes binary frames, as its hello says it. Then `readBytes` reads them, as `BytesCodec.read`. */
  readonly bytes?: true | undefined;
  readonly readBytes?: ((frame: Uint8Array) => unknown) | undefined;
}

/** The destination of an endpoint's frames. A socket is one. */
export interface Wire {
  /** Whether the wire takes frames. */
  readonly open: boolean;
  /** Bytes that were written and not sent yet. */
  readonly unsentBytes: number;
  /** Writes one frame, which may be encoded for many wires, and may be binary. Returns false if the wire takes none. */
  send(frame: string | Uint8Array | EncodedFrame): boolean;
  /** Writes several frames at once. */
  sendAll?(frames: readonly string[]): void;
}

/** Decides when the frames of a tick are sent. */
export interface Tick {
  /** Counts a message. `length`: that of all messages that wait. Returns whether they are sent now. */
  added(length: number): boolean;
  /** Notes that frames wait. */
  schedule(): void;
}

/** The functions that an endpoint calls. */
export interface EndpointHooks {
  /** Takes a frame of an other side that sends no packs: one message or one batch. */
  receiveText(text: string): void;
  /** Takes the messages of a pack. */
  receivePack(messages: unknown[]): void;
  /** Calls `flush` of the endpoint at the end of the tick, and decides what is sent before. */
  readonly tick: Tick;
  /** Reports that something waits because the wire is full. When that has drained, the caller calls `drained`. */
  wireFull?(): void;
  /** Takes the number of messages that the other side has dropped since its last report. */
  missed?(count: number): void;
  /** Reports that messages are taken again, after `send` has returned `"full"`. */
  drained?(): void;
  /** Reports that messages flow, for the first time or again. */
  flows(): void;
  /** Reports that the connection has ended. `isRemote`: the other side ended it, and closes the socket. */
  ended(end: CloseInfo, isRemote: boolean): void;
  /** Reports that the other side does not have the session. The socket stays open without it. On a client, a new session can begin there. */
  discarded(reason: string): void;
  /** Server: reports that the client has the newest token (rule 4). */
  confirmed?(): void;
  /** Takes a control frame that the endpoint does not know. */
  control?(frame: object): void;
}

/** The states of `docs/PROTOCOL.md`. */
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
  /** There is a session, and no socket, or a client waits for the hello on a new socket. Messages are queued. */
  | { readonly kind: "suspended"; readonly session: Session }
  /** Client: `resume` is sent, and `resumed` has not come. Messages are queued. */
  | { readonly kind: "resuming"; readonly session: Session }
  /** The connection has ended: nothing more is read or sent. */
  | { readonly kind: "ended"; readonly session: undefined; readonly end: CloseInfo };
