/** The page: opens its peer, and connects each part to its messages. */
import {
  bytes,
  live,
  ConnectionLostError,
  ErrorCode,
  open,
  RpcError,
  type Context,
  type Handlers,
  type Peer,
} from "reciproc";
import type { ClientApi, Person, Reaction, ServerApi, Stroke } from "../api.js";
import * as board from "./board.js";
import { curve } from "./chart.js";
import * as chat from "./chat.js";
import * as code from "./code.js";
import * as delivery from "./delivery.js";
import { byId } from "./dom.js";
import * as guide from "./guide.js";
import { complain, inWords, show } from "./notice.js";
import * as outage from "./outage.js";
import * as people from "./people.js";
import * as pen from "./pen.js";
import * as profile from "./profile.js";
import * as reactions from "./reactions.js";
import * as recovery from "./recovery.js";
import * as rooms from "./rooms.js";
import * as status from "./status.js";
import * as tabs from "./tabs.js";
import * as traffic from "./traffic.js";
import * as vote from "./vote.js";
import { wire } from "./wire.js";

const parts = byId("parts", HTMLElement);
const showRate = curve("rate", 20, (perSecond) => `${perSecond}/s`);
const showTrip = curve("trip", 2, (ms) => `${ms.toFixed(1)} ms`);

/** The editor, once the person has opened it. */
let editor: rooms.Editor | undefined;
let you = "";
let author = "";
let voteTimeoutMs = 0;
let cutMs = 0;
/** Whether the session is lost, and the state of the next one has not arrived yet. */
let isLost = false;

/** The methods that the server calls. */
const methods: Handlers<ClientApi, Context> = {
  welcome(now) {
    if (isLost) show("The server did not know this page any more. Here is what it has now.");
    isLost = false;
    ({ you, author, voteTimeoutMs, cutMs } = now);
    profile.adopt(now.profile);
    board.load(now.strokes);
    recovery.loaded(now.node);
    // Several nodes send each piece back, when it is logged.
    if (now.node === undefined)
      for (const piece of delivery.waitingParams<DrawParams>("draw")) board.extend(strokeOf(piece), true);
    chat.load(now.chat);
    meet(now.people);
  },
  arrived(now) {
    isLost = false;
    ({ you } = now);
    profile.adopt(now.profile);
    meet(now.people);
    recovery.arrived(now);
  },
  vote: (params, { signal }) => vote.ask(params, signal),
  ping: () => {},
  people: ({ people: now }) => meet(now),
  drew(piece) {
    // It is on the board since it was drawn.
    if (!recovery.isOwn(piece, author)) board.extend(piece);
  },
  erased: ({ strokes }) => board.erase(strokes),
  moved: people.move,
  said: chat.show,
  reacted: reactions.float,
  decided(verdict) {
    if (verdict.outcome === "cleared") board.load([]);
    vote.decide(verdict);
  },
  edited: (edit) => editor?.edited(edit),
  pointed: (caret) => editor?.pointed(caret),
  stats({ perSecond, roundTrips }) {
    showRate(perSecond);
    people.measure(roundTrips);
    const mine = roundTrips.find(({ id }) => id === you);
    if (mine !== undefined) showTrip(mine.ms);
  },
};

/** The peer of all connections. Calls and notifications are queued until it is open, and while it is suspended. */
const peer: Peer<ClientApi, ServerApi> = open<ServerApi, ClientApi>(wire("/rpc"), {
  methods,
  // Every call passes these, in both directions.
  around: [(call, next) => (code.showCall(call), next()), delivery.around, recovery.around, traffic.around],
  use: [bytes, live],
  reconnect: { initial: true },
  // On the first connection and on each later one without the session. Nothing else is sent before it.
  onOpen: (server) => server.request("join", { ...profile.read(), since: recovery.since() }).catch(refused),
});
peer.on("suspend", () => {
  delivery.suspended();
  status.show("reconnecting");
  code.show("cut");
});
peer.on("attempt", (attempt) => outage.waits(attempt, () => void peer.reconnect()));
peer.on("lost", () => {
  isLost = true;
  delivery.sendAgain(peer, recovery.lost());
  editor?.enter(peer);
});
peer.on("resume", () => {
  connected("back");
  editor?.reconnect();
  void delivery.resumed(peer);
});
// Broadcasts were dropped, because this page read too slowly or was away for long.
peer.on("missed", () => void peer.notify("resync"));
peer.opened.then(() => {
  delivery.opened();
  connected("live");
}, notLetIn);
void peer.closed.then(({ code: closeCode, reason }) => {
  const why = [closeCode, reason].filter(Boolean).join(" ");
  ended(`The connection ended (${why}). What you see is what was there until then.`);
});

