/** The page: connects, says who it is, and ties each part to the messages it lives on. */
import { connect, RpcError, type Context, type Handlers, type Peer } from "reciproc";
import type { ClientApi, ServerApi } from "../api.js";
import * as board from "./board.js";
import { curve } from "./chart.js";
import * as chat from "./chat.js";
import { byId } from "./dom.js";
import { complain } from "./notice.js";
import * as people from "./people.js";
import * as pen from "./pen.js";
import * as profile from "./profile.js";
import * as reactions from "./reactions.js";
import * as rooms from "./rooms.js";
import * as tabs from "./tabs.js";
import * as traffic from "./traffic.js";
import * as vote from "./vote.js";

const parts = byId("parts", HTMLElement);
const status = byId("status", HTMLElement);
const alarm = byId("lost", HTMLElement);
const reconnect = byId("reconnect", HTMLButtonElement);
const showRate = curve("rate", 20, (perSecond) => `${perSecond}/s`);
const showTrip = curve("trip", 2, (ms) => `${ms.toFixed(1)} ms`);

/** The newest connection. Until there is one the parts are inert, and none of them uses it. */
let peer!: Peer<ClientApi, ServerApi>;
/** Once somebody has gone there. */
let editor: rooms.Editor | undefined;
let you = "";
let voteTimeoutMs = 0;

/** What the server may call here. */
const methods: Handlers<ClientApi, Context> = {
  vote: (params, { signal }) => vote.ask(params, signal),
  ping: () => {},
  people({ people: now }) {
    people.show(now, you);
    editor?.meet(now);
  },
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

/** Connects and joins: when the page opens, and at each reconnect. Until the welcome the page keeps what it shows. */
async function enter(): Promise<void> {
  status.textContent = "Connecting";
  reconnect.disabled = true;
  try {
    const opened = await connect<ServerApi, ClientApi>("/rpc", { around: traffic.around, methods });
    const welcome = await opened.request("join", profile.read()).catch((error: unknown) => {
      void opened.close();
      throw error;
    });
    peer = opened;
    ({ you, voteTimeoutMs } = welcome);
    board.load(welcome.strokes);
    chat.load(welcome.chat);
    people.show(welcome.people, you);
    editor?.enter(peer, you, welcome.people);
    setOnline(true);
    void opened.closed.then(({ code, reason }) => lost(ending(code, reason)));
  } catch (error) {
    if (error instanceof RpcError) lost(`The server did not let you in: ${error.message}`);
    else lost("The server cannot be reached. Try again in a moment.");
  } finally {
    reconnect.disabled = false;
  }
}

function ending(code: number, reason: string): string {
  const how = code === 1001 ? "The server was stopped" : "The connection ended";
  return `${how} (${[code, reason].filter(Boolean).join(" ")}). What you see is what was there until then.`;
}

function lost(why: string): void {
  byId("why", HTMLElement).textContent = why;
  setOnline(false);
}

function setOnline(online: boolean): void {
  status.textContent = online ? "Live" : "Offline";
  parts.inert = !online;
  alarm.hidden = online;
  document.documentElement.classList.toggle("offline", !online);
}

tabs.start();
rooms.start((loaded) => {
  editor = loaded;
  if (!parts.inert) editor.enter(peer, you, people.here());
});
pen.start(
  ({ stroke, ...line }) => {
    board.extend({ ...line, id: `${you}/${stroke}`, color: profile.read().color });
    peer.notify("draw", { stroke, ...line });
  },
  (place) => peer.notify("move", place),
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
reconnect.addEventListener("click", () => void enter());
void enter();
