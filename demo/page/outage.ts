/** Shows what happens while the page has no connection: why, when the client tries again, and a button that tries at once. */
import { ConnectError } from "reciproc";
import { byId } from "./dom.js";

const TICK_MS = 250;

const outage = byId("outage", HTMLElement);
const cause = byId("cause", HTMLElement);
const retry = byId("retry", HTMLButtonElement);
/** When the server stops holding the connections of this page; 0 unless the person has cut the network. */
let cutUntil = 0;
/** When the next attempt begins. */
let attemptAt = 0;
/** Makes an attempt at once. */
let reconnect = (): void => {};
let why = "";
let ticking: ReturnType<typeof setInterval> | undefined;

/** The person has cut the network for this time. */
export function cut(ms: number): void {
  cutUntil = performance.now() + ms;
}

/** Shows that the client tries to connect after `delayMs`, and why. `tryNow` tries at once. */
export function waits({ delayMs, error }: { delayMs: number; error: Error }, tryNow: () => void): void {
  why = causeOf(error);
  attemptAt = performance.now() + delayMs;
  reconnect = tryNow;
  clearInterval(ticking);
  ticking = setInterval(show, TICK_MS);
  outage.hidden = false;
  show();
}

retry.addEventListener("click", () => {
  attemptAt = 0;
  reconnect();
  show();
});

/** Shows nothing any more: the page is connected, or its peer is closed. */
export function end(): void {
  clearInterval(ticking);
  cutUntil = 0;
  outage.hidden = true;
}

function show(): void {
  const now = performance.now();
  const isCut = now < cutUntil;
  const inSeconds = (at: number): string => `in ${Math.ceil((at - now) / 1000)}\u00A0s`;
  const attempt = now < attemptAt ? `Next attempt ${inSeconds(attemptAt)}.` : "Connecting …";
  cause.textContent = isCut ? `You cut the network. It is back ${inSeconds(cutUntil)}.` : `${why} ${attempt}`;
  // While the network is cut, an attempt would only wait for it.
  retry.hidden = isCut || now >= attemptAt;
}

function causeOf(error: Error): string {
  if (error instanceof ConnectError)
    return error.status === undefined ? "The server does not answer." : "The server takes no connections now.";
  // The code of a server that is stopped.
  return error.message.includes("1001") ? "The server was stopped." : "The connection was lost.";
}
