/** Reads the lines that a person types at a prompt, or that a program pipes in. */
import { clearScreenDown, createInterface, cursorTo, moveCursor, type Interface } from "node:readline";
import { Readable, type Writable } from "node:stream";

/** The input of an interactive command. */
export class Lines {
  readonly #interface: Interface;
  readonly #output: Writable | undefined;
  /** Whether no line is taken any more. Node throws for a prompt then. */
  #isOver = false;

  /** `output`: the terminal of the person; `undefined` if a program is at the other end, which gets no prompt. */
  constructor(input: AsyncIterable<Uint8Array>, output: Writable | undefined) {
    this.#output = output;
    const stream = "on" in input ? (input as unknown as Readable) : Readable.from(input);
    this.#interface = createInterface({ input: stream, output, terminal: output !== undefined, prompt: "> " });
  }

  /** Prints by `print`, above the prompt and what is being typed. */
  above(print: () => void): void {
    if (this.#output === undefined || this.#isOver) return print();
    // What is typed may take several rows. `prompt` moves up by those above the cursor, also from below what was printed.
    const { rows } = this.#interface.getCursorPos();
    moveCursor(this.#output, 0, -rows);
    cursorTo(this.#output, 0);
    clearScreenDown(this.#output);
    print();
    this.#output.write("\n".repeat(rows));
    this.#interface.prompt(true);
  }

  /** Calls `listener` with each line until the end. Resolves with true if a pipe has ended, and with false if a person or `close` ended it. */
  each(listener: (line: string) => void): Promise<boolean> {
    const prompt = (): void => {
      if (this.#output !== undefined && !this.#isOver) this.#interface.prompt();
    };
    this.#interface.on("line", (line) => {
      // After `close`, Node reports the lines that it has read already.
      if (this.#isOver) return;
      listener(line);
      prompt();
    });
    this.#interface.once("SIGINT", () => this.close());
    prompt();
    return new Promise((resolve) =>
      this.#interface.once("close", () => {
        resolve(this.#output === undefined && !this.#isOver);
        this.#isOver = true;
      }),
    );
  }

  close(): void {
    this.#isOver = true;
    this.#interface.close();
  }
}
