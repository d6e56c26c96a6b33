/** Prints plain lines for programs, and indented and coloured JSON for people at a terminal. */
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

  constructor(stream: Stream, allowColor: boolean, env: NodeJS.ProcessEnv = process.env) {
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

  /** Writes one line, or several. */
  line(text: string): void {
    if (this.#error === undefined) this.#stream.write(`${text}\n`);
  }

  /** Writes one line in red. */
  alarm(text: string): void {
    this.line(this.color ? paint("red", text) : text);
  }

  /** Returns the JSON of a value: compact for a program, indented for a terminal. */
  json(value: unknown): string {
    return this.isTerminal ? this.#paint(JSON.stringify(value, null, 2)) : jsonLine(value);
  }

  /** Returns a JSON text in one line, coloured if colours are shown. */
  jsonLine(text: string): string {
    return this.#paint(text);
  }

  /** Waits until everything is written. Returns the error that prevented it. A reader that exited (EPIPE) is no error. */
  async flushed(): Promise<Error | undefined> {
    if (this.#error === undefined) {
      await new Promise<void>((resolve) => this.#stream.write("", () => resolve()));
    }
    return this.#error?.code === "EPIPE" ? undefined : this.#error;
  }

  #paint(json: string): string {
    return escapeControls(this.color ? colorJson(json) : json);
  }
}

/** Returns compact JSON in one line. */
export function jsonLine(value: unknown): string {
  return escapeControls(JSON.stringify(value));
}

/** Escapes DEL and the C1 controls of a JSON text. JSON allows them in strings, but a terminal may execute them. */
export function escapeControls(json: string): string {
  return json.replace(/[\u007f-\u009f]/g, (character) => `\\u00${character.charCodeAt(0).toString(16)}`);
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

/** Returns untrusted text in one line, without control characters that a terminal may execute. */
export function printable(text: string): string {
  // A pattern such as /\s*\n/ takes quadratic time for a run of blanks without a line break.
  const line = text.replace(/\s+/g, (blanks) => (blanks.includes("\n") ? " " : blanks));
  return line.replace(/\p{Cc}/gu, (character) => `\\x${hex(character)}`);
}

function hex(character: string): string {
  return character.charCodeAt(0).toString(16).padStart(2, "0");
}

/** Returns one line about any thrown value, with the place in a file if it is known. Never throws. */
export function describe(error: unknown): string {
  try {
    if (!(error instanceof Error)) return printable(inspect(error, { breakLength: Infinity, depth: 2 }));
    return printable(`${error.name}: ${error.message}${placeInFile(error.stack)}`);
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
