/**
 * One node of the demo on several: `start.ts` starts it with its name and the address of Redis. The page is the same as on one
 * server. What is drawn and said is logged, so that a page whose node is gone gets it from any other. There is no editor: its
 * documents are in one process.
 *
 * Environment: VOTE_TIMEOUT_MS (10000), SESSION_TTL_MS (60000), CUT_MS (5000).
 */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { networkInterfaces } from "node:os";
import { inspect } from "node:util";
import { bytes, bytesOf, ConnectionLostError, RpcError, serve, type Peer } from "reciproc/node";
import { redis } from "reciproc/redis";
import { clientContract, serverContract } from "../api.js";
import type { Answer, ClientApi, Person, Profile, ServerApi, Verdict } from "../api.js";
import { excerpts } from "../code.js";
import { serveFile } from "../files.js";
import { Network } from "../network.js";
import { distinctProfile } from "../profiles.js";
import { Receipts } from "../receipts.js";
import { verdictOf } from "../vote.js";
import { SharedBoard } from "./shared-board.js";

const [name, url] = process.argv.slice(2) as [string, string];

/** `peer.auth`: the name of the page on the network. */
interface Seat {
  page: string;
}
/** What other nodes see of a person. */
interface Presence extends Profile {
  author: string;
  /** Whether the page has lost its connection. */
  isAway: boolean;
  /** When the page joined. The newest is shown: a page whose node was killed is a member twice until the node is given up. */
  joinedAt: number;
}
type Member = Peer<ServerApi, ClientApi, Seat>;

/** The members of a node that was killed are gone after 4 s. */
const LEASE_MS = 3_000;
const VOTE_TIMEOUT_MS = Number(process.env["VOTE_TIMEOUT_MS"] ?? 10_000);
const SESSION_TTL_MS = Number(process.env["SESSION_TTL_MS"] ?? 60_000);
const CUT_MS = Number(process.env["CUT_MS"] ?? 5_000);
/** After a failure, the people are listed again. */
const RETRY_MS = 1_000;

const guests = new WeakMap<Member, Presence>();
/** The last round trip of each page. */
const roundTrips = new WeakMap<Member, number>();
const receipts = new Receipts();
const network = new Network();
let messages = 0;
let retry: NodeJS.Timeout | undefined;

/** The addresses of this machine, which pages of other machines name: `start.ts` passes their connections on from a loopback address. */
const hosts = Object.values(networkInterfaces()).flatMap((addresses = []) =>
  addresses.map(({ address, family }) => (family === "IPv6" ? `[${address}]` : address)),
);

