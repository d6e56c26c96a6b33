/**
 * Serves one board and one editor, which all pages share. `npm run demo` starts it.
 *
 * Environment: PORT (3000; the next free one if it is taken; 0 for any), HOST (127.0.0.1, this machine only; README warns of
 * others), BOARD_FILE (keeps the board; by default a file for each port beside this program, and none if PORT is 0),
 * VOTE_TIMEOUT_MS (10000), SESSION_TTL_MS (60000), CUT_MS (5000).
 */
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import { bytes, bytesOf, RpcError, serve, type Peer, type Topic } from "reciproc/node";
import { clientContract, serverContract } from "./api.js";
import type { ClientApi, DocumentName, Person, Profile, ServerApi, Welcome } from "./api.js";
import { excerpts } from "./code.js";
import { SharedDocument } from "./documents.js";
import { serveFile } from "./files.js";
import { Journal } from "./journal.js";
import { LanguageServers } from "./languages.js";
import { Network } from "./network.js";
import { distinctProfile } from "./profiles.js";
import { Receipts } from "./receipts.js";
import { BoardState, type Entry } from "./state.js";
import { texts } from "./texts.js";
import { vote } from "./vote.js";

/** `peer.auth`: what `authenticate` returned for the newest socket. */
interface Seat {
  /** The name of the page on the network. */
  page: string;
}
/** A person who has joined. */
interface Guest {
  profile: Profile;
  roundTripMs?: number;
  /** The pings, one each second, since the page last answered one. */
  missedPings: number;
}
type Member = Peer<ServerApi, ClientApi, Seat>;

const timeFrom = (name: string, standard: number): number => Number(process.env[name] ?? standard);
const VOTE_TIMEOUT_MS = timeFrom("VOTE_TIMEOUT_MS", 10_000);
const SESSION_TTL_MS = timeFrom("SESSION_TTL_MS", 60_000);
const CUT_MS = timeFrom("CUT_MS", 5000);
/** A page that missed more pings is shown as away. */
const FEW_MISSED_PINGS = 3;
/** A page that missed more pings is out of reach. A page whose network was cut by the switch misses fewer. */
const MOST_MISSED_PINGS = FEW_MISSED_PINGS + CUT_MS / 1000;

const state = new BoardState();
/** The file of the board. It is read when the port is known. */
let journal: Journal | undefined;
const documents: Readonly<Record<DocumentName, SharedDocument>> = {
  "welcome.css": new SharedDocument("welcome.css", texts["welcome.css"]),
  "server.json": new SharedDocument("server.json", texts["server.json"]),
};
/** The people who have joined. */
const guests = new WeakMap<Member, Guest>();
const receipts = new Receipts();
let messages = 0;

const http = createServer((request, response) => void serveFile(request, response));
// Requests that are pipelined beyond this number get 503, and Node stops reading when 16 KiB of responses wait to be sent.
http.maxRequestsPerSocket = 100;

