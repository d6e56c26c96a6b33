/** The server of the chat: rooms, the newest lines of each, and who is in it. */
import { RpcError, serve } from "reciproc/node";
import { servePage } from "../page-server.js";

const ROOMS = ["Garden", "Kitchen", "Workshop"];
const MOST_LINES = 100;
/** The newest lines of each room. A restart forgets them, as it forgets everything that is not in a database. */
const linesOf = new Map(ROOMS.map((room) => [room, []]));

const http = await servePage(new URL("page/", import.meta.url));
const server = await serve({
  server: http,
  path: "/rpc",
  // The page sends the name as `auth`. An application verifies a token or a cookie here.
  authenticate: (_request, auth) => (typeof auth === "string" && /^\S.{0,19}$/.test(auth) ? { name: auth } : null),
  principal: ({ name }) => name,
  methods: {
    rooms: () => ROOMS,

    /** Puts the caller into a room, and takes it out of the others. Returns the newest lines. */
    enter({ room }, { peer, server }) {
      if (!linesOf.has(room)) throw new RpcError(404, `there is no room "${room}"`);
      for (const other of ROOMS) if (other !== room) server.topic(other).delete(peer);
      server.topic(room).add(peer);
      publishNames(room);
      return linesOf.get(room);
    },

    /** Says a line, and returns it. The caller chooses the id, so a call that is made again says nothing twice. */
    say({ room, id, text }, { peer, server }) {
      if (!server.topic(room).has(peer)) throw new RpcError(403, "enter the room first");
      if (typeof id !== "string" || id.length > 36)
        throw new RpcError(400, "`id` must be a string of up to 36 characters");
      if (typeof text !== "string" || text.length > 500) throw new RpcError(400, "a line has up to 500 characters");
      const lines = linesOf.get(room);
      const said = lines.find((line) => line.id === id);
      if (said !== undefined) return said;
      const line = { id, name: peer.auth.name, text, at: Date.now() };
      lines.push(line);
      if (lines.length > MOST_LINES) lines.shift();
      server.topic(room).notify("said", { room, line });
      return line;
    },

    /** A notification. It is not queued for a page that is slow or away, which would show it too late. */
    typing({ room }, { peer, server }) {
      const topic = server.topic(room);
      if (topic.has(peer)) topic.notify("typing", { room, name: peer.auth.name }, { volatile: true, except: peer });
    },
  },
});
server.on("error", console.error);

/** Notifies all pages in a room of the names. A page that is slow or away gets only the newest list. */
function publishNames(room) {
  const topic = server.topic(room);
  topic.notify("here", { room, names: [...new Set(Array.from(topic, ({ auth }) => auth.name))] }, { latest: room });
}
for (const room of ROOMS) server.topic(room).on("leave", () => publishNames(room));

// A deployment sends SIGTERM: the server accepts no new page, and the pages connect to the next process.
process.once("SIGTERM", async () => {
  await server.drain({ retryMs: 1_000 });
  http.close();
});
console.log(`chat: http://localhost:${http.address().port}/`);
