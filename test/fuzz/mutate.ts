/** Seeded random texts that are messages, almost messages, or no messages. */
import { Random } from "../faults/random.js";
import { names } from "./served.js";

const ODD = [
  null, true, false, 0, -1, 1, 2, 1.5, 2 ** 53, "", "1", "2.0", "echo", "__proto__", "constructor", "rpc.x", "\ud800",
  [], {}, [[]], [null], { code: 1, message: "m" }, { code: "1" }, { method: "echo" }, "\u2028\u0000", 5e-324,
]; // prettier-ignore
const MEMBERS = ["jsonrpc", "id", "method", "params", "result", "error", "__proto__", "code", "message", "", "then"];
const PIECES = [
  "null", "1e400", "-0", '"id"', '"method"', '"jsonrpc":"2.0"', "[", "]", "{", "}", ",", ":", '"', "\\", "\\u", " ", "\n",
  "9007199254740993", '"__proto__":', '"error":null', '"result":1', '"params":[]', "[]", "{}", "\u0000", "\ufeff", "\ud800",
  "🏊", "//", "NaN", "0x1", "1.", "true", '{"jsonrpc":"2.0","method":"echo","id":1}',
]; // prettier-ignore

export class Mutator extends Random {
  readonly #make: ((mutator: Mutator) => unknown) | undefined;

  /** `make`: returns a message to mutate. Default: calls of the methods in `served.ts`. */
  constructor(seed: number, make?: (mutator: Mutator) => unknown) {
    super(seed);
    this.#make = make;
  }

  /** Returns one frame's text. Half of the texts are JSON, and most of those are almost messages. */
  frame(): string {
    let value: unknown = this.below(4) === 0 ? this.#batch() : this.#message();
    for (let i = this.below(4); i > 0; i--) value = this.#bend(value);
    // `#bend` never makes a value for which `JSON.stringify` returns undefined.
    let text = JSON.stringify(value);
    if (this.below(2) === 0) for (let i = 1 + this.below(4); i > 0; i--) text = this.#cut(text);
    return text;
  }

  bytes(most: number): Buffer {
    return Buffer.from(Array.from({ length: this.below(most) }, () => this.below(256)));
  }

  #batch(): unknown[] {
    // Sometimes more entries than the peer accepts.
    return Array.from({ length: this.below(10) === 0 ? this.below(40) : this.below(5) }, () => this.#message());
  }

  odd(): unknown {
    return this.pick(ODD);
  }

  #message(): unknown {
    if (this.#make !== undefined) return this.#make(this);
    const id = this.pick([1, 2, 3, 4, 5, "1", "", 0, null, -1, 1.5, this.below(1e6)]);
    switch (this.below(8)) {
      case 0:
        return { jsonrpc: "2.0", method: this.pick(names), params: this.#params() };
      case 1:
        return { jsonrpc: "2.0", id, result: this.pick(ODD) };
      case 2:
        return { jsonrpc: "2.0", id, error: { code: this.below(10), message: "m", data: this.pick(ODD) } };
      case 3:
        return { jsonrpc: "2.0", id, method: this.pick(ODD), params: this.pick(ODD) };
      default:
        return { jsonrpc: "2.0", id, method: this.pick(names), params: this.#params() };
    }
  }

  #params(): unknown {
    return this.below(2) === 0 ? [this.pick(ODD), this.pick(ODD)] : { a: this.pick(ODD), b: this.pick(ODD) };
  }

  /** Changes one thing in a tree, keeping it JSON. */
  #bend(value: unknown): unknown {
    if (typeof value !== "object" || value === null || this.below(6) === 0) return this.#wrap(value);
    if (Array.isArray(value)) {
      const list: unknown[] = [...(value as unknown[])];
      const at = this.below(list.length + 1);
      if (this.below(3) === 0) list.splice(at, 1, this.pick(ODD));
      else if (at < list.length) list[at] = this.#bend(list[at]);
      return list;
    }
    const entries = Object.entries(value);
    const at = this.below(entries.length + 1);
    const [name = this.pick(MEMBERS), member] = entries[at] ?? [];
    const bent = [name, this.below(2) === 0 ? this.pick(ODD) : this.#bend(member ?? null)] as const;
    if (this.below(4) === 0) entries.splice(at, 1);
    else entries.splice(at, 1, bent as [string, unknown]);
    return Object.fromEntries(entries);
  }

  #wrap(value: unknown): unknown {
    return this.pick([
      [value],
      [value, value],
      { params: value },
      this.pick(ODD),
      value,
      { jsonrpc: "2.0", id: value },
    ]);
  }

  /** Changes a text without regard for JSON. */
  #cut(text: string): string {
    const from = this.below(text.length + 1);
    const to = Math.min(text.length, from + this.below(8));
    const [head, slice, tail] = [text.slice(0, from), text.slice(from, to), text.slice(to)];
    switch (this.below(6)) {
      case 0:
        return head;
      case 1:
        return head + tail;
      case 2:
        return head + slice + slice + tail;
      case 3:
        return text + this.pick(["", "\n", " ", this.pick(PIECES)]) + text;
      case 4:
        return head + String.fromCharCode(this.below(256)) + slice + tail;
      default:
        return head + this.pick(PIECES) + tail;
    }
  }
}