const network = new Network();
const languages = await LanguageServers.serve(http, network, SESSION_TTL_MS);
const server = await serve<ServerApi, ClientApi, Seat>({
  server: http,
  path: "/rpc",
  contract: serverContract,
  remote: clientContract,
  check: "both",
  // The longest message is a full document, pasted: in JSON a character takes six bytes at worst.
  limits: { maxConnections: 100, maxMessageBytes: 256 * 1024 },
  // How long the server keeps the session of a page that was cut off.
  session: { ttlMs: SESSION_TTL_MS },
  authenticate: async (request) => ({ page: await network.carry(request) }),

  /** Every call passes here, in both directions, and every message to a topic, once for all its peers. */
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
      // A window that crashed and was opened again gets its name back from the peer that it has left behind.
      const present = [...board].filter((other) => other !== peer && other.state === "open").map(profileOf);
      guests.set(peer, { profile: distinctProfile(profile, present), missedPings: 0 });
      board.add(peer);
      peer.notify("welcome", welcomeTo(peer));
      pushPeople();
    },
    resync(_params, { peer }) {
      peer.notify("welcome", welcomeTo(peer));
    },
    rename(profile, { peer }) {
      guests.get(peer)!.profile = profile;
      pushPeople();
    },
    draw({ stroke, size, points }, { peer }) {
      const drew = { id: idOf(peer, stroke), color: profileOf(peer).color, size, points: bytes(bytesOf(points)) };
      record({ drew });
      board.notify("drew", drew, { except: peer });
    },
    undo(_params, { peer }) {
      const id = state.newestStroke(idOf(peer, ""));
      if (id === undefined) return;
      record({ erased: id });
      board.notify("erased", { strokes: [id] });
    },
    move({ x, y }, { peer }) {
      // A slow page gets the newest place only.
      board.notify("moved", { id: peer.id, x, y }, { except: peer, latest: peer.id });
    },
    say({ id, text }, { peer }) {
      // The page sends a line again if it cannot know whether the line arrived.
      if (state.hasLine(id)) return;
      const line = { ...profileOf(peer), id, text: text.trim() };
      record({ said: line });
      board.notify("said", line);
    },
    react({ reaction }, { peer }) {
      board.notify("reacted", { reaction, ...profileOf(peer) }, { volatile: true });
    },
    async clear(_params, { peer, signal }) {
      const verdict = await vote(board, peer, voters, { timeoutMs: VOTE_TIMEOUT_MS, left: signal });
      if (verdict.outcome === "cleared") record({ cleared: true });
      board.notify("decided", verdict);
      return verdict;
    },
    open({ document, since }, { peer }) {
      editor.add(peer);
      return documents[document].open(since);
    },
    edit({ document, version, page, changes }, { peer }) {
      const before = documents[document].version;
      const updates = documents[document].edit(version, page, changes, peer.id);
      // The author gets its changes too, so that every page gets all changes in one order.
      if (updates.length > 0) editor.notify("edited", { document, version: before, by: peer.id, updates });
    },
    point({ document, version, anchor, head }, { peer }) {
      const caret = documents[document].point(peer.id, version, { anchor, head });
      if (caret === undefined) return;
      for (const other of Object.values(documents)) if (other !== documents[document]) other.leave(peer.id);
      editor.notify("pointed", caret, { except: peer, latest: peer.id });
    },
    cut(_params, { peer }) {
      network.cut(peer.auth.page, CUT_MS);
    },
    kill() {
      throw new RpcError(501, "There is only one process");
    },
    prepare: () => languages.prepare(),
    receipts: ({ from, to }, { peer }) => receipts.count(peer.auth.page, from, to),
    code: () => excerpts(),
  },
});

/** All peers that have joined. A peer that closes leaves the topic by itself. */
const board: Topic<ServerApi, ClientApi, Seat> = server.topic("board");
/** All peers that have opened a document. */
const editor: typeof board = server.topic("editor");
board.on("leave", ({ id }) => {
  for (const document of Object.values(documents)) document.leave(id);
  // Each page removes the carets of people who have left.
  pushPeople();
});
server.on("peer", (peer) => {
  peer.on("suspend", pushPeople);
  peer.on("resume", pushPeople);
});
server.on("error", (error) => process.stderr.write(`${inspect(error)}\n`));

const voters = { nameOf: (peer: Member) => profileOf(peer).name, isOutOfReach };

/** Applies an entry to the board, and writes it to the file. */
function record(entry: Entry): void {
  const gone = state.apply(entry);
  journal?.append(entry);
  if (gone.length > 0) board.notify("erased", { strokes: gone });
}

/** How many people the pages show as away. */
let awayCount = 0;

function pushPeople(): void {
  const people = everybody();
  awayCount = people.filter((person) => person.isAway).length;
  board.notify("people", { people }, { latest: "people" });
}

