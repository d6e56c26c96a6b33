/** An MCP server of notes over WebSocket: three tools, a resource for each note, and a question to the user of the client. */
import { mcp, RpcError, serve } from "reciproc/node";

const notes = new Map([[1, "Reciproc means that both sides call."]]);
let lastId = 1;
/** The capabilities of each client, from its `initialize`. */
const capabilitiesOf = new WeakMap();

const string = { type: "string" };
const uriOf = (id) => `note:///${id}`;

/** The tools. `run` gets the arguments and the context of the call, and returns the text for the model. */
const tools = {
  add_note: {
    description: "Adds a note. Returns its id.",
    properties: { text: string },
    run({ text }, { server }) {
      notes.set(++lastId, text);
      server.peers.notify("notifications/resources/list_changed");
      return `The note has the id ${lastId}.`;
    },
  },
  find_notes: {
    description: "Finds the notes that contain a text.",
    properties: { text: string },
    run({ text }) {
      const found = [...notes].filter(([, note]) => note.includes(text));
      return found.map(([id, note]) => `${id}: ${note}`).join("\n") || "No note contains this text.";
    },
  },
  delete_note: {
    description: "Deletes a note, after the user was asked.",
    properties: { id: string },
    async run({ id }, { peer, server, signal }) {
      const text = notes.get(Number(id));
      if (text === undefined) throw new ToolError(`There is no note ${id}.`);
      if (!capabilitiesOf.get(peer)?.elicitation) throw new ToolError("This client cannot ask its user.");
      // The server calls its client in the middle of the client's call. The user may need some minutes.
      const question = { message: `Delete "${text}"?`, requestedSchema: { type: "object", properties: {} } };
      const { action } = await peer.request("elicitation/create", question, { signal, timeoutMs: 300_000 });
      if (action !== "accept") return "The user wants to keep the note.";
      notes.delete(Number(id));
      server.peers.notify("notifications/resources/list_changed");
      return "The note is deleted.";
    },
  },
};

/** A failure that the model reads. */
class ToolError extends Error {}

const server = await serve({
  port: Number(process.env.PORT ?? 3000),
  dialect: mcp,
  methods: {
    initialize({ protocolVersion, capabilities }, { peer }) {
      capabilitiesOf.set(peer, capabilities);
      return {
        protocolVersion,
        capabilities: { tools: {}, resources: { listChanged: true } },
        serverInfo: { name: "notes", version: "1.0.0" },
      };
    },
    "notifications/initialized": () => {},
    ping: () => ({}),

    "tools/list": () => ({
      tools: Object.entries(tools).map(([name, { description, properties }]) => ({
        name,
        description,
        inputSchema: { type: "object", properties, required: Object.keys(properties) },
      })),
    }),
    async "tools/call"({ name, arguments: given = {} }, context) {
      if (!Object.hasOwn(tools, name)) throw new RpcError(-32602, `there is no tool "${name}"`);
      const { properties, run } = tools[name];
      try {
        for (const key of Object.keys(properties))
          if (typeof given[key] !== "string") throw new ToolError(`"${key}" must be a string.`);
        return { content: [{ type: "text", text: await run(given, context) }] };
      } catch (error) {
        if (error instanceof ToolError) return { content: [{ type: "text", text: error.message }], isError: true };
        throw error;
      }
    },

    "resources/list": () => ({
      resources: [...notes].map(([id, text]) => ({ uri: uriOf(id), name: text.slice(0, 40) })),
    }),
    "resources/read"({ uri }) {
      for (const [id, text] of notes)
        if (uri === uriOf(id)) return { contents: [{ uri, mimeType: "text/plain", text }] };
      throw new RpcError(-32002, "there is no such note", { uri });
    },
  },
});
server.on("error", console.error);
process.once("SIGTERM", () => server.drain());
console.log(`notes: ${server.url}`);
