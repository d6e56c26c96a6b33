/** Sends one flood at a time, from a process of its own. */
import { connect } from "node:net";
import { answer } from "../process.js";

/** The present flood. */
let flood;

function open() {
  const { port, head, first, chunk, bytesPerSecond, opened } = flood;
  const socket = (flood.socket = connect(port, "127.0.0.1"));
  const mine = flood;
  let due = Infinity;
  const pump = () => {
    if (socket.destroyed) return;
    const now = performance.now();
    if (now >= due && socket.writableLength === 0) {
      socket.write(chunk);
      mine.bytes += chunk.length;
      // If the server or this process was late, the missed bytes are not sent later.
      due = Math.max(due, now - 50) + (1000 * chunk.length) / bytesPerSecond;
    }
    setTimeout(pump, 1);
  };
  socket.on("error", () => {});
  socket.on("close", () => mine.isOver || setTimeout(open, 5));
  socket.write(head);
  // The response to the handshake, and the first frames of the server.
  socket.once("data", () => {
    socket.write(first);
    due = performance.now();
    socket.resume();
    pump();
    opened();
  });
}

answer({
  /** Begins a flood: `head` is the text of the handshake, and `first` and `chunk` are bytes in base64. Resolves when it is open. */
  start: (options) =>
    new Promise((opened) => {
      const [first, chunk] = [options.first, options.chunk].map((bytes) => Buffer.from(bytes, "base64"));
      flood = { ...options, first, chunk, opened, bytes: 0, isOver: false };
      open();
    }),
  /** Ends the flood. Returns the number of bytes that were written. */
  stop() {
    flood.isOver = true;
    flood.socket.destroy();
    return flood.bytes;
  },
});
