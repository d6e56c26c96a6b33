/** The floor of a fan-out: one frame is encoded once, and its bytes are written to the TCP socket of each connection. Only Node and the system take time. */
import { serve as serveBare } from "./bare.js";

export { connect } from "./bare.js";

export async function serve(methods, peers) {
  const { port } = await serveBare(methods, peers);
  return {
    port,
    broadcast(method, x, except) {
      const frame = frameOf(JSON.stringify({ jsonrpc: "2.0", method, params: [x] }));
      for (const peer of peers) if (peer !== except) peer.socket._socket.write(frame);
    },
  };
}

/** Returns an unmasked text frame of at most 65,535 bytes (RFC 6455, section 5.2). */
function frameOf(text) {
  const payload = Buffer.from(text);
  const { length } = payload;
  const header = length < 126 ? [0x81, length] : [0x81, 126, length >> 8, length & 255];
  return Buffer.concat([Buffer.from(header), payload]);
}
