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
  cut: { what: "The network was cut: the session queues, and resumes", read: "API.md#sessions-and-reconnecting" },
  edit: { what: "A text changed: one call at a time, in one order for all", read: "API.md#calls" },
  language: { what: "A language server was called through the session", read: "API.md#dialects" },
  measure: { what: "The server measured this page's round trip by a call", read: "API.md#calls" },
};

/** The topic of each method, in either direction. */
const TOPIC_OF: Readonly<Record<string, string>> = {
  join: "join",
  welcome: "join",
  draw: "draw",
  drew: "draw",
  move: "move",
  moved: "move",
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
  ping: "measure",
};

/** Topics of many messages a second. They are shown if no other topic has occurred for a while. */
const FREQUENT = new Set(["move", "measure"]);
const FREQUENT_AFTER_MS = 5000;

const toggle = byId("code-toggle", HTMLButtonElement);
const drawer = byId("code", HTMLElement);
const title = byId("code-title", HTMLElement);
const link = byId("code-link", HTMLAnchorElement);
const body = byId("code-body", HTMLElement);
let topic = "join";
let shown = "";
let since = 0;
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

/** Shows the topic of a call or notification. */
export function showCall({ method }: Call): void {
  const name = TOPIC_OF[method];
  if (name !== undefined) show(name);
}

/** Shows a topic, if its code is visible. */
export function show(name: string): void {
  const now = performance.now();
  if (FREQUENT.has(name) && !FREQUENT.has(topic) && now - since < FREQUENT_AFTER_MS) return;
  since = now;
  if (name === topic) return;
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
