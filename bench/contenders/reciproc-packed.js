/** reciproc with its defaults: a server and a client that both speak `reciproc.v1`. */
import { bytes, bytesOf, connect, serve as listen } from "../../dist/node.js";
import { MAX_MESSAGE_BYTES } from "../methods.js";

const limits = { maxMessageBytes: MAX_MESSAGE_BYTES, maxReplyBytes: MAX_MESSAGE_BYTES };

function handlers(methods) {
  return Object.fromEntries(
    Object.entries(methods).map(([name, method]) => [name, ([x], { peer }) => method(x, peer)]),
  );
}

/** `decode`: reads a part of an upload. */
export async function serve(methods, decode = bytesOf) {
  const receive = async ([parts], { peer }) => {
    let length = 0;
    for await (const part of peer.iterate(parts)) length += decode(part).length;
    return length;
  };
  const { url, peers } = await listen({ port: 0, limits, methods: { ...handlers(methods), upload: receive } });
  const broadcast = (method, x, except) => peers.notify(method, [x], { except });
  return { port: Number(new URL(url).port), peers, broadcast };
}

export function connector(url, methods, options = {}) {
  const all = { limits, methods: handlers(methods), ...options };
  return () => connect(url, all);
}

export const call = (peer, method, x) => peer.request(method, [x]);
export const notify = (peer, method, x) => peer.notify(method, [x]);
export const close = (peer) => peer.close();
/** Sends bytes in one message. Resolves with the number that the server has received. */
export const put = (peer, view) => peer.request("received", [bytes(view)]);
/** Sends bytes in parts. Resolves with the same. */
export const upload = (peer, parts) => peer.request("upload", [peer.offer(parts)]);
