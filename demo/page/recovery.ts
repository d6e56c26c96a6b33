/**
 * What this page has of the log that several nodes share, and what it recovered from there on another node. Shows the node, and what
 * was recovered. On one server, it does nothing.
 */
import type { Around } from "reciproc";
import type { Stroke } from "../api.js";
import { byId } from "./dom.js";
import { show } from "./notice.js";
import type { Message } from "./delivery.js";

const panel = byId("node", HTMLElement);
const title = byId("node-name", HTMLElement);
const report = byId("recovered", HTMLElement);

/** How the server is: `unknown` until the page has joined. */
let kind: "unknown" | "one" | "several" = "unknown";
/** The node of this page. */
let current: string | undefined;
/** The position of the last message from the log. If the log was empty, the one at which the page joined. */
let newest: string | undefined;
/** The pieces of lines that have not come back from the log, by number. */
const unconfirmed = new Map<number, Message>();
/** How many messages of each method came from the log since the last node was lost. */
let recovered: Record<string, number> = {};

/** Notes each piece that the page sends, and each message from the log. */
export const around: Around = async (call, next) => {
  const { method, params } = call;
  const { n, at } = (params ?? {}) as { n?: number; at?: string };
  if (call.direction === "outgoing") {
    if (method === "draw" && n !== undefined && kind !== "one")
      unconfirmed.set(n, { method, isNotification: true, params: params as object });
  } else if (at !== undefined) {
    newest = at;
    recovered[method] = (recovered[method] ?? 0) + 1;
  }
  return next();
};

/** The position in the log up to which the page has everything. A node sends what followed it. */
export function since(): string | undefined {
  return newest;
}

/** The whole board was loaded. What is not in it comes back from the log later. */
export function loaded(from: string | undefined): void {
  kind = from === undefined ? "one" : "several";
  unconfirmed.clear();
}

/** Returns true if this page drew the piece and has shown it before it came back from the log. */
export function isOwn({ id, n }: Stroke & { n?: number | undefined }, author: string): boolean {
  return n !== undefined && id.startsWith(`${author}/`) && unconfirmed.delete(n);
}

/** The session is lost, and so may be the pieces that have not come back. Returns them, for the page to send them again. */
export function lost(): ReadonlyMap<number, Message> {
  recovered = {};
  return new Map(unconfirmed);
}

/** The page has joined a node. Reports what it recovered if it was on another one before. */
export function arrived(now: { node: string; isComplete: boolean }): void {
  const before = current;
  current = title.textContent = now.node;
  panel.hidden = false;
  // The documents of the editor are in one process.
  byId("editor-tab", HTMLButtonElement).hidden = true;
  if (before === undefined) return;
  const where =
    now.node === before
      ? `${before} no longer had the session of this window. `
      : `${before} is gone. This window is now on ${now.node}. `;
  const told =
    where + (now.isComplete ? gained() : "The log no longer had all that followed, so the board was loaded again.");
  report.textContent = told;
  show(told);
}

/** What came from the log, since a position that the page had. */
function gained(): string {
  const { drew = 0, said = 0 } = recovered;
  const parts = [drew > 0 && `${counted(drew, "piece")} of lines`, said > 0 && `${counted(said, "line")} of the chat`];
  const what = parts.filter(Boolean).join(" and ");
  return `${what === "" ? "The log had nothing new." : `From the log it got ${what}.`} Nothing is missing.`;
}

function counted(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}
