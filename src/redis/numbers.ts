/**
 * Numbers the messages of a cluster. A server that was replaced accepts messages and forwards them to its successor, late or twice. So each
 * message has a number, and a node takes only those of another node that are newer than the last one of the same tag.
 */
import type { NodeName } from "../topics/engine.js";
import { isNodeName } from "../fleet/frames.js";

/** Begins a numbered message. Frames of scripts have no number: they carry an offset. */
const NUMBERED = "#";
/** How many last numbers are kept: those of 1,000 nodes with all tags. Then the one that was used longest ago is removed. */
const MAX_NUMBERS = 64_000;

export class Numbers {
  readonly #node: NodeName;
  #sent = 0;
  /** By tag and node, in the order of the last use. */
  readonly #last = new Map<string, number>();

  constructor(node: NodeName) {
    this.#node = node;
  }

  /** Returns a frame with the next number. */
  add(frame: string): string {
    return `${NUMBERED}${this.#node} ${++this.#sent}\n${frame}`;
  }

  /** Returns the frame of a message. `undefined` if the message comes late or again. */
  remove(tag: number, message: string): string | undefined {
    if (!message.startsWith(NUMBERED)) return message;
    const end = message.indexOf("\n");
    const space = message.lastIndexOf(" ", end);
    const number = Number(message.slice(space + 1, end));
    const node = message.slice(NUMBERED.length, space);
    if (!Number.isSafeInteger(number) || !isNodeName(node)) return message;
    const key = `${tag} ${node}`;
    if (number <= (this.#last.get(key) ?? 0)) return undefined;
    this.#last.delete(key);
    this.#last.set(key, number);
    if (this.#last.size > MAX_NUMBERS) this.#last.delete(this.#last.keys().next().value!);
    return message.slice(end + 1);
  }
}
