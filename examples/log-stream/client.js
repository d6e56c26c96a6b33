/** Prints the lines that a server streams: `node client.js [--text TEXT] [--from-start] [URL]`. */
import { parseArgs } from "node:util";
import { open } from "reciproc/node";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { text: { type: "string", default: "" }, "from-start": { type: "boolean", default: false } },
});
const peer = open(positionals[0] ?? "ws://localhost:3000", { reconnect: { initial: true } });
peer.on("suspend", () => console.error("(the connection is lost)"));
peer.on("resume", () => console.error("(connected again)"));
process.once("SIGINT", () => peer.close());

let position = values["from-start"] ? 0 : await peer.request("size");
while (peer.state !== "closed") {
  try {
    // If the network is lost, the stream continues when the session resumes: no line is lost or printed twice.
    for await (const line of peer.stream("follow", { after: position, text: values.text })) {
      console.log(line.text);
      position = line.position;
    }
  } catch (error) {
    // The server was restarted, or the network was lost for too long. Only this program knows where to continue.
    if (error.code !== "CONNECTION_LOST") throw error;
  }
}
