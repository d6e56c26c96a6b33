/** The extensions of a peer whose calls come by HTTP POST: each call gets one response, and no other message. */
import type { ExtensionsFactory } from "../core/extensions.js";
import type { IncomingCall } from "../core/incoming-call.js";
import { StandardExtensions, standardExtensions } from "../features/extensions.js";

class PostExtensions extends StandardExtensions {
  override offer(): never {
    const cause = this.connection.answersOnly;
    throw new Error("the caller cannot read a stream in a response to HTTP POST", { cause });
  }

  /** Sends all values, or more than the longest reply takes: that reply is refused, and the stream is stopped then. */
  override async serve(source: AsyncIterable<unknown>, call: IncomingCall): Promise<() => string> {
    const stream = this.serveStream(source, call, true);
    const { maxReplyBytes } = this.connection;
    const all: string[] = [];
    for (let length = 0, isLast = false; !isLast && length <= maxReplyBytes;) {
      await stream.ready(Infinity);
      // If the call was cancelled meanwhile, the end of the source is not its result.
      if (call.abortCause !== undefined) throw call.abortCause.reason;
      const portion = stream.take();
      if (portion.values !== "") all.push(portion.values);
      length += portion.values.length;
      isLast = portion.isLast;
    }
    // If the reply is too long, the stream is stopped as one whose token was sent: the signal of its call aborts.
    stream.isAnnounced = true;
    return () => (all.length === 0 ? "{}" : `{"values":[${all.join(",")}]}`);
  }
}

export const postExtensions: ExtensionsFactory = {
  ...standardExtensions,
  create: (connection) => new PostExtensions(connection),
};
