import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { serve as startServer, type ServerAround, type Server } from "../node.js";
import { UsageError, type Args } from "./args.js";
import { ExitCode, type Command, type Io } from "./command.js";
import { DEFAULT_PORT, printListenError, printRefusal } from "./gate.js";
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
    server = await startServer({ port, host, path, hosts, origins, methods, around: noting(failedIn) });
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

/** Imports a file. Returns the methods that it exports, in an object: a promise would call a method named `then`. Rejects with a `UsageError` that names the fault. */
export async function loadMethods(file: string): Promise<{ methods: Methods }> {
  const path = resolve(file);
  const isFile = await stat(path).then(
    (stats) => stats.isFile(),
    () => undefined,
  );
  if (isFile === undefined) throw new UsageError(`there is no file "${file}"`);
  if (!isFile) throw new UsageError(`"${file}" is not a file`);
  const { file: module } = await importFile(path, file);
  if (!("default" in module)) {
    throw new UsageError(`"${file}" has no default export; it needs \`export default { method: (params) => result }\``);
  }
  return { methods: checkMethods(module["default"], file) };
}

/** An imported file, as a member: awaiting its namespace would call an export named `then`. */
interface Imported {
  readonly file: Record<string, unknown>;
}

async function importFile(path: string, file: string): Promise<Imported> {
  let onIdle: (() => void) | undefined;
  const idle = new Promise<never>((_resolve, reject) => {
    onIdle = () => reject(new UsageError(`"${file}" never finishes loading: its top-level await cannot settle`));
    process.once("beforeExit", onIdle);
  });
  try {
    // `import()` calls an export named `then`, which CommonJS has for a method of that name. This module exports only the namespace.
    const text = `export * as file from ${JSON.stringify(pathToFileURL(path).href)};`;
    return await Promise.race([import(`data:text/javascript,${encodeURIComponent(text)}`) as Promise<Imported>, idle]);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`cannot load "${file}": ${describe(error)}${hintFor(error, file)}`);
  } finally {
    process.off("beforeExit", onIdle!);
  }
}

function hintFor(error: unknown, file: string): string {
  // Node does not report the place of a syntax error in an ES module.
  if (error instanceof SyntaxError) return `; \`node --check ${file}\` shows the place`;
  // This error also occurs if FILE imports a TypeScript file.
  if (error instanceof TypeError && /^Unknown file extension "\.[cm]?tsx?"/.test(error.message))
    return `; compile it first, or run with a loader such as \`NODE_OPTIONS="--import tsx" reciproc serve ${file}\``;
  return "";
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
