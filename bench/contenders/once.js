/** Bare `ws` as whoever cares about fan-out writes it: one text made once, and sent to each. */
import { serve as serveBare } from "./bare.js";

export { connect } from "./bare.js";

export async function serve(methods, peers) {
  const { port } = await serveBare(methods, peers);
  return {
    port,
    broadcast(method, x, except) {
      const text = JSON.stringify({ jsonrpc: "2.0", method, params: [x] });
      for (const peer of peers) if (peer !== except) peer.socket.send(text);
    },
  };
}
