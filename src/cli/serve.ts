import { serve as startServer, type ServerAround, type Server } from "../node.js";
import { UsageError, type Args } from "./args.js";
import { ExitCode, type Command, type Io } from "./command.js";
import { DEFAULT_PORT, printListenError, printRefusal } from "./gate.js";
import { loadDefault } from "./load.js";
import { describe } from "./output.js";

/** The methods of a file. */
export type Methods = Record<string, (params: any, context: any) => unknown>;

/** `reciproc serve`: serves the methods of a file. */
export const serve: Command = {
  name: "serve",
  arguments: ["FILE"],
  options: ["port", "host", "path", "allow-host", "allow-origin", "drain-timeout"],
  summary: "serve the methods of a file",
  help: `Serves the methods that FILE, a JavaScript module, exports by default:

  export default { add: ([a, b], context) => a + b };

The first line on standard output is "listening on ws://HOST:PORT/PATH". Standard error shows one line for each refused
connection, and for each error of a handler, with its method. An RpcError is sent to the caller instead.

SIGTERM drains: new connections are refused, running calls finish, and clients are asked to reconnect soon, to the next
server. Ctrl-C closes every connection without waiting for calls. Either waits up to 5 seconds for clients that do not
answer the close. A second signal ends the process at once.

  --port N               the port to listen on (default ${DEFAULT_PORT}); 0 picks a free one
  --host H               the address to listen on (default 127.0.0.1, this machine only)
  --path P               the only path that is served, such as /rpc (default: every path)
  --allow-host NAME      a host name of the server besides localhost; may be repeated
  --allow-origin ORIGIN  an origin whose pages may connect, such as https://example.org, or "*"; may be repeated
  --drain-timeout MS     how long calls may run after SIGTERM (default 30000)

Exit codes: 0 ended by SIGINT or SIGTERM, 2 cannot listen, 64 wrong use.

  reciproc serve api.js --port 0`,

  async run(args, io) {
    const { methods } = await loadMethods(args.arguments[0]!);
    // Before the server listens: a parent process that reads the first line may send a signal at once.
    const signalled = io.untilSignal();
    const server = await start(methods, args, io);
    if (server === undefined) return ExitCode.NoConnection;
    io.stdout.line(`listening on ${server.url}`);
    if ((await signalled) === "SIGTERM") await server.drain({ timeoutMs: args.drainTimeoutMs });
    else await server.close();
    return ExitCode.Ok;
  },
};

async function start(methods: Methods, args: Args, { stderr }: Io): Promise<Server | undefined> {
  const { port = DEFAULT_PORT, host, path, allowedHosts: hosts, allowedOrigins: origins } = args;
  const failedIn = new WeakMap<object, string>();
  let server: Server;
  try {
    const listed = { "rpc.discover": () => openRpc(methods), ...methods };
    server = await startServer({ port, host, path, hosts, origins, methods: listed, around: noting(failedIn) });
  } catch (error) {
    printListenError(stderr, error as Error, args);
    return undefined;
  }
  server.on("error", (error) => {
    const thrown = thrownBehind(error, failedIn);
    const method = isObject(thrown) ? failedIn.get(thrown) : undefined;
    stderr.alarm(`${method ?? "error"}: ${describe(thrown)}`);
  });
  server.on("refuse", (refusal, request) => printRefusal(stderr, refusal, request, serve.options));
  return server;
}

/** Returns a document of OpenRPC that lists the methods, which is the result of `rpc.discover`. */
function openRpc(methods: Methods): object {
  const listed = Object.keys(methods).map((name) => ({ name, params: [], result: { name: "result", schema: true } }));
  return { openrpc: "1.3.2", info: { title: "reciproc serve", version: "0" }, methods: listed };
}

/** Returns an `around` that notes which method threw an error: the server's `error` event does not name it. */
function noting(failedIn: WeakMap<object, string>): ServerAround {
  return ({ direction, method }, next) => {
    if (direction === "outgoing") return next();
    return next().catch((error: unknown) => {
      if (isObject(error)) failedIn.set(error, method);
      throw error;
    });
  };
}

/** Returns the error that a handler threw. If the other side sent it, the server reports another error with it as the cause. */
function thrownBehind(error: unknown, failedIn: WeakMap<object, string>): unknown {
  if ((isObject(error) && failedIn.has(error)) || !(error instanceof Error)) return error;
  return isObject(error.cause) && failedIn.has(error.cause) ? error.cause : error;
}

/** Imports the methods of a file. Rejects with a `UsageError` that names the fault. In an object: a promise would call a method named `then`. */
export async function loadMethods(file: string): Promise<{ methods: Methods }> {
  const { value } = await loadDefault(file, "{ method: (params) => result }");
  return { methods: checkMethods(value, file) };
}

function checkMethods(value: unknown, file: string): Methods {
  if (!isPlainObject(value)) throw new UsageError(`the default export of "${file}" is not a plain object of methods`);
  const entries = Object.entries(value);
  // Node also returns such an export for an empty file.
  if (entries.length === 0) throw new UsageError(`the default export of "${file}" holds no methods`);
  for (const [name, method] of entries) {
    if (typeof method !== "function")
      throw new UsageError(`"${name}" in the default export of "${file}" is not a function`);
  }
  return value as Methods;
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

function isPlainObject(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const proto: unknown = Object.getPrototypeOf(value);
  return proto === null || Object.getPrototypeOf(proto) === null;
}
