/** The code that the two rows of reciproc share. They differ in the options of the client. */
import { bytes, bytesOf, connect as open, serve as listen } from "../../dist/node.js";
import { MAX_MESSAGE_BYTES } from "../methods.js";

const limits = { maxMessageBytes: MAX_MESSAGE_BYTES, maxReplyBytes: MAX_MESSAGE_BYTES };

/** `decode`: reads a part of an upload. */
export async function serve(methods, peers, decode = bytesOf) {
  const upload = async ([parts], { peer }) => {
    let length = 0;
    for await (const part of peer.iterate(parts)) length += decode(part).length;
    return length;
  };
  const server = await listen({ port: 0, limits, methods: { ...handlers(methods), upload } });
  const topic = server.topic("everyone");
  server.on("peer", (peer) => {
    topic.add(peer);
    const caller = callerOf(peer);
    peers.add(caller);
    peer.on("close", () => peers.delete(caller));
  });
  return {
    port: Number(new URL(server.url).port),
    broadcast: (method, x, except) => topic.notify(method, [x], { except }),
  };
}

/** The packed link is the default. */
export const connectPacked = connectWith({});
export const connectPlain = connectWith({ link: "plain" });

function connectWith(options) {
  return async (url, methods) => callerOf(await open(url, { limits, methods: handlers(methods), ...options }));
}

function handlers(methods) {
  return Object.fromEntries(
    Object.entries(methods).map(([name, method]) => [name, ([x], { peer }) => method(x, peer)]),
  );
}

function callerOf(peer) {
  return {
    call: (method, x) => peer.request(method, [x]),
    notify: (method, x) => peer.notify(method, [x]),
    /** Sends bytes in one message. Resolves with the number that the server has received. */
    put: (view) => peer.request("received", [bytes(view)]),
    /** Sends bytes in parts. Resolves with the same. */
    upload: (parts) => peer.request("upload", [peer.offer(parts)]),
    close: () => peer.close(),
  };
}
