/** The drawer with the code behind what just happened, from the source of this demo. */
import type { Call } from "reciproc";
import type { Excerpt } from "../api.js";
import { byId, element } from "./dom.js";
import { complain } from "./notice.js";

/** A topic of the drawer: what happened, and the part of the documents that explains it. */
interface Topic {
  what: string;
  read: string;
}

const TOPICS: Readonly<Record<string, Topic>> = {
  join: { what: "The page joined, on a new connection", read: "API.md#sessions-and-reconnecting" },
  draw: {
    what: "A line was drawn: one notification, and a broadcast to all others",
    read: "API.md#topics-and-broadcasts",
  },
  move: { what: "A pointer moved: a slow page gets the newest place only", read: "API.md#live-messages" },
  say: { what: "A chat line: a call that survives a cut", read: "API.md#outcomes" },
  react: { what: "A reaction: dropped for a page that is away", read: "API.md#live-messages" },
  undo: { what: "A line was undone", read: "API.md#topics-and-broadcasts" },
  clear: { what: "The server asked all others before it answered", read: "API.md#calling-all-members" },
  cut: { what: "The connection was cut: the session queues, and resumes", read: "API.md#sessions-and-reconnecting" },
  edit: { what: "A text changed: one call at a time, in one order for all", read: "API.md#calls" },
  language: { what: "A language server was called through the session", read: "API.md#dialects" },
};

/** The topic of each method, in either direction. */
const TOPIC_OF: Readonly<Record<string, string>> = {
  join: "join",
  welcome: "join",
  draw: "draw",
  drew: "draw",
  move: "move",
  say: "say",
  said: "say",
  react: "react",
  reacted: "react",
  undo: "undo",
  erased: "undo",
  clear: "clear",
  vote: "clear",
  decided: "clear",
  cut: "cut",
  edit: "edit",
  edited: "edit",
  initialize: "language",
  "textDocument/completion": "language",
  "textDocument/hover": "language",
};

/** Calls of the page that are no act of the person. */
const OF_THE_PAGE = new Set(["join", "move"]);

const toggle = byId("code-toggle", HTMLButtonElement);
const drawer = byId("code", HTMLElement);
const title = byId("code-title", HTMLElement);
const link = byId("code-link", HTMLAnchorElement);
const body = byId("code-body", HTMLElement);
let topic = "join";
let shown = "";
/** Whether the topic is an act of this person. */
let isOwn = false;
/** Returns the code of all topics. Set when the drawer is started. */
let fetchCode: (() => Promise<Record<string, Excerpt[]>>) | undefined;
let fetched: Promise<Record<string, Excerpt[]>> | undefined;

/** Starts the drawer. `fetch` returns the code of all topics. It is called when the drawer is first visible. */
export function start(fetch: NonNullable<typeof fetchCode>): void {
  fetchCode = fetch;
  toggle.addEventListener("click", () => {
    const isOpen = toggle.ariaExpanded !== "true";
    toggle.ariaExpanded = String(isOpen);
    drawer.classList.toggle("open", isOpen);
  });
  // It is opened by its button, or by its tab on a small screen.
  new ResizeObserver(() => void render()).observe(drawer);
}

/** Shows the topic of a call or notification. What others do, and the page by itself, is shown until the person has done something. */
export function showCall({ direction, method }: Call): void {
  const name = TOPIC_OF[method];
  if (name === undefined) return;
  // The server's question is put to the person.
  if (method === "vote" || (direction === "outgoing" && !OF_THE_PAGE.has(method))) show(name);
  else if (!isOwn) turn(name);
}

/** Shows the topic of what the person has done or met, if its code is visible. */
export function show(name: string): void {
  isOwn = true;
  turn(name);
}

function turn(name: string): void {
  topic = name;
  void render();
}

async function render(): Promise<void> {
  if (fetchCode === undefined || !body.checkVisibility() || shown === topic) return;
  title.textContent = TOPICS[topic]!.what;
  link.href = `/about/docs/${TOPICS[topic]!.read}`;
  fetched ??= fetchCode();
  try {
    const places = (await fetched)[topic]!;
    if (shown === topic) return;
    shown = topic;
    body.replaceChildren(...places.map(excerptOf));
  } catch (error) {
    fetched = undefined;
    complain(error);
  }
}

function excerptOf({ file, line, code }: Excerpt): HTMLElement {
  const box = element("figure", "excerpt");
  const pre = element("pre", "source");
  pre.tabIndex = 0;
  pre.ariaLabel = `demo/${file}`;
  pre.append(...colored(code));
  box.append(element("figcaption", "place", `demo/${file}:${line}`), pre);
  return box;
}

const PARTS =
  /(?<comment>\/\/.*|\/\*[^]*?\*\/)|(?<text>"[^"\n]*"|`[^`]*`)|(?<keyword>\b(?:async|await|catch|const|finally|for|function|if|instanceof|new|return|throw|try|void)\b)/g;

function* colored(code: string): Generator<Node | string> {
  let end = 0;
  for (const match of code.matchAll(PARTS)) {
    yield code.slice(end, match.index);
    const [kind] = Object.entries(match.groups!).find(([, text]) => text !== undefined)!;
    yield element("span", `code-${kind}`, match[0]);
    end = match.index + match[0].length;
  }
  yield code.slice(end);
}