function connected(how: "live" | "back"): void {
  outage.end();
  board.sent();
  status.show(how);
}

/** Closes the peer if the server refused the profile, because each new attempt would send the same one. */
function refused(error: unknown): void {
  if (!(error instanceof RpcError && error.code === ErrorCode.InvalidParams)) throw error;
  notLetIn(error);
  void peer.close();
}

function notLetIn(error: unknown): void {
  ended(`The server did not let you in: ${inWords(error)}`);
}

/** Shows why the peer has ended. The first reason stays. */
function ended(why: string): void {
  if (status.state() === "closed") return;
  outage.end();
  byId("why", HTMLElement).textContent = why;
  parts.inert = true;
  byId("ended", HTMLElement).hidden = false;
  status.show("closed");
}

function meet(now: readonly Person[]): void {
  people.show(now, you);
  editor?.meet(now, you);
  if (now.length > 1) guide.tickOff("window");
}

type DrawParams = Omit<Stroke, "id" | "color"> & { stroke: number };

function strokeOf({ stroke, size, points }: DrawParams): Stroke {
  return { id: `${author}/${stroke}`, color: profile.read().color, size, points };
}

function draw({ points, ...piece }: pen.Piece): void {
  const params = { ...piece, points: bytes(Uint16Array.from(points)) };
  peer.notify("draw", params);
  board.extend(strokeOf(params), peer.state !== "open");
}

function move(place: { x: number; y: number }): void {
  // While the network is away, only the newest place waits.
  peer.notify("move", place, { latest: "place" });
}

async function say(line: { id: string; text: string }): Promise<void> {
  try {
    await peer.request("say", line, { retry: "not-sent", timeoutMs: Infinity });
  } catch (error) {
    if (!(error instanceof ConnectionLostError) || peer.state === "closed") throw error;
    // It may have arrived. The server ignores a line that it has already.
    await say(line);
  }
}

function react(reaction: Reaction): void {
  peer.notify("react", { reaction });
}

function undo(): void {
  peer.notify("undo");
}

async function clear(): Promise<void> {
  const stop = vote.wait(voteTimeoutMs);
  try {
    // The server asks all others before it answers.
    await peer.request("clear", undefined, { timeoutMs: Infinity });
    guide.tickOff("clear");
  } catch (error) {
    complain(error);
  } finally {
    stop();
  }
}

async function cut(): Promise<void> {
  outage.cut(cutMs);
  try {
    await peer.request("cut");
    guide.tickOff("cut");
  } catch (error) {
    complain(error);
  }
}

tabs.start();
rooms.start((loaded) => {
  editor = loaded;
  editor.meet(people.here(), you);
  editor.enter(peer);
});
pen.start((piece) => {
  draw(piece);
  guide.tickOff("draw");
}, move);
chat.onSay(profile.read, say);
reactions.onReact(react);
profile.onChange((now) => void peer.request("rename", now, { retry: "not-sent" }).catch(complain));
// Its keys work even while the parts are inert.
pen.onUndo(() => parts.inert || undo());
byId("clear", HTMLButtonElement).addEventListener("click", () => void clear());
status.onKill(() => peer.notify("kill"));
const pressCut = status.onCut(() => void cut());
guide.start({
  draw() {
    pen.focus();
    show("Draw on the board: with the mouse, with a finger, or with the arrow keys and Space.");
  },
  cut: pressCut,
  clear: () => void clear(),
});
code.start(() => peer.request("code"));
byId("reload", HTMLButtonElement).addEventListener("click", () => location.reload());
