/** The page of the chat. It shows a line at once, in grey until the server has it, also while the network is lost. */
import { live, open } from "reciproc";

const find = (selector) => document.querySelector(selector);
const say = find("#say");

/** The lines of the room that is shown, by id. */
const lines = new Map();
let room = "";
let peer;

find("#login").addEventListener("submit", (event) => {
  event.preventDefault();
  start(new FormData(event.target).get("name").trim());
});

function start(name) {
  find("#login").hidden = true;
  find("main").hidden = false;
  peer = open("/rpc", {
    auth: name,
    use: [live],
    reconnect: { initial: true }, // a page that is loaded while the server restarts waits for it
    methods: {
      said: ({ room: where, line }) => show(where, line),
      here: ({ room: where, names }) => where === room && showNames(names),
      typing: ({ room: where, name }) => where === room && showTyping(name),
    },
    // On the first connection, and whenever the session is new, as after a restart of the server.
    async onOpen(server) {
      const rooms = await server.request("rooms");
      if (room === "") addButtons(rooms);
      await enter(room || rooms[0], server);
    },
  });
  const status = (text) => () => (find("[role=status]").textContent = text);
  peer.opened.then(status("online"), () => {});
  peer.on("suspend", status("offline"));
  peer.on("resume", status("online"));
  void peer.closed.then(({ reason, error }) => status(error?.message ?? reason)());
  peer.on("missed", () => enter(room)); // messages to this page were dropped: load the room again
  peer.on("error", console.error);

  say.addEventListener("submit", (event) => {
    event.preventDefault();
    void send(room, { id: crypto.randomUUID(), name, text: say.elements.text.value, at: Date.now() });
    say.reset();
  });
  say.addEventListener("input", () => peer.notify("typing", { room }, { volatile: true }));
}

/** `caller` is the peer, or in `onOpen` the argument of that. */
async function enter(next, caller = peer) {
  if (next !== room) lines.clear();
  room = next;
  for (const button of find("nav").children) button.setAttribute("aria-pressed", String(button.textContent === room));
  const loaded = await caller.request("enter", { room: next });
  if (next !== room) return; // the user has gone on to another room meanwhile
  for (const line of loaded) lines.set(line.id, line);
  render();
}

/** Sends a line. If a call may have run, makes it again: the server knows the id of a line that it has. */
async function send(where, line) {
  show(where, { ...line, state: "pending" });
  for (;;) {
    try {
      const params = { room: where, id: line.id, text: line.text };
      return show(where, await peer.request("say", params, { retry: "not-sent" }));
    } catch (error) {
      if (error.outcome !== "unknown" || peer.state === "closed") return show(where, { ...line, state: "failed" });
    }
  }
}

function show(where, line) {
  if (where !== room) return;
  lines.set(line.id, line);
  render();
}

function render() {
  const sorted = [...lines.values()].sort((a, b) => a.at - b.at);
  find("#lines").replaceChildren(
    ...sorted.map(({ name, text, state = "said" }) => {
      const item = document.createElement("li");
      item.className = state;
      item.textContent = `${name}: ${text}${state === "failed" ? " (not said)" : ""}`;
      return item;
    }),
  );
  find("#lines").lastElementChild?.scrollIntoView({ block: "nearest" });
}

function showNames(names) {
  find("#here").textContent = `Here: ${names.join(", ")}`;
}

let typingTimer;
function showTyping(name) {
  clearTimeout(typingTimer);
  find("#typing").textContent = name && `${name} is typing`;
  if (name) typingTimer = setTimeout(showTyping, 2_000, "");
}

function addButtons(rooms) {
  for (const name of rooms) {
    const button = document.createElement("button");
    button.textContent = name;
    button.addEventListener("click", () => enter(name));
    find("nav").append(button);
  }
}
