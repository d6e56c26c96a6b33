/** The question the server asks this page, and what comes of it. */
import type { Verdict } from "../api.js";
import { byId } from "./dom.js";
import { show } from "./notice.js";

const card = byId("vote", HTMLElement);
const question = byId("question", HTMLElement);
const left = byId("left", HTMLElement);

let answer = (_agreed: boolean): void => {};
let stopWaiting = (): void => {};

byId("agree", HTMLButtonElement).addEventListener("click", () => answer(true));
byId("refuse", HTMLButtonElement).addEventListener("click", () => answer(false));

/**
 * Asks the person, and promises the answer. It is the handler's result, so it travels back as the reply to the server's call.
 * Only the server tells the time: it says how the vote ended, whether or not there was an answer.
 */
export function ask({ by, timeoutMs }: { by: string; timeoutMs: number }, signal: AbortSignal): Promise<boolean> {
  question.textContent = `${by} would like to clear the board.`;
  card.style.setProperty("--time", `${timeoutMs}ms`);
  card.hidden = false;
  // The card and not a button: whoever is typing must not answer by the next key.
  const before = document.activeElement;
  card.focus();
  const stop = countDown(timeoutMs, (seconds) => (left.textContent = `${seconds} s left`));
  return new Promise((resolve) => {
    answer = (agreed) => {
      stop();
      if (card.contains(document.activeElement) && before instanceof HTMLElement) before.focus();
      card.hidden = true;
      resolve(agreed);
    };
    // The connection ended: nobody waits for the answer any more.
    signal.addEventListener("abort", () => answer(false));
  });
}

/** Shows the one who asked how long the others may still take, until it is decided or the undo is called. */
export function wait(timeoutMs: number): () => void {
  stopWaiting();
  const stop = countDown(timeoutMs, (seconds) => show(`Waiting for everybody else to agree: ${seconds} s left`));
  return (stopWaiting = stop);
}

/** Tells how it ended. */
export function decide(verdict: Verdict): void {
  stopWaiting();
  answer(false);
  show(describe(verdict));
}

function describe({ by, outcome, answers }: Verdict): string {
  if (outcome === "asker left") return `The board stays: ${by}, who asked, left.`;
  if (outcome === "cleared") {
    if (answers.length === 0) return `${by} cleared the board.`;
    const everybody = answers.every(({ answer: given }) => given === "agreed");
    return `${everybody ? "Everybody agreed" : "Nobody objected"}: ${by} cleared the board.`;
  }
  const against = answers.filter(({ answer: given }) => given === "refused" || given === "did not answer");
  if (against.length === 0) return "The board stays: nobody was left to agree.";
  return `The board stays: ${against.map(({ name, answer: given }) => `${name} ${given}`).join(", ")}.`;
}

function countDown(timeoutMs: number, tell: (seconds: number) => void): () => void {
  const end = performance.now() + timeoutMs;
  const tick = (): void => tell(Math.max(0, Math.ceil((end - performance.now()) / 1000)));
  const ticking = setInterval(tick, 250);
  tick();
  return () => clearInterval(ticking);
}
