/** A node of the long runs, whose process runs `node.js`. */
import { join } from "node:path";
import { WebSocket } from "ws";
import { EngineError, type AnyPeer } from "../../../src/node.js";
import type { Served, Starting } from "../../fleet/world.js";
import { connect } from "../../support/connect.js";
import { freePort } from "../../support/ports.js";
import { Program, type Command } from "../../support/program.js";

/** An error, or its data. */
interface Failed {
  readonly outcome: EngineError["outcome"];
}

export class NodeProcess extends Program implements Served {
  #settings = {};
  /** The client by which the world orders, and the node reports. */
  #world!: AnyPeer;
  /** What a world uses of a server. */
  readonly server: any = {
    health: () => ({ ok: this.#world.state === "open" }),
    topic: (name: string) => ({
      notify: (...args: unknown[]) => void this.#order(["topic", name], "notify", args).catch(() => {}),
      publish: (...args: unknown[]) => this.#order(["topic", name], "publish", args),
      read: (...args: unknown[]) => this.#order(["topic", name], "read", args),
      members: () => this.#order(["topic", name], "members", []),
    }),
    peer: (id: string) => ({ request: (...args: unknown[]) => this.#order(["peer", id], "request", args) }),
    nodes: { notify: (...args: unknown[]) => this.#order(["nodes"], "notify", args) },
    close: () => this[Symbol.asyncDispose](),
  };
  readonly network = { cut: () => {}, of: (socket: WebSocket) => ({ cut: () => socket.terminate() }) };

  /** Starts a node. Resolves when it serves. `engine`: an entry of the package, and the options of its function. */
  static async create(engine: readonly [string, object], { run, settings, reports }: Starting): Promise<NodeProcess> {
    const node = new NodeProcess();
    node.#settings = { ...settings, run: run.run, engine };
    await Program.launch(node);
    const url = `ws://127.0.0.1:${node.port}/`;
    node.#world = (await connect<any, any>(url, { reconnect: false, methods: reports })) as AnyPeer;
    node.#world.on("close", () => run.endedAt < Infinity || reports.error({ text: "its process has ended" }));
    // Not awaited: the node asks for the members no earlier than the world does.
    node.#world.notify("obey");
    return node;
  }

  /** The node bounds what it does itself, and sends the outcome of an error as data. If it ends, the outcome is that of a lost connection. */
  async #order(part: readonly string[], method: string, args: readonly unknown[]): Promise<unknown> {
    try {
      return await this.#world.request("order", { part, method, args }, { timeoutMs: Infinity });
    } catch (error) {
      const { message, outcome, data = { outcome } } = error as Failed & { message: string; data?: Failed };
      throw new EngineError(message, data.outcome, { cause: error });
    }
  }

  get WebSocket(): Served["WebSocket"] {
    const { port } = this;
    return class extends WebSocket {
      constructor(url: string, { protocols }: { protocols: string[] }) {
        super(`ws://127.0.0.1:${port}/${new URL(url).search}`, protocols);
      }
    };
  }

  protected async takePorts(): Promise<void> {
    this.port = await freePort();
  }

  protected async prepare(): Promise<Command> {
    const settings = JSON.stringify({ ...this.#settings, port: this.port });
    const args = [join(import.meta.dirname, "node.js"), settings];
    return { path: process.execPath, args, output: "stderr", ready: /^listening$/ };
  }
}
