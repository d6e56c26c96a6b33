/** Serves the methods that the tests call, and prints its address. A connection that is told to can control the others. */
import { serve } from "../../../dist/node.js";

const MAX_UNSENT_BYTES = 2 ** 20;
const LONG = "x".repeat(64 * 1024);
const turn = () => new Promise((resolve) => setTimeout(resolve, 1));

/** Peers by the name that they have taken. */
const named = new Map();

const server = await serve({
  port: 0,
  heartbeat: false,
  limits: { maxUnsentBytes: MAX_UNSENT_BYTES },
  methods: {
    outer: async ([x], { peer }) => await peer.request("inner", [x]),
    echo: (params) => params,
    name([name], { peer }) {
      named.set(name, peer);
      return true;
    },
    /** Notifies the caller in one turn, and then every peer. */
    notify([count], { peer }) {
      for (let i = 0; i < count; i++) peer.notify("n", [i]);
      server.peers.notify("all", ["é"]);
      return true;
    },
    /** Notifies a peer that does not read until it is closed. */
    async flood([name]) {
      const peer = named.get(name);
      let mostUnsent = 0;
      let sent = 0;
      for (; peer.state === "open" && sent < 5000; sent++) {
        peer.notify("n", [sent, LONG]);
        mostUnsent = Math.max(mostUnsent, peer.stats().unsentBytes);
        if (sent % 4 === 0) await turn();
      }
      return { state: peer.state, mostUnsent };
    },
    /** Notifies a peer that does not read, until something waits. Returns how many notifications that took. */
    async fill([name]) {
      const peer = named.get(name);
      let sent = 0;
      while (peer.stats().unsentBytes === 0 && sent < 5000) {
        peer.notify("n", [sent++, LONG]);
        await turn();
      }
      return sent;
    },
    /** Closes a peer, and reports how that ended. */
    async close([name]) {
      const peer = named.get(name);
      await peer.close();
      const { code } = await peer.closed;
      return { code };
    },
    async ended([name]) {
      const { code, reason } = await named.get(name).closed;
      return { code, reason };
    },
  },
});
process.stdout.write(`${server.url}\n`);