function welcomeTo(peer: Member): Welcome {
  return {
    you: peer.id,
    author: authorOf(peer),
    profile: profileOf(peer),
    people: everybody(),
    strokes: state.strokes,
    chat: [...state.chat],
    voteTimeoutMs: VOTE_TIMEOUT_MS,
    cutMs: CUT_MS,
  };
}

function everybody(): Person[] {
  return [...board].map((peer) => ({ id: peer.id, ...profileOf(peer), isAway: isAway(peer) }));
}

function profileOf(peer: Member): Profile {
  return guests.get(peer)!.profile;
}

/** Returns the id of a stroke, by its number in the page of its author. */
function idOf(author: Member, stroke: number | ""): string {
  return `${authorOf(author)}/${stroke}`;
}

/** Returns a public name of the page, which a restarted server gives it again. The name on the network is a secret of the page. */
function authorOf(peer: Member): string {
  const { page } = peer.auth;
  return page === "" ? peer.id : createHash("sha256").update(page).digest("base64url").slice(0, 12);
}

/** Returns true if a page has lost its connection, or answers no pings: it was closed, or crashed, or its computer sleeps. */
function isAway(peer: Member): boolean {
  return peer.state === "suspended" || guests.get(peer)!.missedPings > FEW_MISSED_PINGS;
}

function isOutOfReach(peer: Member): boolean {
  return guests.get(peer)!.missedPings > MOST_MISSED_PINGS;
}

/** Measures every round trip by a call, and reports it to all pages. */
setInterval(() => {
  for (const peer of board) {
    guests.get(peer)!.missedPings++;
    // A call to a suspended peer would measure the suspension.
    if (peer.state === "open") void measure(peer);
  }
  const roundTrips = [...board].flatMap((peer) => {
    const { roundTripMs: ms } = guests.get(peer)!;
    return ms === undefined ? [] : { id: peer.id, ms };
  });
  board.notify("stats", { perSecond: messages, roundTrips }, { volatile: true });
  if (everybody().filter((person) => person.isAway).length !== awayCount) pushPeople();
  messages = 0;
}, 1000);

async function measure(peer: Member): Promise<void> {
  const start = performance.now();
  try {
    await peer.request("ping", undefined, { timeoutMs: 5000 });
    Object.assign(guests.get(peer)!, { roundTripMs: performance.now() - start, missedPings: 0 });
  } catch {
    // The page is too slow or gone, so its last figure stays until it leaves the board.
  }
}

let port = Number(process.env["PORT"] ?? 3000);
if (!Number.isInteger(port) || port < 0 || port > 65535) {
  process.stderr.write(`PORT is no number from 0 to 65535: ${process.env["PORT"]}\n`);
  process.exit(64);
}
const isAnyPort = port === 0;
const listen = (): unknown => http.listen(port, process.env["HOST"] ?? "127.0.0.1");
http.on("listening", () => {
  const { port: taken } = http.address() as AddressInfo;
  // Not in a folder of all users, where another user could have put a file of this name.
  const standard = isAnyPort ? "" : fileURLToPath(new URL(`board-${taken}.jsonl`, import.meta.url));
  const file = process.env["BOARD_FILE"] ?? standard;
  if (file !== "") journal = new Journal(file, state);
  process.stdout.write(
    `reciproc demo: http://localhost:${taken}\nTwo people in one page: http://localhost:${taken}/split\n`,
  );
  if (file !== "") process.stdout.write(`The board is kept in ${file}\n`);
  // Only the editor needs them, so the page is served before. A failure is printed, and the editor shows it.
  languages.prepare().catch(() => {});
});
http.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code !== "EADDRINUSE" || ++port > 65535) throw error;
  listen();
});
listen();

// Closes every page with 1001 before the process exits. `once`: a second Ctrl+C does not wait.
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void stop());

async function stop(): Promise<void> {
  http.close();
  await Promise.all([server.close(), languages.close()]);
  process.exit();
}
