/** Reads the lines that a person types at a prompt, or that a program pipes in. */
import { clearLine, createInterface, cursorTo, type Interface } from "node:readline";
import { Readable, type Writable } from "node:stream";

/** The input of an interactive command. */
export class Lines {
  readonly #interface: Interface;
  readonly #output: Writable | undefined;

  /** `output`: the terminal of the person; `undefined` if a program is at the other end, which gets no prompt. */
  constructor(input: AsyncIterable<Uint8Array>, output: Writable | undefined) {
    this.#output = output;
    const stream = "on" in input ? (input as unknown as Readable) : Readable.from(input);
    this.#interface = createInterface({ input: stream, output, terminal: output !== undefined, prompt: "> " });
  }

  /** Prints by `print` above the prompt and what is being typed. */
  above(print: () => void): void {
    if (this.#output === undefined) return print();
    cursorTo(this.#output, 0);
    clearLine(this.#output, 0);
    print();
    this.#interface.prompt(true);
  }

  /** Calls `listener` with each line, until the input ends, Ctrl-C is pressed, or `close` is called. */
  async each(listener: (line: string) => void): Promise<void> {
    const ended = new Promise<void>((resolve) => this.#interface.once("close", resolve).once("SIGINT", resolve));
    this.#interface.on("line", (line) => {
      listener(line);
      if (this.#output !== undefined) this.#interface.prompt();
    });
    if (this.#output !== undefined) this.#interface.prompt();
    await ended;
    this.close();
  }

  close(): void {
    this.#interface.close();
  }
}
