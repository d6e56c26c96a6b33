/** The page of the cursors: it sends the place of its pointer, and draws those of the others. */
import { live, open } from "reciproc";

const find = (selector) => document.querySelector(selector);
/** The elements of each cursor, by id. */
const shown = new Map();
/** The id of this page's own cursor, which is not drawn. */
let ownId;

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  find("form").hidden = true;
  start(new FormData(event.target).get("name").trim());
});

function start(name) {
  const peer = open("/rpc", {
    auth: name,
    use: [live],
    reconnect: { initial: true }, // a page that is loaded while the server restarts waits for it
    methods: {
      here: ({ cursors }) => show(cursors),
      moved: ({ id, x, y }) => place(id, x, y),
    },
    onOpen: enter,
  });
  peer.on("missed", () => enter(peer)); // messages to this page were dropped

  /** On the first connection, and after a restart of the server. The server answers with `here`, too. */
  async function enter(server) {
    ownId = await server.request("enter");
    shown.get(ownId)?.pointer.remove();
  }

  // While the network is lost, only the newest place is queued.
  document.addEventListener("pointermove", ({ clientX, clientY }) => {
    peer.notify("moved", { x: clientX / innerWidth, y: clientY / innerHeight }, { latest: "pointer" });
  });

  const status = (text) => () => (find("[role=status]").textContent = text);
  peer.opened.then(status("online"), () => {});
  peer.on("suspend", status("offline"));
  peer.on("resume", status("online"));
  void peer.closed.then(({ reason, error }) => status(error?.message ?? reason)());
}

/** Shows these cursors and no others. */
function show(cursors) {
  for (const [id, { item, pointer }] of shown) {
    if (cursors.some((cursor) => cursor.id === id)) continue;
    item.remove();
    pointer.remove();
    shown.delete(id);
  }
  for (const { id, name, hue, isAway, x, y } of cursors) {
    if (!shown.has(id)) add(id, name, hue);
    const { item, pointer } = shown.get(id);
    item.textContent = isAway ? `${name} (away)` : name;
    pointer.classList.toggle("away", isAway);
    place(id, x, y);
  }
}

function add(id, name, hue) {
  const item = document.createElement("li");
  const pointer = find("template").content.firstElementChild.cloneNode(true);
  pointer.querySelector("text").textContent = name;
  pointer.style.fill = item.style.color = `hsl(${hue} 70% 45%)`;
  pointer.style.display = "none"; // until it has a place
  shown.set(id, { item, pointer });
  find("ul").append(item);
  if (id !== ownId) document.body.append(pointer);
}

function place(id, x, y) {
  const style = shown.get(id)?.pointer.style;
  if (style === undefined || x === undefined) return;
  style.translate = `${x * 100}vw ${y * 100}vh`;
  style.display = "";
}
