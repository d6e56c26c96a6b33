/** Calls a tool of the server: `node client.js TOOL [VALUE] [URL]`. Without arguments, prints the tools and the notes. */
import { createInterface } from "node:readline/promises";
import { connect, mcp } from "reciproc/node";

const [tool, value, url = "ws://localhost:3000"] = process.argv.slice(2);

const peer = await connect(url, {
  dialect: mcp,
  methods: {
    ping: () => ({}),
    /** The server asks the user, while this program waits for the answer of the tool. */
    async "elicitation/create"({ message }, { signal }) {
      const terminal = createInterface({ input: process.stdin, output: process.stdout });
      const answer = await terminal.question(`${message} (y/n) `, { signal });
      terminal.close();
      return answer === "y" ? { action: "accept", content: {} } : { action: "decline" };
    },
  },
  // On each connection, because the server forgets its clients when it is restarted.
  async onOpen(server) {
    await server.request("initialize", {
      protocolVersion: "2025-06-18",
      capabilities: { elicitation: {} },
      clientInfo: { name: "example", version: "1.0.0" },
    });
    server.notify("notifications/initialized");
  },
});

if (tool === undefined) {
  const { tools } = await peer.request("tools/list");
  for (const { name, description } of tools) console.log(`${name}: ${description}`);
  const { resources } = await peer.request("resources/list");
  for (const { uri, name } of resources) console.log(`${uri} ${name}`);
} else {
  const key = tool === "delete_note" ? "id" : "text";
  const params = { name: tool, arguments: { [key]: value } };
  const { content, isError } = await peer.request("tools/call", params, { timeoutMs: 600_000 });
  for (const { text } of content) console.log(text);
  if (isError) process.exitCode = 1;
}
await peer.close();
