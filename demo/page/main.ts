/** The page: connects, says who it is, and ties each part to the messages it lives on. */
import { connect, type Context, type Handlers, type Peer } from "reciproc";
import type { ClientApi, Person, ServerApi, Stroke } from "../api.js";
import * as board from "./board.js";
import { curve } from "./chart.js";
import * as chat from "./chat.js";
import { byId } from "./dom.js";
import { complain, show } from "./notice.js";
import * as people from "./people.js";
import * as pen from "./pen.js";
import * as profile from "./profile.js";
import * as reactions from "./reactions.js";
import * as rooms from "./rooms.js";
import * as status from "./status.js";
import * as tabs from "./tabs.js";
import * as traffic from "./traffic.js";
import * as vote from "./vote.js";
import { wire } from "./wire.js";

const parts = byId("parts", HTMLElement);
const alarm = byId("ended", HTMLElement);
const showRate = curve("rate", 20, (perSecond) => `${perSecond}/s`);
const showTrip = curve("trip", 2, (ms) => `${ms.toFixed(1)} ms`);

/** Goes on from one connection to the next. Until it is there the parts are inert, and none of them uses it. */
let peer!: Peer<ClientApi, ServerApi>;
/** Once somebody has gone there. */
let editor: rooms.Editor | undefined;
let you = "";
let voteTimeoutMs = 0;
/** What was drawn here since the connection broke. It waits with the session; should that be lost, it has not arrived. */
let waiting: pen.Piece[] = [];

/** What the server may call here. */
const methods: Handlers<ClientApi, Context> = {
  welcome(now) {
    if (you !== "") show("The server did not know this page any more. Here is what it has now.");
    ({ you, voteTimeoutMs } = now);
    profile.adopt(now.profile);
    board.load(now.strokes);
    for (const piece of waiting) board.extend(strokeOf(piece));
    chat.load(now.chat);
    meet(now.people);
  },
  vote: (params, { signal }) => vote.ask(params, signal),
  ping: () => {},
  people: ({ people: now }) => meet(now),
  drew: board.extend,
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

/**
 * Connects, for good: what is lost is brought back by the session, and where there is none any more, by beginning again. Then
 * `onOpen` asks for all there is, before anything else is sent.
 */
async function enter(): Promise<void> {
  try {
    peer = await connect<ServerApi, ClientApi>(wire("/rpc"), {
      around: traffic.around,
      methods,
      reconnect: { initial: true },
      onOpen: (server) => server.request("join", profile.read()),
    });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return ended(`The server did not let you in: ${why}`);
  }
  peer.on("suspend", () => {
    waiting = [];
    status.show("reconnecting");
    editor?.away();
  });
  peer.on("lost", () => {
    for (const piece of waiting) peer.notify("draw", piece);
    editor?.enter(peer);
  });
  peer.on("resume", () => {
    status.show("back");
    editor?.back();
  });
  void peer.closed.then(({ code, reason }) => {
    ended(
      `The connection ended (${[code, reason].filter(Boolean).join(" ")}). What you see is what was there until then.`,
    );
  });
  parts.inert = false;
  editor?.enter(peer);
  status.show("live");
}

function ended(why: string): void {
  byId("why", HTMLElement).textContent = why;
  parts.inert = true;
  alarm.hidden = false;
  status.show("closed");
}

function meet(now: readonly Person[]): void {
  people.show(now, you);
  editor?.meet(now, you);
}

function strokeOf({ stroke, ...line }: pen.Piece): Stroke {
  return { ...line, id: `${you}/${stroke}`, color: profile.read().color };
}

tabs.start();
rooms.start((loaded) => {
  editor = loaded;
  editor.meet(people.here(), you);
  if (!parts.inert) editor.enter(peer);
});
pen.start(
  (piece) => {
    board.extend(strokeOf(piece));
    if (peer.state === "suspended") waiting.push(piece);
    peer.notify("draw", piece);
  },
  // Where a pointer was while nobody could see it, nobody wants to know afterwards.
  (place) => void (peer.state === "open" && peer.notify("move", place)),
);
chat.onSay((text) => peer.request("say", { text }));
reactions.onReact((emoji) => peer.notify("react", { emoji }));
profile.onChange((now) => void peer.request("rename", now).catch(complain));
// By its keys it can be called while the parts are inert.
pen.onUndo(() => void (parts.inert || peer.notify("undo")));
byId("clear", HTMLButtonElement).addEventListener("click", () => {
  const stop = vote.wait(voteTimeoutMs);
  void peer.request("clear").catch(complain).finally(stop);
});
status.onCut(() => void peer.request("cut").catch(complain));
byId("reload", HTMLButtonElement).addEventListener("click", () => location.reload());
void enter();
