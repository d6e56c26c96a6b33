/** The streams of a server's peers, and those of the peers of HTTP requests. */
import type { BytesCodec } from "../message/bytes.js";
import { plainText } from "../message/codec.js";
import type { Connection } from "../peer/connection.js";
import type { Feature } from "../peer/feature.js";
import type { Sink } from "../peer/flow.js";
import type { IncomingCall } from "../peer/incoming-call.js";
import type { OutgoingCall } from "../peer/outgoing-call.js";
import type { AnyIterable } from "../base/promises.js";
import type { Frame } from "../message/transport.js";
import { MOST_NEXT, requestMore, type Source } from "../features/reader.js";
import { allFeatures } from "../features/all.js";
import { streams, Streams } from "../features/streams.js";

/** Counts the frames whose values a stream's reader has not passed on yet: they count against the limit of all sessions. */
class ServerStreams extends Streams {
  override read(source: Source): AsyncIterable<unknown> {
    const { connection } = this;
    let kept: Frame[] | undefined = [];
    /** Makes a call through a sink that sends to `to`, and keeps the frame in which its reply came. */
    const keep = async (to: () => Sink, call: (sink: Sink) => Promise<unknown>): Promise<unknown> => {
      let frame: Frame | undefined;
      const send: Sink["send"] = (text, handle) => {
        (handle as OutgoingCall).whenSettled(() => (frame = connection.transport.currentFrame));
        return to().send(text, handle);
      };
      const reply = await call({ send });
      if (frame !== undefined && kept !== undefined) {
        frame.keep();
        kept.push(frame);
      }
      return reply;
    };
    return super.read({
      ...source,
      open: (signal) =>
        keep(
          () => connection.flow.sink,
          (sink) => source.open(signal, sink),
        ),
      requestMore: (_connection, token) => {
        // The values of the last two replies may be unread. All values before them were read.
        for (const frame of kept?.splice(0, kept.length - MOST_NEXT + 1) ?? []) frame.drop();
        return keep(
          () => connection.flow,
          (sink) => requestMore(connection, token, sink),
        );
      },
      onEnd() {
        for (const frame of kept ?? []) frame.drop();
        kept = undefined;
      },
    });
  }
}

/** The features of a server's peers. */
export const serverFeatures: readonly (Feature | BytesCodec)[] = allFeatures.map((feature) =>
  feature === streams ? { ...streams, create: (connection) => new ServerStreams(connection as Connection) } : feature,
);

/** The streams of a peer whose calls come by HTTP POST: each call gets one response, and no other message. */
class PostStreams extends Streams {
  override offer(): never {
    const cause = this.connection.outgoing.whyNoCalls?.reason;
    throw new Error("the caller cannot read a stream in a response to HTTP POST", { cause });
  }

  /** Sends all values, or more than the longest reply takes: that reply is refused, and the stream is stopped then. */
  override async serve(source: AnyIterable, call: IncomingCall): Promise<() => string> {
    const stream = this.serveStream(source, call, true);
    const { maxReplyBytes } = this.connection.incoming;
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

/** The features of a peer whose calls come by HTTP POST. */
export const postFeatures: readonly Feature[] = [
  { ...streams, create: (connection) => new PostStreams(connection as Connection) },
];
