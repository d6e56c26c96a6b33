/**
 * Prints plain lines for programs, and indented and coloured JSON for people at a terminal. Every text is escaped here, because the
 * other side of a connection may have chosen a part of it.
 */
import { inspect, styleText } from "node:util";

/** Standard output or standard error. */
export interface Stream {
  readonly isTTY?: boolean;
  write(text: string, done?: (error?: Error | null) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
}

/** One of the two outputs. When its reader exits (`| head`), drops the rest without an error. */
export class Output {
  readonly isTerminal: boolean;
  /** Whether colours are shown. */
  readonly color: boolean;
  /** Resolves when the output can no longer be written to. */
  readonly broken: Promise<void>;
  readonly #stream: Stream;
  #error: NodeJS.ErrnoException | undefined;

  constructor(stream: Stream, allowColor: boolean, env: NodeJS.ProcessEnv) {
    this.#stream = stream;
    this.isTerminal = stream.isTTY === true;
    // no-color.org: `NO_COLOR` counts if it is set and not empty.
    this.color = this.isTerminal && allowColor && !env["NO_COLOR"] && env["TERM"] !== "dumb";
    this.broken = new Promise((resolve) => {
      stream.on("error", (error) => {
        this.#error ??= error;
        resolve();
      });
    });
  }

  /** Writes a text of this program, or one that the user trusts, as it is. */
  raw(text: string): void {
    if (this.#error === undefined) this.#stream.write(`${text}\n`);
  }

  /** Writes one line, or several. */
  line(text: string): void {
    this.raw(escapeInvisible(text));
  }

  /** Writes one line in red. */
  alarm(text: string): void {
    const line = escapeInvisible(inOneLine(text));
    this.raw(this.color ? paint("red", line) : line);
  }

  /** Writes the JSON of a value: compact for a program, indented for a terminal. */
  json(value: unknown): void {
    this.jsonText(JSON.stringify(value, null, this.isTerminal ? 2 : 0));
  }

  /** Writes JSON text, coloured if colours are shown. */
  jsonText(text: string): void {
    const json = escapeInvisible(text);
    this.raw(this.color ? colorJson(json) : json);
  }

  /** Waits until everything is written. Returns the error that prevented it. A reader that exited (EPIPE) is no error. */
  async flushed(): Promise<Error | undefined> {
    if (this.#error === undefined) {
      await new Promise<void>((resolve) => this.#stream.write("", () => resolve()));
    }
    return this.#error?.code === "EPIPE" ? undefined : this.#error;
  }
}

/**
 * Escapes what a terminal may execute or not show as it is: controls (also C1 and DEL), marks that change the direction of text, line
 * separators, format characters and lone surrogates. Keeps line breaks. JSON stays the same JSON, because only its strings can contain the others.
 */
export function escapeInvisible(text: string): string {
  return text.replace(/(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, (character) =>
    character.replace(/[^]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`),
  );
}

/** Replaces line breaks, with the blanks around them, by a space. */
function inOneLine(text: string): string {
  // A pattern such as /\s*\n/ takes quadratic time for a run of blanks without a line break.
  return text.replace(/\s+/g, (blanks) => (blanks.includes("\n") ? " " : blanks));
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|-?\d[\d.eE+-]*|true|false|null/g;

/** Colours a JSON text. */
export function colorJson(json: string): string {
  return json.replace(TOKEN, (token: string, string: string | undefined, colon: string | undefined) => {
    if (string === undefined) return paint("yellow", token);
    return colon === undefined ? paint("green", string) : paint("cyan", string) + colon;
  });
}

/** Colours a text. The `Output` has decided whether colours are shown; Node would check standard output only. */
function paint(format: "cyan" | "green" | "red" | "yellow", text: string): string {
  return styleText(format, text, { validateStream: false });
}

/** Returns a text about any thrown value, with the place in a file if it is known. Never throws. */
export function describe(error: unknown): string {
  try {
    if (!(error instanceof Error)) return inspect(error, { breakLength: Infinity, depth: 2 });
    return `${error.name}: ${error.message}${placeInFile(error.stack)}`;
  } catch {
    // A hostile Proxy or getter throws at every access.
    return "a value that cannot be shown";
  }
}

/** Returns the first file in a stack. Node's own modules, `node:..`, do not count. */
function placeInFile(stack: unknown): string {
  const place = typeof stack === "string" ? /(?:^|[ (]|file:\/\/)(\/[^\s():]+:\d+(?::\d+)?)/m.exec(stack) : null;
  return place === null ? "" : ` (${place[1]!})`;
}
