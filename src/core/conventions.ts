/**
 * The one seam between the core and the features that stand on it: cancelling, progress and streams. The core calls these
 * where a call begins, is given up, or is answered, and knows nothing of how they are spelled.
 */
import type { Slot } from "./batch.js";
import type { CallContext } from "./context.js";
import type { Connection } from "./connection.js";
import type { CallOptions } from "./contract.js";
import type { NotificationMessage, RequestMessage } from "./message.js";
import type { PendingCall } from "./pending.js";
import type { Frame, Ticket } from "./transport.js";

/** The features of one connection; made when first needed, so that an idle one has none. */
export interface Conventions {
  /** A call that was sent is given up: by its signal or by its timeout. */
  cancel(call: PendingCall, reason: unknown): void;
  /** Changes params so that they ask for reports of this call, and sees to it that they come. Throws for params that cannot. */
  askProgress(call: PendingCall, params: unknown): unknown;
  /**
   * Returns the text of a held message as it is to leave, now that it is known what the other side understands; `undefined`
   * if nothing is to leave.
   */
  decide(text: string, ticket: Ticket): string | undefined;
  /** What the handler of a call that came with these params reports progress by. Does nothing where nobody asked. */
  reporter(context: CallContext, params: unknown): (value: unknown) => void;
  /** Takes a message whose method is among `Config.controls`; false when it is not about anything here. Never behind a handler, under no limit. */
  control(message: RequestMessage | NotificationMessage, slot: Slot | undefined): boolean;
  /** The answer to a call did not leave: nobody will read the streams in it. */
  unsent(context: CallContext): void;
  /** Made when first needed. */
  readonly streams: Streaming;
  /** The connection has a socket again. */
  resumed(): void;
  /** The connection is over. */
  end(reason: unknown): void;
  /** How full its tables are. */
  counts(): { streams: number; progress: number };
}

/** The streams of one connection, in both directions. */
export interface Streaming {
  /** Serves the iterable that is a call's result, and promises what makes, right before it is sent, the JSON that stands for it. Where nobody waits for that, stops it and rejects. `frame`: what the call came in; by default the frame that is received at present. */
  serve(source: AsyncIterable<unknown>, context: CallContext, frame?: Frame): Promise<() => string>;
  /** Encodes a request or an answer that may hold streams that were offered. Those in a request end with its call. Where nobody waits for the answer, stops them and throws. */
  encode(owner: PendingCall | CallContext, encode: () => string, frame?: Frame): string;
  /** Calls, and reads the result as a stream. */
  call(method: string, params: unknown, options: CallOptions | undefined): AsyncIterable<unknown>;
  /** Reads a stream that came in a message. */
  iterate(stream: unknown): AsyncIterable<unknown>;
  /** A message came in `frame`, before it is processed: called while streams are read. */
  note(message: unknown, frame: Frame | undefined): void;
  /** Makes a stream to send, and has the connection's messages encoded here from now on. */
  offer(source: unknown): object;
}

/** Makes the conventions of a connection. */
export type MakeConventions = (connection: Connection) => Conventions;
