/** The extensions of a server's peers, and those of the peers of HTTP requests. */
import { plainText } from "../core/codec.js";
import type { ExtensionsFactory } from "../core/extensions.js";
import type { IncomingCall } from "../core/incoming-call.js";
import { isObject, member } from "../core/message.js";
import type { AnyIterable } from "../core/promises.js";
import type { Frame } from "../core/transport.js";
import { StandardExtensions, standardExtensions } from "../features/extensions.js";
import { serveStream } from "../features/served.js";
import { MOST_NEXT, requestMore, type Source } from "../features/reader.js";

/** Counts the frames whose values a stream's reader has not passed on yet: they count against the limit of all sessions. */
class ServerExtensions extends StandardExtensions {
  /** Set when the first stream is read. */
  note: ((message: unknown) => void) | undefined = undefined;
  /** The frames in which the results of this side's calls came, since the first stream is read. */
  readonly #frames = new WeakMap<object, Frame>();

  override read(source: Source): AsyncIterable<unknown> {
    this.note ??= (message) => this.#noteFrame(message);
    const { connection } = this;
    let kept: Frame[] | undefined = [];
    const keep = (reply: unknown): unknown => {
      const frame = this.#frames.get(reply as object);
      if (frame !== undefined && kept !== undefined) {
        frame.keep();
        kept.push(frame);
      }
      return reply;
    };
    return super.read({
      ...source,
      open: async (signal) => keep(await source.open(signal)),
      // The values of the last two replies may be unread. All values before them were read.
      requestMore: async (_connection, token) => {
        for (const frame of kept?.splice(0, kept.length - MOST_NEXT) ?? []) frame.drop();
        return keep(await requestMore(connection, token));
      },
      onEnd() {
        for (const frame of kept ?? []) frame.drop();
        kept = undefined;
      },
    });
  }

  #noteFrame(message: unknown): void {
    const frame = this.connection.transport.currentFrame;
    if (frame === undefined) return;
    for (const one of [message].flat()) {
      const result = member(one, "result");
      if (isObject(result)) this.#frames.set(result, frame);
    }
  }
}

export const serverExtensions: ExtensionsFactory = {
  ...standardExtensions,
  create: (connection) => new ServerExtensions(connection),
};

/** The extensions of a peer whose calls come by HTTP POST: each call gets one response, and no other message. */
class PostExtensions extends StandardExtensions {
  override offer(): never {
    const cause = this.connection.outgoing.whyNoCalls;
    throw new Error("the caller cannot read a stream in a response to HTTP POST", { cause });
  }

  /** Sends all values, or more than the longest reply takes: that reply is refused, and the stream is stopped then. */
  override async serve(source: AnyIterable, call: IncomingCall): Promise<() => string> {
    const stream = serveStream(this, source, call, true);
    const { maxReplyBytes } = this.connection;
    const all: string[] = [];
    for (let length = 0, isLast = false; !isLast && length <= maxReplyBytes;) {
      await stream.ready(Infinity);
      // If the call was cancelled meanwhile, the end of the source is not its result.
      if (call.abortCause !== undefined) throw call.abortCause.reason;
      const portion = stream.take();
      for (const value of portion.values) {
        const text = plainText(value);
        all.push(text);
        length += text.length;
      }
      isLast = portion.isLast;
    }
    // If the reply is too long, the stream is stopped as one whose token was sent: the signal of its call aborts.
    stream.isAnnounced = true;
    return () => `{"values":[${all.join(",")}]}`;
  }
}

export const postExtensions: ExtensionsFactory = {
  ...standardExtensions,
  create: (connection) => new PostExtensions(connection),
};
