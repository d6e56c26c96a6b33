/** An agent of the SDK over standard input and output, as editors start it. */
import { agent, ndJsonStream } from "@agentclientprotocol/sdk";
import { Readable, Writable } from "node:stream";

agent()
  .onRequest("initialize", () => ({ protocolVersion: 1, agentCapabilities: {}, authMethods: [] }))
  .onRequest("session/new", () => ({ sessionId: "s-1" }))
  .onRequest("session/prompt", async ({ client }) => {
    const { content } = await client.request("fs/read_text_file", { sessionId: "s-1", path: "/größe 🙂.txt" });
    const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text: content } };
    await client.notify("session/update", { sessionId: "s-1", update });
    return { stopReason: "end_turn" };
  })
  .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
