/** The extensions of one connection: streams, and cancelling and progress in the messages of its dialect. */
import type { Slot } from "../core/batch.js";
import type { MessageText } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import type { Extensions, ExtensionsFactory } from "../core/extensions.js";
import type { NotificationMessage, RequestMessage } from "../core/message.js";
import type { OutgoingCall } from "../core/outgoing-calls.js";
import type { SendHandle } from "../core/transport.js";
import { OptionalCancel, receiveCancel, sendCancel } from "./cancel.js";
import { lsp } from "./dialects/lsp.js";
import { Progress } from "./progress.js";
import { opensStream } from "./reader.js";
import { STREAM_METHODS, Streams } from "./streams.js";

/** The extensions of one connection. */
export class StandardExtensions extends Streams implements Extensions {
  declare readonly progress: Progress;

  constructor(connection: Connection) {
    super(connection);
    this.progress = new Progress(connection);
  }

  override control(message: RequestMessage | NotificationMessage, slot: Slot): boolean {
    if (super.control(message, slot)) return true;
    if ("id" in message) return false;
    const { method, params } = message;
    const { cancel, progress } = this.connection.config.dialect;
    if (method !== cancel.method) return method === progress.method && this.progress.receive(params);
    const id = cancel.idOf(params);
    if (id !== undefined) this.cancelled(id, receiveCancel(this.connection, id));
    return true;
  }

  cancel(call: OutgoingCall, reason: unknown): void {
    // A side that serves a stream must learn that the stream is no longer read, whatever else it understands.
    sendCancel(this.connection, call, reason, this.connection.speaksDialect || opensStream(call));
  }

  rewriteQueued(text: MessageText, handle: SendHandle): MessageText | undefined {
    if (this.connection.speaksDialect) return this.progress.rewrite(text, handle);
    return handle instanceof OptionalCancel ? undefined : text;
  }
}

/** Makes the extensions of a connection. */
export const standardExtensions: ExtensionsFactory = {
  defaultDialect: lsp,
  controlMethodsOf: ({ cancel, progress }) => new Set([cancel.method, progress.method, ...STREAM_METHODS]),
  create: (connection) => new StandardExtensions(connection),
};
