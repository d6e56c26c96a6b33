/** The parts of an endpoint: its limits, the wire that it writes to, and its states. */
import type { CloseInfo } from "../core/transport.js";
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
  /** Writes one frame, which may be binary. Returns false if the wire takes none. */
  send(frame: string | Uint8Array): boolean;
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
