/**
 * The seam between the core and its extensions: cancelling, progress and streams. The core calls an extension where a call
 * begins, is given up, or is answered. It does not know how a dialect spells them.
 */
import type { Slot } from "./batch.js";
import type { MessageText } from "./codec.js";
import type { Connection } from "./connection.js";
import type { CallOptions } from "./contract.js";
import type { IncomingCall } from "./incoming-call.js";
import type { NotificationMessage, RequestMessage } from "./message.js";
import type { OutgoingCall } from "./outgoing-calls.js";
import type { Dialect } from "./dialect.js";
import type { AnyIterable } from "./promises.js";
import type { SendHandle } from "./transport.js";

/** The extensions of one connection. Made when first needed, so an idle connection has none. */
export interface Extensions {
  /** Whether a stream was offered: then `encode` encodes all messages of the connection. */
  readonly isOffering: boolean;
  /** Called with each message before it is processed, if it is there. */
  readonly note?: ((message: unknown) => void) | undefined;
  /** The streams that the other side reads. */
  readonly streams: { readonly size: number };
  readonly progress: {
    /** Returns params that ask for reports of a call. Throws for params that cannot. */
    ask(call: OutgoingCall, params: unknown): unknown;
    /** Returns the function by which a handler reports. It does nothing if the caller did not ask for reports. */
    reporterOf(call: IncomingCall): (value: unknown) => void;
  };
  /**
   * Takes a message whose method is among `Config.controlMethods`. Returns false if the message is not about anything here.
   * Control messages wait for no handler and count against no limit.
   */
  control(message: RequestMessage | NotificationMessage, slot: Slot): boolean;
  /** Cancels a call that was sent: its signal aborted, or its timeout passed. */
  cancel(call: OutgoingCall, reason: unknown): void;
  /**
   * Returns the text to send for a queued message, now that it is known what the other side understands; `undefined` if nothing
   * is to be sent.
   */
  rewriteQueued(text: MessageText, handle: SendHandle): MessageText | undefined;
  /**
   * Encodes the params of a request, or a result, which may hold streams. Streams in params end when the call is settled, and
   * streams in a result that is not sent. If the caller no longer waits for a result, throws.
   */
  encode(call: IncomingCall | OutgoingCall, content: unknown): MessageText;
  /**
   * Serves a stream that is the whole result of a call. The promise gives what makes, right before it is sent, the JSON that
   * stands for the stream. If the caller no longer waits, stops the stream and rejects.
   */
  serve(source: AnyIterable, call: IncomingCall): Promise<() => MessageText>;
  /** Calls a method, and reads its result as a stream. */
  stream(method: string, params: unknown, options: CallOptions | undefined): AsyncIterable<unknown>;
  /** Reads a stream that came in a message. */
  iterate(stream: unknown): AsyncIterable<unknown>;
  /** Makes a stream that a message can contain. */
  offer(source: unknown): object;
  /** The connection has a socket again. */
  resumed(): void;
  /** The connection has ended. */
  end(reason: unknown): void;
}

/** What makes the extensions of a connection. */
export interface ExtensionsFactory {
  /** The dialect of a peer that chooses none. */
  readonly defaultDialect: Dialect;
  /** Returns the methods that the extensions take before any handler. */
  controlMethodsOf(dialect: Dialect): ReadonlySet<string>;
  create(connection: Connection): Extensions;
}
