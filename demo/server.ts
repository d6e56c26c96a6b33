/**
 * Serves one board and one editor, which all pages share. `npm run demo` starts it.
 *
 * Environment: PORT (3000; the next free one if it is taken; 0 for any), HOST (127.0.0.1, this machine only; README warns of
 * others), VOTE_TIMEOUT_MS (10000), SESSION_TTL_MS (60000), CUT_MS (3000).
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { inspect } from "node:util";
import { ConnectionLostError, RpcError, serve, type Peer, type PeerOutcome, type Topic } from "reciproc/node";
import type { ClientApi, DocumentName, Line, Person, Profile, ServerApi, Verdict } from "./api.js";
import { SharedDocument } from "./documents.js";
import { serveFile } from "./files.js";
import { schemas } from "./schemas.js";
import { LanguageServers } from "./languages.js";
import { Network } from "./network.js";
import { distinctProfile } from "./profiles.js";
import { Strokes } from "./strokes.js";
import { texts } from "./texts.js";

/** `peer.data`: what `authenticate` returned for the newest socket. */
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

const VOTE_TIMEOUT_MS = Number(process.env["VOTE_TIMEOUT_MS"] ?? 10_000);
const SESSION_TTL_MS = Number(process.env["SESSION_TTL_MS"] ?? 60_000);
const CUT_MS = Number(process.env["CUT_MS"] ?? 3000);
/** A page that missed more pings is out of reach. A page whose network was cut by the switch misses fewer. */
const MOST_MISSED_PINGS = 3 + CUT_MS / 1000;
const MOST_LINES = 100;

const strokes = new Strokes();
const chat: Line[] = [];
const documents: Readonly<Record<DocumentName, SharedDocument>> = {
  "welcome.css": new SharedDocument("welcome.css", texts["welcome.css"]),
  "server.json": new SharedDocument("server.json", texts["server.json"]),
};
/** The people who have joined. Not in `peer.data`, which is replaced when a page resumes its session. */
const guests = new WeakMap<Member, Guest>();
let messages = 0;
let voting = false;

const http = createServer((request, response) => void serveFile(request, response));
// Requests that are pipelined beyond this number get 503, and Node stops reading when 16 KiB of responses wait to be sent.
http.maxRequestsPerSocket = 100;

const network = new Network();
const languages = await LanguageServers.serve(http, network, SESSION_TTL_MS);
const server = await serve<ServerApi, ClientApi, Seat>({
  server: http,
  path: "/rpc",
  // The longest message is a full document, pasted: in JSON a character takes six bytes at worst.
  limits: { maxConnections: 100, maxMessageBytes: 256 * 1024 },
  // How long the server keeps the session of a page that was cut off.
  session: { ttlMs: SESSION_TTL_MS },
  authenticate: async (request) => ({ page: await network.carry(request) }),
  schemas,

  /** Every call passes here, in both directions, and every message to a topic, once for all its peers. */
  around(call, next) {
    messages += call.peer === undefined ? call.peers.length : 1;
    if (call.direction === "incoming" && call.method !== "join" && !guests.has(call.peer as Member))
      throw new RpcError(401, "Join first");
    return next();
  },

  methods: {
    join(profile, { peer }) {
      // A window that crashed and was opened again gets its name back from the peer that it has left behind.
      const present = [...board].filter((other) => other !== peer && other.state === "open").map(profileOf);
      guests.set(peer, { profile: distinctProfile(profile, present), missedPings: 0 });
      board.add(peer);
      peer.notify("welcome", {
        you: peer.id,
        profile: profileOf(peer),
        people: everybody(),
        strokes: strokes.all(),
        chat,
        voteTimeoutMs: VOTE_TIMEOUT_MS,
      });
      pushPeople();
    },
    rename(profile, { peer }) {
      guests.get(peer)!.profile = profile;
      pushPeople();
    },
    draw({ stroke, size, points }, { peer }) {
      const piece = { id: `${peer.id}/${stroke}`, color: profileOf(peer).color, size, points };
      const gone = strokes.extend(piece);
      board.notify("drew", piece, { except: peer });
      if (gone.length > 0) board.notify("erased", { strokes: gone });
    },
    undo(_params, { peer }) {
      const id = strokes.newest(`${peer.id}/`);
      if (id === undefined) return;
      strokes.delete(id);
      board.notify("erased", { strokes: [id] });
    },
    move({ x, y }, { peer }) {
      board.notify("moved", { id: peer.id, x, y }, { except: peer });
    },
    say({ text }, { peer }) {
      const line = { ...profileOf(peer), text: text.trim() };
      if (chat.push(line) > MOST_LINES) chat.shift();
      board.notify("said", line);
    },
    react({ emoji }, { peer }) {
      board.notify("reacted", { emoji, ...profileOf(peer) });
    },
    async clear(_params, { peer, signal }) {
      if (voting) throw new RpcError(409, "A vote is under way already");
      voting = true;
      try {
        const verdict = await vote(peer, signal);
        if (verdict.outcome === "cleared") strokes.clear();
        board.notify("decided", verdict);
        return verdict;
      } finally {
        voting = false;
      }
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
      editor.notify("pointed", caret, { except: peer });
    },
    cut(_params, { peer }) {
      network.cut(peer.data.page, CUT_MS);
    },
  },
});

