import type { WebSocket } from "ws";
import { bridge as startBridge } from "../bridge/bridge.js";
import { DEFAULT_MESSAGE_BYTES } from "../bridge/options.js";
import { Gate, type GateOwner } from "../server/gate.js";
import { checkServerOptions } from "../server/options.js";
import { UsageError, type Args } from "./args.js";
import { BridgeLog } from "./bridge-log.js";
import { ExitCode, untilSignal, type Command, type Io } from "./command.js";
import { DEFAULT_PORT, tellCannotListen, tellRefusal } from "./gate.js";
import { describe } from "./output.js";

/** Each is a process of its own, and a language server easily takes 100 MB. */
const DEFAULT_CONNECTIONS = 32;

/** `reciproc bridge`: puts a command that talks over its standard input and output behind a WebSocket. */
export const bridge: Command = {
  name: "bridge",
  arguments: ["COMMAND", "[ARGS...]"],
  takesCommand: true,
  options: [
    "framing",
    "port",
    "host",
    "path",
    "allow-host",
    "allow-origin",
    "max-connections",
    "max-message-bytes",
    "drain-timeout",
  ],
  summary: "put a program that talks over stdio behind a WebSocket",
  help: `Starts COMMAND anew for each connection, and joins the two: a message on the command's standard output becomes a
text frame, a frame becomes a message on its standard input, and nothing in it is changed. For language servers, MCP
servers and whatever else speaks JSON-RPC over stdio. Whoever can connect can use the command as you can.

The first line on standard output is "listening on ws://HOST:PORT/PATH". What the commands write to their standard error
goes to this one, with the number of the connection in front while several are open; so do failures and refusals.

When the connection ends, the command's standard input does; 2 seconds later it gets SIGTERM, and 2 more later SIGKILL.
When the command ends, the connection is closed: with 1000 after exit code 0, else with 1011 and the reason.

Ctrl-C ends all connections so. SIGTERM drains: whoever comes is refused, the standard input of each command ends, and
what it still answers is delivered until it ends by itself. A second signal ends everything at once.

  --framing lsp|lines    how messages stand on the command's pipes: behind a Content-Length header, as language servers
                         have it (default lsp), or one JSON a line, as MCP servers do
  --port N               the port to listen on (default ${DEFAULT_PORT}); 0 picks a free one
  --host H               the address to listen on (default 127.0.0.1, this machine only)
  --path P               the only path that is served, such as /lsp (default: every path)
  --allow-host NAME      a name besides localhost under which the bridge is reached; may be repeated
  --allow-origin ORIGIN  an origin whose pages may connect, such as https://example.org, or "*"; may be repeated
  --max-connections N    most connections at once (default ${DEFAULT_CONNECTIONS})
  --max-message-bytes N  longest message either way (default ${DEFAULT_MESSAGE_BYTES})
  --drain-timeout MS     how long commands may run on after SIGTERM (default 30000)

Exit codes: 0 ended by SIGINT or SIGTERM, 2 cannot listen, 64 wrong use.

  reciproc bridge --port 0 -- typescript-language-server --stdio`,

  async run(args, io) {
    if (args.arguments[0] === "") throw new UsageError("COMMAND is empty");
    // Before it listens: whoever reads the first line may send the signal.
    const signalled = untilSignal();
    const bridges = new Bridges(args, io);
    const { gate } = bridges;
    try {
      await gate.listen();
    } catch (error) {
      tellCannotListen(io.stderr, error as Error, args);
      return ExitCode.NoConnection;
    }
    io.stdout.line(`listening on ${gate.url}`);
    await bridges.close(await signalled);
    return ExitCode.Ok;
  },
};

/** The bridges of one gate. */
class Bridges implements GateOwner {
  readonly gate: Gate;
  readonly maxFrameBytes: number;
  /** Most clients would give up, with a command started for nothing. */
  readonly wantsAgreement = true;
  readonly #args: Args;
  readonly #io: Io;
  readonly #log: BridgeLog;
  readonly #maxConnections: number;
  readonly #stop = new AbortController();
  readonly #drain = new AbortController();
  readonly #running = new Set<Promise<void>>();

  constructor(args: Args, io: Io) {
    const { port = DEFAULT_PORT, host, path, allowedHosts: hosts, allowedOrigins: origins } = args;
    this.maxFrameBytes = args.maxMessageBytes ?? DEFAULT_MESSAGE_BYTES;
    this.#args = args;
    this.#io = io;
    this.#log = new BridgeLog(io.stderr);
    this.#maxConnections = args.maxConnections ?? DEFAULT_CONNECTIONS;
    const limits = { maxConnections: this.#maxConnections };
    this.gate = new Gate(checkServerOptions({ port, host, path, hosts, origins, limits }).gate, this);
  }

  /** MCP's own clients offer its name, and a browser gives up when nobody agrees. No other is known here. */
  chooseProtocol(offered: ReadonlySet<string>): string | undefined {
    return this.#args.framing === "lines" && offered.has("mcp") ? "mcp" : undefined;
  }

  admit(webSocket: WebSocket): void {
    // A command may take a while to end when its connection has: who comes and goes fast must not gather them.
    if (this.#running.size >= 2 * this.#maxConnections) return turnAway(webSocket);
    const bridged = this.#join(webSocket)
      .catch((error: unknown) => this.failed(error))
      .finally(() => this.#running.delete(bridged));
    this.#running.add(bridged);
  }

  refused: GateOwner["refused"] = (refusal, request) => tellRefusal(this.#io.stderr, refusal, request, bridge.options);

  failed(error: unknown): void {
    this.#io.stderr.alarm(`error: ${describe(error)}`);
  }

  /** Lets nobody in any more, ends every command, at SIGTERM when it has answered, and resolves when all are gone. */
  async close(signal: NodeJS.Signals): Promise<void> {
    this.gate.shut();
    (signal === "SIGTERM" ? this.#drain : this.#stop).abort();
    await Promise.all(this.#running);
    await this.gate.close();
  }

  async #join(webSocket: WebSocket): Promise<void> {
    const [command, ...args] = this.#args.arguments as [string, ...string[]];
    const log = this.#log.open();
    const { isFailure, reason } = await startBridge(webSocket, {
      command,
      args,
      framing: this.#args.framing,
      maxMessageBytes: this.maxFrameBytes,
      stderr: (chunk) => log.write(chunk),
      signal: this.#stop.signal,
      drain: this.#drain.signal,
      drainMs: this.#args.drainTimeoutMs,
    });
    log.close(isFailure ? reason : undefined);
  }
}

/** Try again later (RFC 6455's registry of close codes). */
function turnAway(webSocket: WebSocket): void {
  webSocket.on("error", () => {});
  webSocket.close(1013, "too many commands are ending");
}
