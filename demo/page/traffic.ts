/** The JSON-RPC traffic of this page, as the peer's `around` hook sees it: calls and notifications, both ways. */
import type { Around, Call } from "reciproc";
import { byId, element } from "./dom.js";

const MOST_ROWS = 80;
/** Methods of many messages a second. Consecutive ones share a row. */
const FREQUENT = new Set([
  "draw",
  "drew",
  "edit",
  "edited",
  "move",
  "moved",
  "ping",
  "point",
  "pointed",
  "stats",
  "textDocument/didChange",
  "textDocument/publishDiagnostics",
]);
const PAUSE_MS = 3000;

const list = byId("traffic", HTMLElement);
const pause = byId("pause", HTMLButtonElement);
const latest = new Map<string, Row>();
let missed = 0;
let paused = false;

/** The `around` option of `connect`. `next` sends an outgoing call or runs the handler of an incoming one. Returns its result. */
export const around: Around = async (call, next) => {
  const row = rowFor(call);
  const start = performance.now();
  try {
    const result = await next();
    row?.end(call, performance.now() - start);
    return result;
  } catch (error) {
    row?.end(call, performance.now() - start, error);
    throw error;
  }
};

function rowFor(call: Call): Row | undefined {
  if (paused) {
    pause.textContent = `Resume (${++missed} missed)`;
    return undefined;
  }
  const key = `${call.direction} ${call.method}`;
  const last = latest.get(key);
  if (last?.takes(call)) return last.add(call);
  const row = new Row(call);
  if (FREQUENT.has(call.method)) latest.set(key, row);
  list.prepend(row.item);
  if (list.childElementCount > MOST_ROWS) list.lastElementChild!.remove();
  return row;
}

pause.addEventListener("click", () => {
  paused = !paused;
  missed = 0;
  pause.setAttribute("aria-pressed", String(paused));
  pause.textContent = paused ? "Resume" : "Pause";
});

/** A row: one call, or several consecutive frequent ones. */
class Row {
  readonly item = element("li", "message");
  readonly #times = element("span", "times");
  readonly #id = element("span", "id");
  readonly #params = element("span", "params");
  readonly #duration = element("span", "duration");
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
    this.item.classList.add(call.direction, call.id === undefined ? "notification" : "request");
    this.item.dataset["method"] = call.method;
    this.item.append(arrow, method, this.#id, this.#params, this.#duration);
    this.add(call);
  }

  takes({ method }: Call): boolean {
    return FREQUENT.has(method) && this.item.isConnected && performance.now() - this.#newest < PAUSE_MS;
  }

  add({ id, params }: Call): this {
    this.#newest = performance.now();
    this.#times.textContent = ++this.#count > 1 ? ` ×${this.#count}` : "";
    this.#id.textContent = id === undefined ? "" : `#${id}`;
    this.#params.textContent = params === undefined ? "" : JSON.stringify(params).slice(0, 200);
    this.#duration.textContent = id === undefined ? "notify" : "…";
    return this;
  }

  end({ id }: Call, ms: number, error?: unknown): void {
    if (id !== undefined) this.#duration.textContent = `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
    if (error === undefined) return;
    this.item.classList.add("failed");
    this.#params.textContent = error instanceof Error ? error.message : "failed";
  }
}
