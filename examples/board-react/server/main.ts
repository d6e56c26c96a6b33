/** The server of the board. */
import { createHash } from "node:crypto";
import { EventEmitter, on, once } from "node:events";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { RpcError, serve, type Peer } from "reciproc/node";
import { schemas, type Card, type ClientApi, type Person, type ServerApi } from "../api.js";
import { http } from "./http.js";
import { cardOf, cards, nameIn, putCard, removeCard } from "./store.js";

type User = { name: string };
type Visitor = Peer<ServerApi, ClientApi, User>;

const MOST_UPLOADED_BYTES = 50_000_000;
/** A list that a page keeps must not miss a change, so a reader that is too slow is closed and fetches it again. */
const TO_ALL = { whenSlow: "close" } as const;

const lines = new EventEmitter().setMaxListeners(0);
const log = (line: string) => lines.emit("line", line);
const personOf = ({ id, data }: Visitor): Person => ({ id, name: data.name });

const server = await serve<ServerApi, ClientApi, User>({
  server: http,
  path: "/rpc",
  // The cookie arrives with the upgrade. `principal`: a session is resumed by its user only.
  authenticate: ({ headers }) => {
    const name = nameIn(headers.cookie);
    return name === null ? null : { name };
  },
  principal: ({ name }) => name,
  schemas,
  methods: {
    "topic/join"({ topic }, { peer, server }) {
      const members = server.topic(topic);
      if (!members.has(peer)) {
        members.add(peer).notify("topic/joined", { topic, member: personOf(peer) }, { except: peer, ...TO_ALL });
        void peer.closed.then(() => members.notify("topic/left", { topic, id: peer.id }, TO_ALL));
        log(`${peer.data.name} is here`);
      }
      return Array.from(members, personOf);
    },
    "topic/leave"({ topic }, { peer, server }) {
      const members = server.topic(topic);
      if (members.delete(peer)) members.notify("topic/left", { topic, id: peer.id }, TO_ALL);
    },

    cards,

    put(draft, { peer, server }) {
      const card: Card = putCard({ ...draft, owner: cardOf(draft.id)?.owner ?? peer.data.name });
      server.peers.notify("changed", { card }, TO_ALL);
      log(`${peer.data.name} wrote "${card.text}"`);
      return card;
    },

    async remove({ id }, { peer, server, signal }) {
      const card = cardOf(id);
      if (card === undefined) throw new RpcError(404, "there is no such card");
      const question = `May ${peer.data.name} remove "${card.text}"?`;
      const owners = [...server.peers].filter(({ data }) => data.name === card.owner);
      if (card.owner !== peer.data.name && owners.length > 0 && !(await ask(owners, question, signal))) return false;
      removeCard(id);
      server.peers.notify("removed", { id }, TO_ALL);
      log(`${peer.data.name} removed "${card.text}"`);
      return true;
    },

    async import({ lines: texts }, { peer, server, signal, progress }) {
      for (const [i, text] of texts.entries()) {
        await delay(100, undefined, { signal });
        const card = putCard({ id: crypto.randomUUID(), text, isDone: false, owner: peer.data.name });
        server.peers.notify("changed", { card }, TO_ALL);
        progress({ done: i + 1 });
      }
      log(`${peer.data.name} imported ${texts.length} cards`);
      return texts.length;
    },

    async *log(_params, { signal }) {
      for await (const [line] of on(lines, "line", { signal })) yield line as string;
    },

    async upload({ name, content }, { peer, progress }) {
      const hash = createHash("sha256");
      let bytes = 0;
      for await (const base64 of peer.iterate(content)) {
        const part = Buffer.from(base64, "base64");
        bytes += part.length;
        if (bytes > MOST_UPLOADED_BYTES) throw new RpcError(413, "the file is too long");
        hash.update(part);
        progress({ done: bytes });
      }
      log(`${peer.data.name} uploaded ${name}`);
      return { bytes, sha256: hash.digest("hex") };
    },
  },
});
server.on("error", console.error);

/** Asks all windows of a user at once. The first answer counts, and the other windows are no longer asked. */
async function ask(windows: Visitor[], question: string, signal: AbortSignal): Promise<boolean> {
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

http.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1");
await once(http, "listening");
console.log(`board: http://localhost:${(http.address() as AddressInfo).port}`);

for (const signal of ["SIGTERM", "SIGINT"] as const) {
  process.once(signal, async () => {
    // Running handlers may end, and every page is told when to connect to the next process.
    await server.drain({ timeoutMs: 5_000, retryMs: 500 });
    http.close();
    http.closeAllConnections();
  });
}
