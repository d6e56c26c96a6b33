import type { WebSocket } from "ws";
import { bridge as startBridge } from "../bridge/bridge.js";
import { DEFAULT_MESSAGE_BYTES } from "../bridge/options.js";
import type { GateDelegate } from "../server/gate.js";
import { HttpGate } from "../server/http-gate.js";
import { checkServerOptions } from "../server/options.js";
import { UsageError, type Args } from "./args.js";
import { BridgeLog } from "./bridge-log.js";
import { ExitCode, type Command, type Io } from "./command.js";
import { DEFAULT_PORT, printListenError, printRefusal } from "./gate.js";
import { describe } from "./output.js";

/** Each connection runs its own process, and a language server easily takes 100 MB. */
const DEFAULT_CONNECTIONS = 32;

/** `reciproc bridge`: puts a command that communicates over stdio behind a WebSocket. */
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
  summary: "put a program that communicates over stdio behind a WebSocket",
  help: `Starts a new process of COMMAND for each connection. A message on its standard output becomes a text frame, and a
frame becomes a message on its standard input, unchanged. For language servers, MCP servers and other programs that
speak JSON-RPC over stdio. Every client that can connect can use COMMAND with your permissions.

The first line on standard output is "listening on ws://HOST:PORT/PATH". Standard error shows the standard error of the
commands, failures and refusals. While several connections are open, each line begins with the connection's number.

When the connection ends, the command's standard input ends. The command gets SIGTERM 2 seconds later, and SIGKILL after
2 more. When the command ends, the connection is closed: with 1000 after exit code 0, else with 1011 and the reason.

Ctrl-C ends all connections in this way. SIGTERM drains: new connections are refused, the standard input of each command
ends, and its remaining output is delivered until it exits. A second signal ends everything at once.

  --framing lsp|lines    how messages are framed on the command's pipes: lsp puts a Content-Length header before each,
                         for language servers (default); lines puts each on one line, for MCP servers
  --port N               the port to listen on (default ${DEFAULT_PORT}); 0 picks a free one
  --host H               the address to listen on (default 127.0.0.1, this machine only)
  --path P               the only path that is served, such as /lsp (default: every path)
  --allow-host NAME      a host name of the bridge besides localhost; may be repeated
  --allow-origin ORIGIN  an origin whose pages may connect, such as https://example.org, or "*"; may be repeated
  --max-connections N    most connections at once (default ${DEFAULT_CONNECTIONS})
  --max-message-bytes N  longest message in either direction (default ${DEFAULT_MESSAGE_BYTES})
  --drain-timeout MS     how long commands may run after SIGTERM (default 30000)

Exit codes: 0 ended by SIGINT or SIGTERM, 2 cannot listen, 64 wrong use.

  reciproc bridge --port 0 -- typescript-language-server --stdio`,

  async run(args, io) {
    if (args.arguments[0] === "") throw new UsageError("COMMAND is empty");
    // Before the gate listens: a parent process that reads the first line may send a signal at once.
    const signalled = io.untilSignal();
    const bridges = new Bridges(args, io);
    const { gate } = bridges;
    try {
      await gate.listen();
    } catch (error) {
      printListenError(io.stderr, error as Error, args);
      return ExitCode.NoConnection;
    }
    io.stdout.line(`listening on ${gate.url}`);
    await bridges.close(await signalled);
    return ExitCode.Ok;
  },
};

/** The bridges of one gate. */
class Bridges implements GateDelegate<WebSocket> {
  readonly gate: HttpGate<WebSocket>;
  readonly maxFrameBytes: number;
  /** Without an agreed subprotocol, most clients close, and the command was started for nothing. */
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
    const { gate } = checkServerOptions({ port, host, path, hosts, origins, limits });
    this.gate = new HttpGate<WebSocket>(gate, this, { socketOf: (webSocket) => webSocket });
  }

  /** Returns the agreed subprotocol. MCP clients offer "mcp", and a browser closes if the server does not agree. */
  chooseProtocol(offered: ReadonlySet<string>): string | undefined {
    return this.#args.framing === "lines" && offered.has("mcp") ? "mcp" : undefined;
  }

  admit(): (webSocket: WebSocket) => void {
    return (webSocket) => this.#start(webSocket);
  }

  #start(webSocket: WebSocket): void {
    // A command may outlive its connection for seconds, so clients that reconnect quickly must not accumulate commands.
    if (this.#running.size >= 2 * this.#maxConnections) return refuse(webSocket);
    const bridged = this.#join(webSocket)
      .catch((error: unknown) => this.failed(error))
      .finally(() => this.#running.delete(bridged));
    this.#running.add(bridged);
  }

  refused: GateDelegate<WebSocket>["refused"] = (refusal, request) =>
    printRefusal(this.#io.stderr, refusal, request, bridge.options);

  failed(error: unknown): void {
    this.#io.stderr.alarm(`error: ${describe(error)}`);
  }

  /** Refuses new connections and ends every command. On SIGTERM, drains the commands first. Resolves when all have exited. */
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

/** Closes with 1013, "try again later" (RFC 6455's registry of close codes). */
function refuse(webSocket: WebSocket): void {
  webSocket.on("error", () => {});
  webSocket.close(1013, "too many commands are ending");
}
