/** Bare `ws` with a fan-out by hand: the text is encoded once, and sent to each client. */
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
