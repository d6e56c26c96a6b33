/** The JSON-RPC traffic of this page, as the peer's `around` hook sees it: calls and notifications, both ways. */
import type { Around, Call } from "reciproc";
import { byId, element } from "./dom.js";

const MOST_ROWS = 80;
/** The longest message that is shown whole, in characters. A longer one is cut. */
const MOST_TEXT = 20_000;
/** Methods of many messages a second. Consecutive ones share a row. */
const FREQUENT = new Set([
  "draw",
  "drew",
  "edit",
  "edited",
  "erased",
  "move",
  "moved",
  "point",
  "pointed",
  "textDocument/didChange",
  "textDocument/publishDiagnostics",
]);
/** Methods that the server calls once a second. Their rows are below the others, in a group that is closed at first. */
const PERIODIC = new Set(["ping", "stats"]);
const PAUSE_MS = 3000;

const list = byId("traffic", HTMLElement);
const periodic = byId("periodic", HTMLElement);
const periodicCount = byId("periodic-count", HTMLElement);
const pause = byId("pause", HTMLButtonElement);
const latest = new Map<string, Row>();
let periodicMessages = 0;
let missed = 0;
let paused = false;

/** The `around` option of `open`. `next` sends an outgoing call or runs the handler of an incoming one. Returns its result. */
export const around: Around = async (call, next) => {
  const row = rowFor(call);
  const start = performance.now();
  try {
    const result = await next();
    row?.end(call, performance.now() - start, { result: result ?? null });
    return result;
  } catch (error) {
    row?.end(call, performance.now() - start, { error });
    throw error;
  }
};

function rowFor(call: Call): Row | undefined {
  if (paused) {
    pause.textContent = `Resume (${++missed} missed)`;
    return undefined;
  }
  const isPeriodic = PERIODIC.has(call.method);
  if (isPeriodic) periodicCount.textContent = `×${++periodicMessages}`;
  const key = `${call.direction} ${call.method}`;
  const last = latest.get(key);
  if (last !== undefined && (isPeriodic || last.isRecent)) return last.add(call);
  const row = new Row(call);
  if (isPeriodic || FREQUENT.has(call.method)) latest.set(key, row);
  if (isPeriodic) periodic.append(row.item);
  else list.prepend(row.item);
  if (list.childElementCount > MOST_ROWS) list.lastElementChild!.remove();
  return row;
}

pause.addEventListener("click", () => {
  paused = !paused;
  missed = 0;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Resume" : "Pause";
});

/** A row: one call, or several consecutive frequent ones. It opens to show the newest message whole, and the answer. */
class Row {
  readonly item = element("li", "message");
  readonly #times = element("span", "times");
  readonly #id = element("span", "id");
  readonly #params = element("span", "params");
  readonly #duration = element("span", "duration");
  readonly #details = document.createElement("details");
  #message: object = {};
  #answer: { result?: unknown; error?: unknown } | undefined;
  #count = 0;
  #newest = 0;

  constructor(call: Call) {
    const incoming = call.direction === "incoming";
    const arrow = element("span", "arrow", incoming ? "←" : "→");
    arrow.title = incoming ? "The server calls this page" : "This page calls the server";
    arrow.role = "img";
    arrow.ariaLabel = call.direction;
    const method = element("span", "method", call.method);
    method.append(this.#times);
    const summary = element("summary", "summary");
    summary.append(arrow, method, this.#id, this.#params, this.#duration);
    this.#details.append(summary);
    this.#details.addEventListener("toggle", () => this.#showWhole());
    this.item.classList.add(call.direction, call.id === undefined ? "notification" : "request");
    this.item.dataset["method"] = call.method;
    this.item.append(this.#details);
    this.add(call);
  }

  /** Returns true if a further message of the same method belongs to this row. */
  get isRecent(): boolean {
    return this.item.isConnected && performance.now() - this.#newest < PAUSE_MS;
  }

  add({ id, method, params }: Call): this {
    this.#newest = performance.now();
    this.#message = { jsonrpc: "2.0", id, method, params };
    this.#answer = undefined;
    this.#times.textContent = ++this.#count > 1 ? ` ×${this.#count}` : "";
    this.#id.textContent = id === undefined ? "" : `#${id}`;
    this.#params.textContent = params === undefined ? "" : written(params).slice(0, 200);
    this.#duration.textContent = id === undefined ? "notify" : "…";
    this.#showWhole();
    return this;
  }

  end({ id }: Call, ms: number, answer: { result?: unknown; error?: unknown }): void {
    if (id !== undefined) {
      this.#duration.textContent = `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
      this.#answer = { ...answer };
    }
    if ("error" in answer) {
      this.item.classList.add("failed");
      this.#params.textContent = answer.error instanceof Error ? answer.error.message : "failed";
    }
    this.#showWhole();
  }

  /** Writes the message and its answer, if the row is open. */
  #showWhole(): void {
    if (!this.#details.open) return;
    const { id } = this.#message as { id?: unknown };
    const parts = [element("pre", "whole", whole(this.#message))];
    if (this.#answer !== undefined) {
      const { result, error } = this.#answer;
      const isError = error instanceof Error;
      const answer = isError
        ? { error: { code: (error as { code?: unknown }).code, message: error.message } }
        : { result };
      parts.push(element("p", "answer", "Answer"), element("pre", "whole", whole({ jsonrpc: "2.0", id, ...answer })));
    }
    this.#details.replaceChildren(this.#details.firstElementChild!, ...parts);
  }
}

function whole(message: object): string {
  const text = written(message, 2);
  return text.length <= MOST_TEXT
    ? text
    : `${text.slice(0, MOST_TEXT)}\n... ${text.length - MOST_TEXT} characters more`;
}

/** Returns a message as JSON. Bytes, which travel beside the JSON, are shown as base64. */
function written(value: unknown, indent = 0): string {
  return JSON.stringify(value, withBase64, indent);
}

function withBase64(_name: string, member: unknown): unknown {
  return member instanceof Uint8Array ? btoa(String.fromCharCode(...member)) : member;
}
