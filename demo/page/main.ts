/** The page: connects, says who it is, and ties each part to the messages it lives on. */
import { connect } from "reciproc";
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
import * as tabs from "./tabs.js";
import * as traffic from "./traffic.js";
import * as vote from "./vote.js";

tabs.start();
const parts = byId("parts", HTMLElement);
const showRate = curve("rate", 20, (perSecond) => `${perSecond}/s`);
const showTrip = curve("trip", 2, (ms) => `${ms.toFixed(1)} ms`);
let you = "";

const peer = await connect<ServerApi, ClientApi>("/rpc", {
  around: traffic.around,
  /** What the server may call here. */
  methods: {
    vote: (params, { signal }) => vote.ask(params, signal),
    ping: () => {},
    people: ({ people: now }) => people.show(now, you),
    drew: board.extend,
    erased: ({ strokes }) => board.erase(strokes),
    moved: people.move,
    said: chat.show,
    reacted: reactions.float,
    decided(verdict) {
      if (verdict.cleared) board.load([]);
      vote.decide(verdict);
    },
    stats({ perSecond, roundTrips }) {
      showRate(perSecond);
      people.measure(roundTrips);
      const mine = roundTrips.find(({ id }) => id === you);
      if (mine !== undefined) showTrip(mine.ms);
    },
  },
}).catch((error: unknown) => {
  lost("The server cannot be reached.");
  throw error;
});
void peer.closed.then(({ code, reason }) =>
  lost(`The connection ended (${[code, reason].filter(Boolean).join(" ")}).`),
);

const welcome = await peer.request("join", profile.read());
you = welcome.you;
board.load(welcome.strokes);
chat.load(welcome.chat);
people.show(welcome.people, you);
byId("status", HTMLElement).textContent = "Live";
parts.inert = false;

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
byId("undo", HTMLButtonElement).addEventListener("click", () => peer.notify("undo"));
byId("clear", HTMLButtonElement).addEventListener("click", () => {
  const stop = vote.wait(welcome.voteTimeoutMs);
  void peer.request("clear").catch(complain).finally(stop);
});

function lost(why: string): void {
  parts.inert = true;
  document.documentElement.classList.add("offline");
  byId("status", HTMLElement).textContent = "Offline";
  byId("why", HTMLElement).textContent = why;
  byId("lost", HTMLElement).hidden = false;
  byId("reconnect", HTMLButtonElement).addEventListener("click", () => location.reload());
}
