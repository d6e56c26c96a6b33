/**
 * Serves one board and one editor, which all pages share. `npm run demo` starts it.
 *
 * Environment: PORT (3000; the next free one if it is taken; 0 for any), HOST (127.0.0.1, this machine only; README warns of
 * others), VOTE_TIMEOUT_MS (10000), SESSION_TTL_MS (60000).
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { inspect } from "node:util";
import { ConnectionLostError, RpcError, serve, type Peer, type Topic } from "reciproc/node";
import type { Answer, ClientApi, DocumentName, Line, Person, Profile, ServerApi, Verdict } from "./api.js";
import { SharedDocument } from "./documents.js";
import { serveFile } from "./files.js";
import { schemas } from "./schemas.js";
import { LanguageServers } from "./languages.js";
import { Network } from "./network.js";
import { distinctProfile } from "./profiles.js";
import { Strokes } from "./strokes.js";
import { texts } from "./texts.js";

/** `peer.data`: the person on a connection. */
interface Seat {
  /** The name of the page on the network. */
  page: string;
  /** `undefined` until the person joins. */
  profile: Profile | undefined;
  roundTripMs: number | undefined;
  /** The pings, one each second, since the page last answered one. */
  missedPings: number;
}
type Member = Peer<ServerApi, ClientApi, Seat>;

const VOTE_TIMEOUT_MS = Number(process.env["VOTE_TIMEOUT_MS"] ?? 10_000);
const SESSION_TTL_MS = Number(process.env["SESSION_TTL_MS"] ?? 60_000);
const CUT_MS = 3000;
/** A page that missed more pings is out of reach. A page whose network was cut by the switch misses fewer. */
const MOST_MISSED_PINGS = 6;
const MOST_LINES = 100;

const strokes = new Strokes();
const chat: Line[] = [];
const documents: Readonly<Record<DocumentName, SharedDocument>> = {
  "welcome.css": new SharedDocument("welcome.css", texts["welcome.css"]),
  "server.json": new SharedDocument("server.json", texts["server.json"]),
};
let messages = 0;
let voting = false;

const http = createServer((request, response) => void serveFile(request, response));
// Requests that are pipelined beyond this number get 503, and Node stops reading when 16 KiB of responses wait to be sent.
http.maxRequestsPerSocket = 100;

