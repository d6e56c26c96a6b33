import { join } from "node:path";
import { Running } from "../readme/examples.js";

export const EXAMPLES = join(import.meta.dirname, "../../examples");

/** The server of an example. It can be stopped, and started again at the same port. */
export class ExampleServer {
  url = "";
  #running: Running | undefined;
  #errors = "";
  readonly #run: (port: string) => Running;

  constructor(path: string, args: string[] = []) {
    this.#run = (PORT) => new Running(join(EXAMPLES, path), args, { PORT }, EXAMPLES);
  }

  async start(): Promise<void> {
    this.#running = this.#run(this.url === "" ? "0" : new URL(this.url).port);
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
