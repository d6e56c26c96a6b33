/** The server of the cursors: who is on the page, where their pointers are, and who is away. */
import { serve } from "reciproc/node";
import { servePage } from "../page-server.js";

const isShare = (value) => typeof value === "number" && value >= 0 && value <= 1;

const http = await servePage(new URL("page/", import.meta.url));
const server = await serve({
  server: http,
  path: "/rpc",
  authenticate: (_request, auth) => (typeof auth === "string" && /^\S.{0,19}$/.test(auth) ? { name: auth } : null),
  principal: ({ name }) => name,
  methods: {
    /** Puts the caller on the page, and notifies all pages. Returns the id of the caller's cursor. */
    enter(_params, { peer, server }) {
      server.topic("page").add(peer);
      publish();
      return peer.id;
    },

    /** A notification for each move of the pointer. `x` and `y` are shares of the width and the height of the page. */
    moved({ x, y }, { peer, server }) {
      const page = server.topic("page");
      if (!page.has(peer) || !isShare(x) || !isShare(y)) return;
      Object.assign(peer.data, { x, y });
      // A page that is slow or away gets only the newest position of each pointer.
      page.notify("moved", { id: peer.id, x, y }, { latest: peer.id, except: peer });
    },
  },
});
server.on("error", console.error);

const page = server.topic("page");
/** Sends all cursors to all pages. */
function publish() {
  const all = Array.from(page, (peer) => ({ id: peer.id, name: peer.auth.name, ...peer.data }));
  page.notify("here", { cursors: all }, { latest: "here" });
}

server.on("peer", (peer) => {
  Object.assign(peer.data, { hue: Math.floor(Math.random() * 360), isAway: false });
  // A session survives its socket for a minute. Meanwhile the cursor is grey.
  for (const event of ["suspend", "resume"]) {
    peer.on(event, () => {
      peer.data.isAway = event === "suspend";
      publish();
    });
  }
});
page.on("leave", publish);

// A deployment sends SIGTERM: the server accepts no new page, and the pages connect to the next process.
process.once("SIGTERM", async () => {
  await server.drain({ retryMs: 1_000 });
  http.close();
});
console.log(`cursors: http://localhost:${http.address().port}/`);
