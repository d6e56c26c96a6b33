/** The parts of an endpoint: its limits, its states, and what belongs to one socket. */
import type { CloseInfo, EncodedMessage } from "../message/transport.js";
import type { Socket } from "../socket/socket.js";
import type { SessionLimits } from "./frames.js";
import type { AckDue, Session } from "./session.js";

/** The limits of an end. */
export interface EndpointLimits extends SessionLimits {
  /** The high-water mark. Above this number of unsent bytes, no message is taken, so that it can be cancelled as not sent. */
  readonly highWaterBytes: number;
  /** Whether this end takes binary frames, as its hello says it. Then `readBytes` reads them, as `BytesCodec.read`. */
  readonly bytes?: true | undefined;
  readonly readBytes?: ((frame: Uint8Array) => unknown) | undefined;
}

/** The states of a connection with an attachment. `docs/PROTOCOL.md` defines those of a session. */
export type AttachedKind =
  /** A client waits for `resumed`, or the link has only just got the socket. Messages are queued. */
  | "resuming"
  /** Client: it has read no frame yet, which decides. Messages are sent in plain frames. */
  | "undecided"
  /** Server: its hello is sent, and the client's may come. A server that keeps sessions has offered one. */
  | "greeting"
  /** The other side does not speak `reciproc.v1`. */
  | "plain"
  /** Both sides speak it, and there is no session. */
  | "sessionless"
  /** There is a session, and messages flow. */
  | "live";

/** What belongs to one socket of a connection, and ends with it. */
export class Attachment {
  declare kind: AttachedKind;
  declare session: Session | undefined;
  declare readonly socket: Socket;
  /** The frames for the end of the tick: the control frames, and then the messages, in one pack if this end packs. */
  declare controls: string[] | undefined;
  /** Only a server, which always packs, has messages for many peers. */
  declare messages: (string | EncodedMessage)[] | undefined;
  /** The length of the messages of this tick, in a pack. */
  declare length: number;
  /** When an ack is sent; `undefined` if none is due. */
  declare ackDue: AckDue | undefined;
  /** Client: whether its hello is not sent yet. It is sent before the first other frame. */
  declare owesHello: boolean;
  /** Client: the content of the server's hello, until messages flow; `undefined` if its first frame is none, or did not come with the socket. */
  declare hello: unknown;

  constructor(socket: Socket, kind: AttachedKind, session: Session | undefined) {
    this.kind = kind;
    this.session = session;
    this.socket = socket;
    this.controls = this.messages = this.ackDue = this.hello = undefined;
    this.length = 0;
    this.owesHello = false;
  }
}

/** The states of a connection. It is suspended if it has a session and no attachment. */
export type State =
  /** Client: the connection has no socket yet. Messages are queued. */
  | { readonly kind: "connecting"; readonly session?: undefined; readonly socket?: undefined }
  | Attachment
  /** There is a session, and no socket. Messages are queued. */
  | { readonly kind: "suspended"; readonly session: Session; readonly socket?: undefined }
  /** Nothing more is read or sent. `socket`: while it closes. `wasFlowing`: whether messages flowed when the connection ended. */
  | {
      readonly kind: "ended";
      readonly session?: undefined;
      socket: Socket | undefined;
      readonly end: CloseInfo;
      readonly wasFlowing: boolean;
    };