const http = createServer((request, response) => void serveFile(request, response));
const server = await serve<ServerApi, ClientApi, Seat>({
  server: http,
  path: "/rpc",
  hosts,
  contract: serverContract,
  remote: clientContract,
  check: "both",
  limits: { maxConnections: 100, maxMessageBytes: 256 * 1024 },
  // A page that lost its socket asks for this node, which has its session.
  session: { ttlMs: SESSION_TTL_MS, route: name },
  engine: redis({ url, prefix: "demo", leaseMs: LEASE_MS }),
  topics: () => ({ log: { length: 10_000, bytes: 2 ** 26, ttlMs: 86_400_000 }, members: true }),
  nodes: { methods: { changed: () => pushPeople() } },
  authenticate: async (request) => ({ page: await network.carry(request) }),

  around(call, next) {
    messages += call.peer === undefined ? call.peers.length : 1;
    if (call.direction === "outgoing") return next();
    const peer = call.peer as Member;
    if (call.method !== "join" && !guests.has(peer)) throw new RpcError(401, "Join first");
    receipts.note(peer.auth.page, call.params);
    return next();
  },

  methods: {
    join(profile, { peer }) {
      const { since, ...wish } = profile;
      return enter(peer, wish, since);
    },
    async resync(_params, { peer }) {
      await load(peer);
    },
    async rename({ name: called, color }, { peer }) {
      await change(peer, { name: called, color });
    },
    async draw({ stroke, size, points, n }, { peer }) {
      const { author, color } = guests.get(peer)!;
      const piece = { id: `${author}/${stroke}`, color, size, points: bytes(bytesOf(points)), n };
      // All pages get it when it is logged, this one too. The key: a piece that is sent again is logged once.
      await board.publish("drew", piece, { key: n === undefined ? undefined : `${author}/${n}` });
    },
    async undo(_params, { peer }) {
      await shared.update();
      const id = shared.state.newestStroke(`${guests.get(peer)!.author}/`);
      if (id !== undefined) await board.publish("erased", { strokes: [id] });
    },
    move({ x, y }, { peer }) {
      board.notify("moved", { id: peer.id, x, y }, { except: peer, latest: peer.id });
    },
    async say({ id, text }, { peer }) {
      // The page sends a line again if it cannot know whether the line was logged.
      await board.publish("said", { ...profileOf(peer), id, text: text.trim() }, { key: id });
    },
    react({ reaction }, { peer }) {
      board.notify("reacted", { reaction, ...profileOf(peer) }, { volatile: true });
    },
    async clear(_params, { peer, signal }) {
      const verdict = await vote(peer, signal);
      if (verdict.outcome === "cleared") await board.publish("decided", verdict);
      else board.notify("decided", verdict);
      return verdict;
    },
    cut(_params, { peer }) {
      network.cut(peer.auth.page, CUT_MS);
    },
    receipts: ({ from, to }, { peer }) => receipts.count(peer.auth.page, from, to),
    kill: () => void process.kill(process.pid, "SIGKILL"),
    code: () => excerpts("nodes/node.ts"),
    prepare: refuseEditor,
    open: refuseEditor,
    edit: refuseEditor,
    point: refuseEditor,
  },
});
const board = server.topic("board");
const shared = new SharedBoard(board);

/** Makes a page a member, and sends it what it missed since a position, or everything. */
async function enter(peer: Member, wish: Profile, since: string | undefined): Promise<void> {
  const author = authorOf(peer);
  const others = (await present()).filter((other) => other.author !== author);
  const as = { ...distinctProfile(wish, others), author, isAway: false, joinedAt: Date.now() };
  guests.set(peer, as);
  // What the page missed is sent before this resolves.
  const { at, outcome } = since === undefined ? { outcome: "gap" } : await board.join(peer, { since, as });
  const isComplete = outcome === "complete";
  const position = isComplete ? at : await load(peer);
  const you = personOf({ ...as, id: peer.id });
  const people = [...others.map(personOf), you];
  peer.notify("arrived", { node: name, you: peer.id, profile: profileOf(peer), people, isComplete, at: position });
  pushPeople();
}

/** Changes what others see of a person, on all nodes. */
async function change(peer: Member, now: Partial<Presence>): Promise<void> {
  const as = Object.assign(guests.get(peer)!, now);
  await board.join(peer, { as });
  pushPeople();
  server.nodes.notify("changed");
}

/** Sends a page the whole board, and makes it a member that misses nothing after that. Returns its position in the log. */
async function load(peer: Member): Promise<string | undefined> {
  const as = guests.get(peer)!;
  for (;;) {
    board.delete(peer);
    const people = (await present()).map(personOf);
    await shared.update();
    const { at: since, state } = shared;
    peer.notify("welcome", {
      node: name,
      you: peer.id,
      author: as.author,
      profile: profileOf(peer),
      people,
      strokes: state.strokes,
      chat: [...state.chat],
      voteTimeoutMs: VOTE_TIMEOUT_MS,
      cutMs: CUT_MS,
    });
    const { at, outcome } = await board.join(peer, { since, as });
    if (outcome === "complete") return at;
  }
}

