/** The clients of one kind. */
import { connect } from "../../dist/node.js";
import { io } from "socket.io-client";
import { answer } from "../process.js";

/** How many are opened at a time. */
const AT_ONCE = 100;
/** When each client was connected again for the first time, by the clock of the machine. */
const backAt = new Map();
let lastClient = 0;

async function open(kind, url) {
  const client = ++lastClient;
  const back = () => backAt.has(client) || backAt.set(client, Date.now());
  if (kind === "reciproc") {
    const peer = await connect(url, { reconnect: true });
    peer.on("resume", back);
    return;
  }
  const socket = io(url, { transports: ["websocket"], forceNew: true });
  await new Promise((resolve) => socket.once("connect", resolve));
  socket.on("connect", back);
}

answer({
  async open(kind, url, count) {
    for (let left = count; left > 0; left -= AT_ONCE)
      await Promise.all(Array.from({ length: Math.min(left, AT_ONCE) }, () => open(kind, url)));
  },
  /** Returns the times of the clients that are connected again. */
  back: () => [...backAt.values()],
  forget: () => backAt.clear(),
});