/** All peers that have joined. A peer that closes leaves the topic by itself. */
const board: Topic<ServerApi, ClientApi, Seat> = server.topic("board");
/** All peers that have opened a document. */
const editor: typeof board = server.topic("editor");
server.on("peer", (peer) => {
  peer.on("suspend", pushPeople);
  peer.on("resume", pushPeople);
  peer.on("close", () => leave(peer));
});
server.on("error", (error) => process.stderr.write(`${inspect(error)}\n`));

function leave({ id }: Member): void {
  for (const document of Object.values(documents)) document.leave(id);
  // Each page removes the carets of people who have left.
  pushPeople();
}

function pushPeople(): void {
  board.notify("people", { people: everybody() });
}

function everybody(): Person[] {
  return [...board].map((peer) => ({ id: peer.id, ...profileOf(peer), isAway: peer.state === "suspended" }));
}

function profileOf(peer: Member): Profile {
  return guests.get(peer)!.profile;
}

/**
 * Asks all other people at the same time. Clears if all who stayed within reach agreed. People who close their pages neither
 * agree nor object, but at least one person must agree then. Pages that crashed count as if they had not been there.
 */
async function vote(asker: Member, left: AbortSignal): Promise<Verdict> {
  const { name: by } = profileOf(asker);
  const timeoutMs = VOTE_TIMEOUT_MS;
  using unreachable = whenUnreachable([...board].filter((peer) => peer !== asker));
  const signal = AbortSignal.any([left, unreachable.signal]);
  const outcomes = await board.request("vote", { by, timeoutMs }, { timeoutMs, signal, except: asker });
  const answers = await Promise.all(outcomes.map(answerOf));
  if (left.aborted) return { by, outcome: "asker left", answers };
  const present = answers.filter(({ answer }) => answer !== "out of reach");
  const stayed = present.filter(({ answer }) => answer !== "left");
  const agreed = stayed.length > 0 && stayed.every(({ answer }) => answer === "agreed");
  return { by, outcome: agreed || present.length === 0 ? "cleared" : "kept", answers };
}

/** Returns the answer of a page, and the name of its person. */
async function answerOf(outcome: PeerOutcome<Member, unknown>): Promise<Verdict["answers"][number]> {
  const { peer, status } = outcome;
  const { name } = profileOf(peer);
  // The contract says boolean, but a value from the network must be checked.
  if (status === "fulfilled") return { name, answer: outcome.value === true ? "agreed" : "refused" };
  if (outcome.reason instanceof ConnectionLostError)
    return { name, answer: CLOSED_BY_PAGE.has((await peer.closed).code) ? "left" : "out of reach" };
  return { name, answer: isOutOfReach(peer) || peer.state !== "open" ? "out of reach" : "did not answer" };
}

/** Returns a signal that aborts when each of these pages has answered or is out of reach. Then the vote need not wait longer. */
function whenUnreachable(peers: readonly Member[]): { signal: AbortSignal; [Symbol.dispose](): void } {
  const controller = new AbortController();
  // A page that has not answered has a pending call.
  const isDone = (peer: Member): boolean => isOutOfReach(peer) || peer.stats().pending === 0;
  const watch = setInterval(() => void (peers.every(isDone) && controller.abort()), 250);
  return { signal: controller.signal, [Symbol.dispose]: () => clearInterval(watch) };
}

/** The codes with which a page closes its connection. Any other code means that the connection or the page failed. */
const CLOSED_BY_PAGE = new Set([1000, 1001]);

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
  board.notify("stats", { perSecond: messages, roundTrips });
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
const listen = (): unknown => http.listen(port, process.env["HOST"] ?? "127.0.0.1");
http.on("listening", () => {
  const { port: taken } = http.address() as AddressInfo;
  process.stdout.write(`reciproc demo: http://localhost:${taken}\nOpen it in two windows, side by side.\n`);
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
