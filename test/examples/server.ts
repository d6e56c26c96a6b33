import { join } from "node:path";
import { Running } from "../readme/examples.js";

export const EXAMPLES = join(import.meta.dirname, "../../examples");

/** The server of an example. It can be stopped, and started again at the same port. */
export class ExampleServer {
  url = "";
  #running: Running | undefined;
  #errors = "";
  readonly #program: [path: string, args: string[]];

  constructor(path: string, args: string[] = []) {
    this.#program = [join(EXAMPLES, path), args];
  }

  async start(): Promise<void> {
    const port = this.url === "" ? "0" : new URL(this.url).port;
    const [path, args] = this.#program;
    this.#running = new Running(path, args, { PORT: port }, EXAMPLES);
    this.url = /(?:http|ws):\S+/.exec(await this.#running.line(/(http|ws):/))![0];
  }

  /** Ends the server as a deployment does. Returns its exit code. */
  async stop(signal?: NodeJS.Signals): Promise<number | null> {
    const code = await this.#running!.stop(signal);
    this.#errors += this.#running!.errors;
    return code;
  }

  get errors(): string {
    return this.#errors + (this.#running?.errors ?? "");
  }
}