const network = new Network();
const languages = new LanguageServers(http, network);
const server = await serve<ServerApi, ClientApi, Seat>({
  server: http,
  path: "/rpc",
  // The longest message is a full document, pasted: in JSON a character takes six bytes at worst.
  limits: { maxConnections: 100, maxMessageBytes: 256 * 1024 },
  // How long the server keeps the session of a page that was cut off.
  session: { ttlMs: SESSION_TTL_MS },
  authenticate: async (request) => ({
    page: await network.carry(request),
    profile: undefined,
    roundTripMs: undefined,
    missedPings: 0,
  }),
  schemas,

  /** Every call passes here, in both directions. */
  around({ direction, method, peer }, next) {
    messages++;
    const { profile } = (peer as Member).data;
    if (direction === "incoming" && method !== "join" && profile === undefined) throw new RpcError(401, "Join first");
    return next();
  },

  methods: {
    join(profile, { peer }) {
      // A window that crashed and was opened again gets its name back from the peer that it has left behind.
      const present = [...board].filter((other) => other !== peer && other.state === "open").map(profileOf);
      peer.data.profile = distinctProfile(profile, present);
      board.add(peer);
      peer.notify("welcome", {
        you: peer.id,
        profile: peer.data.profile,
        people: everybody(),
        strokes: strokes.all(),
        chat,
        voteTimeoutMs: VOTE_TIMEOUT_MS,
      });
      pushPeople();
    },
    rename(profile, { peer }) {
      peer.data.profile = profile;
      pushPeople();
    },
    draw({ stroke, size, points }, { peer }) {
      const piece = { id: `${peer.id}/${stroke}`, color: profileOf(peer).color, size, points };
      const gone = strokes.extend(piece);
      push("drew", piece, { except: peer });
      if (gone.length > 0) push("erased", { strokes: gone });
    },
    undo(_params, { peer }) {
      const id = strokes.newest(`${peer.id}/`);
      if (id === undefined) return;
      strokes.delete(id);
      push("erased", { strokes: [id] });
    },
    move({ x, y }, { peer }) {
      push("moved", { id: peer.id, x, y }, { except: peer });
    },
    say({ text }, { peer }) {
      const line = { ...profileOf(peer), text: text.trim() };
      if (chat.push(line) > MOST_LINES) chat.shift();
      push("said", line);
    },
    react({ emoji }, { peer }) {
      push("reacted", { emoji, ...profileOf(peer) });
    },
    async clear(_params, { peer, signal }) {
      if (voting) throw new RpcError(409, "A vote is under way already");
      voting = true;
      try {
        const verdict = await vote(peer, signal);
        if (verdict.outcome === "cleared") strokes.clear();
        push("decided", verdict);
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
      if (updates.length > 0) pushToEditors("edited", { document, version: before, by: peer.id, updates });
    },
    point({ document, version, anchor, head }, { peer }) {
      const caret = documents[document].point(peer.id, version, { anchor, head });
      if (caret === undefined) return;
      for (const other of Object.values(documents)) if (other !== documents[document]) other.leave(peer.id);
      pushToEditors("pointed", caret, { except: peer });
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

/** Notifies all peers of a topic. `around` is not called, because the message is encoded once for all peers. */
const pushTo =
  (topic: typeof board): typeof board.notify =>
  (method, ...args) => {
    messages += topic.size;
    topic.notify(method, ...args);
  };
const push = pushTo(board);
const pushToEditors = pushTo(editor);

function leave({ id }: Member): void {
  for (const document of Object.values(documents)) document.leave(id);
  // Each page removes the carets of people who have left.
  pushPeople();
}

function pushPeople(): void {
  push("people", { people: everybody() });
}

function everybody(): Person[] {
  return [...board].map((peer) => ({ id: peer.id, ...profileOf(peer), isAway: peer.state === "suspended" }));
}

function profileOf(peer: Member): Profile {
  return peer.data.profile!;
}

/**
 * Asks all other people at the same time. Clears if all who stayed within reach agreed. People who close their pages neither
 * agree nor object, but at least one person must agree then. Pages that crashed count as if they had not been there.
 */
async function vote(asker: Member, signal: AbortSignal): Promise<Verdict> {
  const by = profileOf(asker).name;
  const voters = [...board].filter((peer) => peer !== asker);
  const answers = await Promise.all(
    voters.map(async (voter) => ({ name: profileOf(voter).name, answer: await ask(voter, by, signal) })),
  );
  if (signal.aborted) return { by, outcome: "asker left", answers };
  const present = answers.filter(({ answer }) => answer !== "out of reach");
  const stayed = present.filter(({ answer }) => answer !== "left");
  const agreed = stayed.length > 0 && stayed.every(({ answer }) => answer === "agreed");
  return { by, outcome: agreed || present.length === 0 ? "cleared" : "kept", answers };
}

/** Calls a page, and returns its answer. `signal` aborts when the asker leaves, because the answer is not needed then. */
async function ask(voter: Member, by: string, signal: AbortSignal): Promise<Answer> {
  const timeoutMs = VOTE_TIMEOUT_MS;
  const unreachable = new AbortController();
  const watch = setInterval(() => void (isOutOfReach(voter) && unreachable.abort()), 250);
  try {
    const options = { timeoutMs, signal: AbortSignal.any([signal, unreachable.signal]) };
    const agreed: unknown = await voter.request("vote", { by, timeoutMs }, options);
    // The contract says boolean, but a value from the network must be checked.
    return agreed === true ? "agreed" : "refused";
  } catch (error) {
    if (error instanceof ConnectionLostError)
      return CLOSED_BY_PAGE.has((await voter.closed).code) ? "left" : "out of reach";
    return isOutOfReach(voter) || voter.state !== "open" ? "out of reach" : "did not answer";
  } finally {
    clearInterval(watch);
  }
}

/** The codes with which a page closes its connection. Any other code means that the connection or the page failed. */
const CLOSED_BY_PAGE = new Set([1000, 1001]);

function isOutOfReach({ data }: Member): boolean {
  return data.missedPings > MOST_MISSED_PINGS;
}

/** Measures every round trip by a call, and reports it to all pages. */
setInterval(() => {
  for (const peer of board) {
    peer.data.missedPings++;
    // A call to a suspended peer would measure the suspension.
    if (peer.state === "open") void measure(peer);
  }
  const roundTrips = [...board].flatMap(({ id, data: { roundTripMs: ms } }) => (ms === undefined ? [] : { id, ms }));
  push("stats", { perSecond: messages, roundTrips });
  messages = 0;
}, 1000);

async function measure(peer: Member): Promise<void> {
  const start = performance.now();
  try {
    await peer.request("ping", undefined, { timeoutMs: 5000 });
    peer.data.roundTripMs = performance.now() - start;
    peer.data.missedPings = 0;
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
