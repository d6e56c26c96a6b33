/**
 * Finds where a text stops being JSON (RFC 8259). `JSON.parse` does not always report the position, which a user who typed
 * the text into a shell needs.
 */

/** The first character that JSON does not allow at its position, or the end of the text. */
export interface JsonFault {
  /** An index into the text, in UTF-16 units. */
  readonly index: number;
  /** What was expected there and what was found. */
  readonly reason: string;
}

/** A position in a text as people count: from 1, columns in characters. */
export interface Place {
  readonly line: number;
  readonly column: number;
  /** The line, cut around the position if it is long, and a caret under the position. */
  readonly excerpt: string;
}

/** Returns the first fault of `text`; `undefined` if it is one JSON text. Accepts the same texts as `JSON.parse`. */
export function findJsonFault(text: string): JsonFault | undefined {
  try {
    new Scanner(text).document();
    return undefined;
  } catch (error) {
    if (error instanceof Fault) return { index: error.index, reason: error.message };
    throw error;
  }
}

const MOST_BEFORE = 60;
const MOST_AFTER = 18;

/** Returns the position of `index`, for a message. */
export function placeOf(text: string, index: number): Place {
  const start = text.lastIndexOf("\n", index - 1) + 1;
  const newline = text.indexOf("\n", index);
  const before = characters(text.slice(start, index));
  const after = characters(text.slice(index, newline < 0 ? text.length : newline));
  const shownBefore = before.length > MOST_BEFORE ? ["…", ...before.slice(-MOST_BEFORE)] : before;
  const shownAfter = after.length > MOST_AFTER ? [...after.slice(0, MOST_AFTER), "…"] : after;
  return {
    line: text.slice(0, start).split("\n").length,
    column: before.length + 1,
    excerpt: `${[...shownBefore, ...shownAfter].join("").trimEnd()}\n${" ".repeat(shownBefore.length)}^`,
  };
}

/** Returns the characters of a text, one column each: a character that would move the cursor becomes a space. */
function characters(text: string): string[] {
  return Array.from(text, (character) => (/\p{C}/u.test(character) ? " " : character));
}

class Fault extends Error {
  readonly index: number;

  constructor(index: number, reason: string) {
    super(reason);
    this.index = index;
  }
}

const LITERALS = new Map([
  ["t", "true"],
  ["f", "false"],
  ["n", "null"],
]);

/** Scans the text once. Not recursive, so nesting may be as deep as `JSON.parse` accepts. */
class Scanner {
  readonly #text: string;
  /** The closing brackets that are still missing. */
  readonly #owed: ("]" | "}")[] = [];
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  document(): void {
    do {
      this.#untilValueEnds();
      this.#close();
    } while (this.#owed.length > 0);
    if (this.#at < this.#text.length) this.#fail("the end of the text");
  }

  /** Reads a scalar or an empty bracket, with all opening brackets and the names before it. */
  #untilValueEnds(): void {
    for (;;) {
      this.#skipSpace();
      const character = this.#peek();
      if (character !== "[" && character !== "{") return this.#scalar(character);
      this.#at++;
      this.#skipSpace();
      this.#owed.push(character === "[" ? "]" : "}");
      if (this.#peek() === this.#owed.at(-1)) return;
      if (character === "{") this.#name('a name in double quotes, or "}"');
    }
  }

  /** Reads the closing brackets after a value, then the comma and the name before the next value. */
  #close(): void {
    for (;;) {
      this.#skipSpace();
      const owed = this.#owed.at(-1);
      if (owed === undefined) return;
      if (this.#peek() === ",") {
        this.#at++;
        this.#skipSpace();
        if (owed === "}") this.#name("a name in double quotes after the comma");
        return;
      }
      if (this.#peek() !== owed) this.#fail(`"," or "${owed}"`);
      this.#at++;
      this.#owed.pop();
    }
  }

  #name(expectation: string): void {
    if (this.#peek() !== '"') this.#fail(expectation);
    this.#string();
    this.#skipSpace();
    if (this.#peek() !== ":") this.#fail('":" after the name');
    this.#at++;
  }

  #scalar(first: string | undefined): void {
    if (first === '"') return this.#string();
    if (first === "-" || isDigit(first)) return this.#number();
    const literal = LITERALS.get(first ?? "");
    if (literal === undefined || !this.#startsLike(literal)) this.#fail("a value");
    for (const letter of literal) this.#take(letter, `\`${literal}\``);
  }

  /** Whether the word may be that literal. A word that only shares its first letter is reported from its beginning. */
  #startsLike(literal: string): boolean {
    const rest = this.#text.slice(this.#at, this.#at + 2);
    return rest.length < 2 || literal.startsWith(rest);
  }

  #number(): void {
    if (this.#peek() === "-") this.#at++;
    if (this.#peek() === "0") this.#at++;
    else this.#digits();
    if (this.#peek() === ".") {
      this.#at++;
      this.#digits();
    }
    if (this.#peek() !== "e" && this.#peek() !== "E") return;
    this.#at++;
    if (this.#peek() === "+" || this.#peek() === "-") this.#at++;
    this.#digits();
  }

  #digits(): void {
    if (!isDigit(this.#peek())) this.#fail("a digit");
    while (isDigit(this.#peek())) this.#at++;
  }

  #string(): void {
    this.#at++;
    for (;;) {
      const character = this.#peek();
      if (character === undefined) this.#fail('a closing "');
      if (character < " ") this.#fail("no bare control character in a string; it is written as an escape");
      this.#at++;
      if (character === '"') return;
      if (character === "\\") this.#escape();
    }
  }

  #escape(): void {
    const character = this.#peek();
    if (character === undefined || !'"\\/bfnrtu'.includes(character))
      this.#fail('one of "\\/bfnrtu after the backslash');
    this.#at++;
    if (character !== "u") return;
    for (let i = 0; i < 4; i++) {
      if (!/^[0-9a-fA-F]$/.test(this.#peek() ?? "")) this.#fail("four hexadecimal digits after \\u");
      this.#at++;
    }
  }

  #take(character: string, expectation: string): void {
    if (this.#peek() !== character) this.#fail(expectation);
    this.#at++;
  }

  #skipSpace(): void {
    while (this.#peek() === " " || this.#peek() === "\n" || this.#peek() === "\r" || this.#peek() === "\t") this.#at++;
  }

  #peek(): string | undefined {
    return this.#text[this.#at];
  }

  #fail(expectation: string): never {
    throw new Fault(this.#at, `expected ${expectation}, got ${this.#found(expectation)}`);
  }

  #found(expectation: string): string {
    const code = this.#text.codePointAt(this.#at);
    if (code === undefined) return "the end of the text";
    const character = String.fromCodePoint(code);
    if (/[\p{C}\p{Z}]/u.test(character)) return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    const shown = character === '"' ? "'\"'" : `"${character}"`;
    if (!/value|name in/.test(expectation)) return shown;
    if (/['`‘’“”]/.test(character)) return `${shown}; JSON's quotes are "`;
    return /\p{L}/u.test(character)
      ? `${shown}; words need double quotes, and in a shell single ones around it all`
      : shown;
  }
}

function isDigit(character: string | undefined): boolean {
  return character !== undefined && character >= "0" && character <= "9";
}
