/** The plain link: one JSON-RPC message or batch a text frame, which is what every stranger speaks. */
import type { Socket, Transport } from "../core/transport.js";

/** A transport whose messages are the socket's frames. `isOurs`: this package is on the other side too, and nobody else. */
export function plain(socket: Socket, isOurs = false): Transport {
  return {
    isOurs,
    start: (receiver) =>
      socket.start({
        frame: (text) => receiver.receive(text),
        closed: (info) => receiver.closed(info),
      }),
    send: (text) => socket.send(text),
    sendShared: (message) => socket.sendShared(message.plain),
    close: (code, reason) => socket.close(code, reason),
  };
}
