/** The vote: the server's question to this page, and its outcome. */
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
 * Asks the person. Returns a promise of the answer, which is the handler's result, and so the response to the server's call.
 * The server alone times the vote, and reports its end, with or without an answer.
 */
export function ask({ by, timeoutMs }: { by: string; timeoutMs: number }, signal: AbortSignal): Promise<boolean> {
  question.textContent = `${by} would like to clear the board.`;
  card.style.setProperty("--time", `${timeoutMs}ms`);
  card.hidden = false;
  // Focuses the card and not a button: a person who is typing must not answer with the next key.
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
    // The server no longer waits for the answer: the connection ended, or the call was cancelled.
    signal.addEventListener("abort", () => answer(false));
  });
}

/** Shows the asker the time left, until the vote is decided. Returns a function that stops this. */
export function wait(timeoutMs: number): () => void {
  stopWaiting();
  const stop = countDown(timeoutMs, (seconds) => show(`Waiting for everybody else to agree: ${seconds} s left`));
  return (stopWaiting = stop);
}

/** Shows the outcome. */
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

function countDown(timeoutMs: number, report: (seconds: number) => void): () => void {
  const end = performance.now() + timeoutMs;
  const tick = (): void => report(Math.max(0, Math.ceil((end - performance.now()) / 1000)));
  const ticking = setInterval(tick, 250);
  tick();
  return () => clearInterval(ticking);
}
