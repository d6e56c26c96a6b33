/**
 * A client in a terminal: `node chat.js ada`, and behind it the URL of the load balancer if that has another port. Type a line to say it.
 * /who, /wave NAME and /kill are commands.
 */
import { createInterface } from "node:readline";
import { connect } from "reciproc/node";

const [name = "ada", url = "ws://127.0.0.1:8000"] = process.argv.slice(2);
/** The position of the last message, by which a node knows what this client missed. */
let since;

const peer = await connect(`${url}/?name=${encodeURIComponent(name)}`, {
  reconnect: { initial: true },
  methods: {
    said: ({ name: from, text, at }) => {
      since = at;
      console.log(`${from}: ${text}`);
    },
    member: ({ event, as }) => console.log(`${event === "joined" ? "+" : "-"} ${as.name}`),
    typing: ({ name: from }) => console.log(`${from} is typing`),
    waved: ({ from }) => {
      console.log(`${from} waves`);
      return `${name} waves too`;
    },
  },
  // Runs for each new session: at first, and on another node when the first is gone.
  onOpen: async (server) => {
    const isFirst = since === undefined;
    const { node, at, outcome } = await server.request("join", { since });
    // Until the first message, the position of the room when this client joined.
    since ??= at;
    const missed = outcome === "complete" ? "nothing was missed" : "some messages are missing";
    console.log(isFirst ? `connected to ${node}` : `connected to ${node}: ${missed}`);
  },
});
peer.on("lost", () => console.log("the node is gone"));

for await (const line of createInterface(process.stdin)) {
  const [command, to] = line.split(" ");
  try {
    if (command === "/who") console.log(`here: ${[...new Set(await peer.request("who"))].sort().join(", ")}`);
    else if (command === "/wave") console.log(await peer.request("wave", { to }));
    else if (command === "/kill") peer.notify("kill");
    else if (line !== "") await peer.request("say", { text: line });
  } catch (error) {
    // After "unknown", the message may have been said.
    console.log(`failed (${error.outcome ?? error.code}): ${error.message}`);
  }
}
await peer.close();
