/** The server of the board. */
import { EventEmitter, on, once } from "node:events";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { bytesOf, RpcError, serve } from "reciproc/node";
import { serverApi, type PageApi, type ServerApi } from "../api.js";
import { startHttp } from "./http.js";
import { cardOf, cards, nameIn, putCard, removeCard, storeUpload } from "./store.js";

type User = { name: string };

const MOST_UPLOADED_BYTES = 50_000_000;

const lines = new EventEmitter().setMaxListeners(0);
const log = (line: string) => lines.emit("line", line);

const http = await startHttp(logOut);
const server = await serve<ServerApi, PageApi, User>({
  server: http,
  path: "/rpc",
  // The cookie arrives with the upgrade. `principal`: a session is resumed by its user only.
  authenticate: ({ headers }) => {
    const name = nameIn(headers.cookie);
    return name === null ? null : { name };
  },
  principal: ({ name }) => name,
  // A page that was away gets the changes that it missed.
  topics: (name) => (name === "cards" ? { log: {} } : { members: "people" }),
  contract: serverApi,
  methods: {
    people: (params, { peer, server }) => server.topic("people").present(peer, params, { name: peer.auth.name }),

    "cards/join": ({ since }, { peer, server }) => server.topic("cards").join(peer, { since, load: cards }),
    "cards/leave": (_params, { peer, server }) => void server.topic("cards").delete(peer),

    async put(draft, { peer, server }) {
      const card = putCard({ ...draft, owner: cardOf(draft.id)?.owner ?? peer.auth.name });
      await server.topic("cards").publish("changed", { card });
      log(`${peer.auth.name} wrote "${card.text}"`);
      return card;
    },

    async remove({ id }, { peer, server, signal }) {
      const card = cardOf(id);
      if (card === undefined) throw new RpcError(404, "there is no such card");
      const question = `May ${peer.auth.name} remove "${card.text}"?`;
      if (card.owner !== peer.auth.name && !(await ask(card.owner, question, signal))) return false;
      removeCard(id);
      await server.topic("cards").publish("removed", { id });
      log(`${peer.auth.name} removed "${card.text}"`);
      return true;
    },

    async import({ lines: texts }, { peer, server, signal, progress }) {
      for (const [i, text] of texts.entries()) {
        await delay(100, undefined, { signal }); // rejects if the caller cancels
        const card = putCard({ id: crypto.randomUUID(), text, isDone: false, owner: peer.auth.name });
        await server.topic("cards").publish("changed", { card });
        progress({ done: i + 1 });
      }
      log(`${peer.auth.name} imported ${texts.length} cards`);
      return texts.length;
    },

    async *log(_params, { signal }) {
      for await (const [line] of on(lines, "line", { signal })) yield line as string;
    },

    async upload({ name, content }, { peer, progress }) {
      let done = 0;
      async function* parts() {
        for await (const part of peer.iterate(content)) {
          const bytes = bytesOf(part);
          done += bytes.length;
          if (done > MOST_UPLOADED_BYTES) throw new RpcError(413, "the file is too long");
          yield bytes;
          progress({ done });
        }
      }
      await storeUpload(parts()); // a slow disk slows the page down
      log(`${peer.auth.name} uploaded ${name}`);
      return done;
    },
  },
});
server.on("error", console.error);

const people = server.topic("people");
people.on("join", ({ auth }) => log(`${auth.name} is here`));
people.on("leave", ({ auth }) => log(`${auth.name} has left`));

const windowsOf = (name: string) => Array.from(server.peers).filter(({ auth }) => auth.name === name);

/** Asks all windows of a user. The first answer counts, and the other windows are no longer asked. A user who is away agrees. */
async function ask(name: string, question: string, signal: AbortSignal): Promise<boolean> {
  const windows = windowsOf(name);
  if (windows.length === 0) return true;
  const answered = new AbortController();
  const options = { signal: AbortSignal.any([signal, answered.signal]), timeoutMs: 30_000 };
  try {
    return await Promise.any(windows.map((peer) => peer.request("confirm", { question }, options)));
  } catch {
    return false; // every window was closed, or did not answer in time
  } finally {
    answered.abort();
  }
}

/** Closes all windows of a user with 4401, after which a page does not reconnect. */
function logOut(name: string): void {
  for (const peer of windowsOf(name)) void peer.close(4401);
}

console.log(`board: http://localhost:${(http.address() as AddressInfo).port}`);

await Promise.race([once(process, "SIGTERM"), once(process, "SIGINT")]);
// Running handlers may end, and the server tells every page when to connect to the next process.
await server.drain({ timeoutMs: 5_000, retryMs: 500 });
http.close();
http.closeAllConnections();
