/**
 * The reply to an incoming batch: one array, in request order, sent when every request in it is answered (section 6).
 */
import { exceeds, utf8Bytes } from "./codec.js";
import { VALUE_COST } from "./transport.js";

/** Where an answer goes that does not stand alone. It is given one answer, or told that none will come. */
export interface Slot {
  /** Whether an answer fits; what fits must be put. */
  fits(text: string): boolean;
  /** `onSent` is called once what holds the answer has been sent. */
  put(text: string, onSent?: () => void): void;
  leaveOut(): void;
}

/** The place of an answer that stands alone, for a carrier that must know also when there is none. */
export function soleSlot(maxBytes: number, reply: (text: string | undefined) => void): Slot {
  return {
    fits: (text) => !exceeds(text, maxBytes),
    put: (text, onSent) => {
      reply(text);
      onSent?.();
    },
    leaveOut: () => reply(undefined),
  };
}

/** Gathers the answers to one batch. */
export class BatchReply {
  readonly #answers: (string | undefined)[] = [];
  readonly #reply: (text: string | undefined) => void;
  readonly #keep: (by: number) => void;
  #onSent: (() => void)[] | undefined;
  /** What the answers that are in are counted for. */
  #kept = 0;
  #bytesLeft: number;
  /** Answers that are still to come, and one for whoever reserves the places. */
  #waiting = 1;

  /** `reply` is called when the last answer is in, or it is clear that there is none. `keep` counts the answers until then. */
  constructor(maxBytes: number, reply: (text: string | undefined) => void, keep: (by: number) => void) {
    this.#bytesLeft = maxBytes - 1;
    this.#reply = reply;
    this.#keep = keep;
  }

  /** Reserves the next place. */
  slot(): Slot {
    this.#waiting++;
    const index = this.#answers.push(undefined) - 1;
    return {
      fits: (text) => this.#fits(text),
      put: (text, onSent) => {
        this.#answers[index] = text;
        this.#count(text.length + VALUE_COST);
        if (onSent !== undefined) (this.#onSent ??= []).push(onSent);
        this.#countDown();
      },
      leaveOut: () => this.#countDown(),
    };
  }

  /** All places are reserved. */
  complete(): void {
    this.#countDown();
  }

  /** If it still fits, its bytes and its comma are taken from what is left. */
  #fits(text: string): boolean {
    const bytes = utf8Bytes(text) + 1;
    if (bytes > this.#bytesLeft) return false;
    this.#bytesLeft -= bytes;
    return true;
  }

  #count(by: number): void {
    this.#kept += by;
    this.#keep(by);
  }

  #countDown(): void {
    if (--this.#waiting > 0) return;
    this.#count(-this.#kept);
    const answers = this.#answers.filter((answer) => answer !== undefined);
    this.#reply(answers.length > 0 ? `[${answers.join(",")}]` : undefined);
    for (const tell of this.#onSent ?? []) tell();
  }
}
