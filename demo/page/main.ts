/** The page: connects, joins, and connects each part to its messages. */
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

/** The peer, the same for all connections. Until it is set, the parts are inert, and none of them uses it. */
let peer!: Peer<ClientApi, ServerApi>;
/** The editor, once the person has opened it. */
let editor: rooms.Editor | undefined;
let you = "";
let voteTimeoutMs = 0;
/** The pieces drawn since the peer was suspended. They are queued in the session, and lost if the session is lost. */
let waiting: pen.Piece[] = [];

/** The methods that the server calls. */
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
 * Connects, and reconnects whenever the connection is lost. If the session is lost too, `onOpen` joins again and gets the
 * whole state, before anything else is sent.
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
  });
  peer.on("lost", () => {
    for (const piece of waiting) peer.notify("draw", piece);
    editor?.enter(peer);
  });
  peer.on("resume", () => status.show("back"));
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
  // Positions are not queued while the peer is suspended: they would be outdated.
  (place) => void (peer.state === "open" && peer.notify("move", place)),
);
chat.onSay((text) => peer.request("say", { text }));
reactions.onReact((emoji) => peer.notify("react", { emoji }));
profile.onChange((now) => void peer.request("rename", now).catch(complain));
// Its keys work even while the parts are inert.
pen.onUndo(() => void (parts.inert || peer.notify("undo")));
byId("clear", HTMLButtonElement).addEventListener("click", () => {
  const stop = vote.wait(voteTimeoutMs);
  void peer.request("clear").catch(complain).finally(stop);
});
status.onCut(() => void peer.request("cut").catch(complain));
byId("reload", HTMLButtonElement).addEventListener("click", () => location.reload());
void enter();
