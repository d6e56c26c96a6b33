/** The floor of a fan-out: the frame made once, and its bytes given to each connection's own socket. Nothing is left but Node and the system. */
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

/** An unmasked text frame of 126 to 65,535 bytes, or of fewer than 126 (RFC 6455, section 5.2). */
function frameOf(text) {
  const payload = Buffer.from(text);
  const { length } = payload;
  const header = length < 126 ? [0x81, length] : [0x81, 126, length >> 8, length & 255];
  return Buffer.concat([Buffer.from(header), payload]);
}
