/** What is told on standard error about several connections at once: whole lines, with the connection's number where there is a choice. */
import { StringDecoder } from "node:string_decoder";
import { printable, type Output } from "./output.js";

/** A line this long is cut in two. */
const MAX_LINE_LENGTH = 64 * 1024;

/** Standard error, shared by the connections that are open. */
export class BridgeLog {
  readonly #stderr: Output;
  #opened = 0;
  #open = 0;

  constructor(stderr: Output) {
    this.#stderr = stderr;
  }

  /** Begins to tell of one more connection. */
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

/** One connection's part of it. */
class ConnectionLog {
  readonly #stderr: Output;
  readonly #prefix: () => string;
  readonly #onClose: () => void;
  /** A character may come in pieces. */
  readonly #decoder = new StringDecoder("utf8");
  /** A line without its end. */
  #rest = "";

  constructor(stderr: Output, prefix: () => string, onClose: () => void) {
    this.#stderr = stderr;
    this.#prefix = prefix;
    this.#onClose = onClose;
  }

  /** Takes what the command wrote to its standard error. It is passed on as it is: colours are the command's choice. */
  write(chunk: Buffer): void {
    const lines = (this.#rest + this.#decoder.write(chunk)).split("\n");
    this.#rest = lines.pop()!;
    for (const line of lines) this.#line(line);
    if (this.#rest.length > MAX_LINE_LENGTH) this.#flush();
  }

  /** Tells the last of it, with `failure` where there was one. */
  close(failure: string | undefined): void {
    this.#rest += this.#decoder.end();
    if (this.#rest !== "") this.#flush();
    if (failure !== undefined) this.#stderr.alarm(printable(this.#prefix() + failure));
    this.#onClose();
  }

  #flush(): void {
    this.#line(this.#rest);
    this.#rest = "";
  }

  #line(text: string): void {
    this.#stderr.line(this.#prefix() + text);
  }
}