/** Asks all other people on all nodes whether the board may be cleared. */
async function vote(asker: Member, left: AbortSignal): Promise<Verdict> {
  const by = profileOf(asker).name;
  const ask = async (id: string): Promise<Answer> => {
    try {
      const timeoutMs = VOTE_TIMEOUT_MS;
      const hasAgreed = await server.peer(id).request("vote", { by, timeoutMs }, { timeoutMs, signal: left });
      return hasAgreed ? "agreed" : "refused";
    } catch (error) {
      return error instanceof ConnectionLostError ? "out of reach" : "did not answer";
    }
  };
  const others = (await present()).filter(({ id }) => id !== asker.id);
  const answers = others.map(async ({ id, name: called }) => ({ name: called, answer: await ask(id) }));
  return verdictOf(by, await Promise.all(answers), left.aborted);
}

function refuseEditor(): never {
  throw new RpcError(501, "The editor needs the demo on one process");
}

/** Sends the people on all nodes to the pages of this node. */
function pushPeople(): void {
  present().then(
    (all) => board.notify("people", { people: all.map(personOf) }, { latest: "people", here: true }),
    () => {
      // The broker is away, or too slow.
      clearTimeout(retry);
      retry = setTimeout(pushPeople, RETRY_MS);
    },
  );
}

/** Returns the people on all nodes, each once. */
async function present(): Promise<(Presence & { id: string })[]> {
  const members = (await board.members()).map(({ id, as }) => ({ id, ...(as as Presence) }));
  const newest = new Map<string, Presence & { id: string }>();
  members.sort((a, b) => a.joinedAt - b.joinedAt);
  for (const member of members) newest.set(member.author, member);
  return [...newest.values()];
}

/** Returns what pages see of a person. */
function personOf({ id, name: called, color, isAway }: Presence & { id: string }): Person {
  return { id, name: called, color, isAway };
}

function profileOf(peer: Member): Profile {
  const { name: called, color } = guests.get(peer)!;
  return { name: called, color };
}

/** Returns a public name of the page, which is the same on each node. The name on the network is a secret of the page. */
function authorOf(peer: Member): string {
  const { page } = peer.auth;
  return page === "" ? peer.id : createHash("sha256").update(page).digest("base64url").slice(0, 12);
}

board.watch(pushPeople);
server.on("peer", (peer) => {
  const note = (isAway: boolean) => (): void => {
    if (!board.has(peer)) return;
    change(peer, { isAway }).catch((error: unknown) => {
      // A peer that closed meanwhile is no member. The broker may be away: the next change follows.
      if (peer.state !== "closed") report(error);
    });
  };
  peer.on("suspend", note(true));
  peer.on("resume", note(false));
});
// This node missed what the log no longer has.
server.on("gap", () => {
  for (const peer of board) load(peer).catch(report);
});
server.on("engine", ({ state }) => process.stdout.write(`${name}: Redis is ${state}\n`));
server.on("error", report);

function report(error: unknown): void {
  process.stderr.write(`${name}: ${inspect(error)}\n`);
}

/** Measures the round trip of each page of this node, and reports it to them. */
setInterval(() => {
  for (const peer of board) if (peer.state === "open") void measure(peer);
  const trips = [...board].flatMap((peer) => {
    const ms = roundTrips.get(peer);
    return ms === undefined ? [] : { id: peer.id, ms };
  });
  board.notify("stats", { perSecond: messages, roundTrips: trips }, { volatile: true, here: true });
  messages = 0;
}, 1_000);

async function measure(peer: Member): Promise<void> {
  const start = performance.now();
  try {
    await peer.request("ping", undefined, { timeoutMs: 5_000 });
    roundTrips.set(peer, performance.now() - start);
  } catch {
    // The page is too slow or gone, so its last figure stays.
  }
}

http.listen(0, "127.0.0.1");
await once(http, "listening");
// Ctrl+C reaches all processes. `start.ts` says when this one ends, which may be before it has started.
process.on("SIGINT", () => {});
process.on("disconnect", () => void end());
if (process.connected) process.send!({ port: (http.address() as AddressInfo).port });
else void end();

async function end(): Promise<void> {
  await server.drain({ timeoutMs: 2_000, retryMs: 500 });
  process.exit();
}
