/**
 * Shows how many messages wait while the page has no connection, and afterwards how many were delivered, lost and duplicated. For this,
 * each message to the server has a number, and the server counts the numbers that arrive. Messages to a language server are on
 * another connection, and are not counted.
 */
import { ConnectionLostError, type Around, type Peer } from "reciproc";
import type { ClientApi, ServerApi } from "../api.js";
import { byId } from "./dom.js";

/** Methods whose messages have no number: of these, only the newest counts, or the page calls them by itself. */
const WITHOUT_NUMBER = new Set(["move", "point", "join", "resync", "open", "prepare", "receipts", "code", "kill"]);
const SHOWN_MS = 10_000;

/** A message to the server. */
export interface Message {
  method: string;
  isNotification: boolean;
  params: object;
}

const count = byId("waiting", HTMLElement);
const result = byId("delivered", HTMLElement);
let newest = 0;
let isDown = true;
/** Whether the session was lost too, of which the page shows another message. */
let isLost = false;
/** The messages that were made since the network was lost, or before the first connection, by number. */
const waiting = new Map<number, Message>();
let hiding: ReturnType<typeof setTimeout> | undefined;

/** Gives each outgoing message its number. `next` sends it. */
export const around: Around = async (call, next) => {
  if (call.direction === "incoming" || WITHOUT_NUMBER.has(call.method)) return next();
  // A message that is sent again has its number already.
  const n = (call.params as { n?: number } | undefined)?.n ?? ++newest;
  const params = (call.params = { ...call.params, n } as object);
  if (isDown) {
    waiting.set(n, { method: call.method, isNotification: call.id === undefined, params });
    showWaiting();
  }
  try {
    return await next();
  } catch (error) {
    // The caller knows that it was not sent, and decides.
    if (error instanceof ConnectionLostError && error.outcome === "not-sent") waiting.delete(n);
    throw error;
  }
};

/** Ends the first wait: the page is connected, and all waiting messages were sent. They are not counted. */
export function opened(): void {
  isDown = false;
  waiting.clear();
}

/** Starts a count: the network is lost, and messages wait from now on. */
export function suspended(): void {
  if (isDown) return;
  isDown = true;
  waiting.clear();
  isLost = false;
  clearTimeout(hiding);
  result.hidden = true;
  showWaiting();
}

/** Returns the params of the waiting messages of a method, in order. */
export function waitingParams<P>(method: string): P[] {
  return [...waiting.values()].flatMap((message) => (message.method === method ? (message.params as P) : []));
}

/**
 * Queues the waiting notifications again, in their order, after their session is lost. The callers repeat the calls. `earlier`:
 * messages that were sent before the network was lost, and that the server may not have got.
 */
export function sendAgain(peer: Peer<ClientApi, ServerApi>, earlier: ReadonlyMap<number, Message> = new Map()): void {
  isLost = true;
  const all = new Map([...earlier, ...waiting]);
  waiting.clear();
  for (const [number, message] of all) waiting.set(number, message);
  if (earlier.size > 0) showWaiting();
  for (const { method, isNotification, params } of all.values())
    if (isNotification) peer.notify(method as "draw", params as never);
}

/** Ends a count: the network is back, and all waiting messages were sent. Asks the server which of them arrived. */
export async function resumed(peer: Peer<ClientApi, ServerApi>): Promise<void> {
  isDown = false;
  const numbers = [...waiting.keys()];
  waiting.clear();
  count.textContent = "";
  if (numbers.length === 0) {
    if (!isLost) report("No message waited.");
    return;
  }
  try {
    const range = { from: numbers[0]!, to: numbers.at(-1)! };
    const { arrived, repeated } = await peer.request("receipts", range);
    const lost = numbers.length - arrived;
    if (!isDown) report(`${arrived} delivered, ${lost} lost, ${repeated} duplicated.`);
  } catch {
    // The network is lost again. The next count follows.
  }
}

function report(what: string): void {
  result.textContent = `Connected again: ${what}`;
  result.hidden = false;
  hiding = setTimeout(() => (result.hidden = true), SHOWN_MS);
}

function showWaiting(): void {
  const { size } = waiting;
  const some = `${size} ${size === 1 ? "message waits" : "messages wait"}.`;
  count.textContent = size === 0 ? "Draw on: it arrives later, once." : some;
}
