/**
 * Numbers the messages of a cluster. A server that was replaced accepts messages and forwards them to its successor, late or twice. So each
 * message has a number, and a node takes only those of another node that are newer than the last one of the same tag.
 */
import type { NodeName } from "../topics/engine.js";
import { isNodeName } from "../fleet/frames.js";
import { TAG_COUNT } from "./names.js";

/** Begins a numbered message. Frames of scripts have no number: they carry an offset. */
const NUMBERED = "#";
/** Keeps the last numbers of so many nodes. Then the node that was added first is removed. */
const MAX_NODES = 1_000;

export class Numbers {
  readonly #node: NodeName;
  readonly #sent: number[] = zeros();
  readonly #last = new Map<NodeName, number[]>();

  constructor(node: NodeName) {
    this.#node = node;
  }

  /** Returns a frame with the next number. */
  add(tag: number, frame: string): string {
    return `${NUMBERED}${this.#node} ${++this.#sent[tag]!}\n${frame}`;
  }

  /** Returns the frame of a message. `undefined` if the message comes late or again. */
  remove(tag: number, message: string): string | undefined {
    if (!message.startsWith(NUMBERED)) return message;
    const end = message.indexOf("\n");
    const space = message.lastIndexOf(" ", end);
    const number = Number(message.slice(space + 1, end));
    const node = message.slice(NUMBERED.length, space);
    if (!Number.isSafeInteger(number) || !isNodeName(node)) return message;
    let last = this.#last.get(node);
    if (last === undefined) {
      last = zeros();
      if (this.#last.size >= MAX_NODES) this.#last.delete(this.#last.keys().next().value!);
      this.#last.set(node, last);
    }
    if (number <= last[tag]!) return undefined;
    last[tag] = number;
    return message.slice(end + 1);
  }
}

function zeros(): number[] {
  return Array.from({ length: TAG_COUNT }, () => 0);
}
