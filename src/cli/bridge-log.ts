/** Writes the logs of several connections to standard error, in whole lines. A prefix has the number of the connection while several are open. */
import { StringDecoder } from "node:string_decoder";
import type { Output } from "./output.js";

/** A longer line is cut in two. */
const MAX_LINE_LENGTH = 64 * 1024;

/** Standard error, shared by the open connections. */
export class BridgeLog {
  readonly #stderr: Output;
  #opened = 0;
  #open = 0;

  constructor(stderr: Output) {
    this.#stderr = stderr;
  }

  /** Starts the log of one more connection. */
  open(): ConnectionLog {
    this.#open++;
    this.#opened++;
    const number = this.#opened;
    return new ConnectionLog(
      this.#stderr,
      () => (this.#open > 1 ? `[${number}] ` : ""),
      () => this.#open--,
    );
  }
}

/** The log of one connection. */
class ConnectionLog {
  readonly #stderr: Output;
  readonly #prefix: () => string;
  readonly #onClose: () => void;
  /** Joins characters that are cut between two chunks. */
  readonly #decoder = new StringDecoder("utf8");
  /** The incomplete last line. */
  #rest = "";

  constructor(stderr: Output, prefix: () => string, onClose: () => void) {
    this.#stderr = stderr;
    this.#prefix = prefix;
    this.#onClose = onClose;
  }

  /** Writes a chunk of the command's standard error, unchanged: colours are the command's choice. */
  write(chunk: Buffer): void {
    const lines = (this.#rest + this.#decoder.write(chunk)).split("\n");
    this.#rest = lines.pop()!;
    for (const line of lines) this.#line(line);
    if (this.#rest.length > MAX_LINE_LENGTH) this.#flush();
  }

  /** Writes the incomplete last line, and `failure` if there was one. */
  close(failure: string | undefined): void {
    this.#rest += this.#decoder.end();
    if (this.#rest !== "") this.#flush();
    if (failure !== undefined) this.#stderr.alarm(this.#prefix() + failure);
    this.#onClose();
  }

  #flush(): void {
    this.#line(this.#rest);
    this.#rest = "";
  }

  #line(text: string): void {
    this.#stderr.raw(this.#prefix() + text);
  }
}
