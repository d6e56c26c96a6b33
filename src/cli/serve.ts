import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { serve as startServer, type Around, type Server } from "../node.js";
import { UsageError, type Args } from "./args.js";
import { ExitCode, untilSignal, type Command, type Io } from "./command.js";
import { DEFAULT_PORT, tellCannotListen, tellRefusal } from "./gate.js";
import { describe, printable } from "./output.js";

/** What a file serves. */
export type Methods = Record<string, (params: any, context: any) => unknown>;

/** `reciproc serve`: serves the methods of a file. */
export const serve: Command = {
  name: "serve",
  arguments: ["FILE"],
  options: ["port", "host", "path", "allow-host", "allow-origin", "drain-timeout"],
  summary: "serve the methods of a file",
  help: `Serves the methods that FILE, a JavaScript module, exports by default:

  export default { add: ([a, b], context) => a + b };

The first line on standard output is "listening on ws://HOST:PORT/PATH". What a handler throws, an RpcError aside,
goes to standard error with the name of its method, and refused connections do, one line each.

SIGTERM drains: whoever comes is refused, calls that run are finished, and clients are told to come back soon, to the
next server. Ctrl-C closes every connection without waiting for calls. Either waits up to 5 seconds for clients that do
not answer the close; a second signal ends at once.

  --port N               the port to listen on (default ${DEFAULT_PORT}); 0 picks a free one
  --host H               the address to listen on (default 127.0.0.1, this machine only)
  --path P               the only path that is served, such as /rpc (default: every path)
  --allow-host NAME      a name besides localhost under which the server is reached; may be repeated
  --allow-origin ORIGIN  an origin whose pages may connect, such as https://example.org, or "*"; may be repeated
  --drain-timeout MS     how long calls may run on after SIGTERM (default 30000)

Exit codes: 0 ended by SIGINT or SIGTERM, 2 cannot listen, 64 wrong use.

  reciproc serve api.js --port 0`,

  async run(args, io) {
    const methods = await loadMethods(args.arguments[0]!);
    // Before it listens: whoever reads the first line may send the signal.
    const signalled = untilSignal();
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
    tellCannotListen(stderr, error as Error, args);
    return undefined;
  }
  server.on("error", (error) => {
    const thrown = thrownBehind(error, failedIn);
    const method = isObject(thrown) ? failedIn.get(thrown) : undefined;
    stderr.alarm(`${printable(method ?? "error")}: ${describe(thrown)}`);
  });
  server.on("refuse", (refusal, request) => tellRefusal(stderr, refusal, request, serve.options));
  return server;
}

/** Notes in which method an error was thrown: the server's `error` event does not say. */
function noting(failedIn: WeakMap<object, string>): Around {
  return ({ direction, method }, next) => {
    if (direction === "outgoing") return next();
    return next().catch((error: unknown) => {
      if (isObject(error)) failedIn.set(error, method);
      throw error;
    });
  };
}

/** Returns what a handler threw: where that is an error from the other side, the server reports one that has it as its cause. */
function thrownBehind(error: unknown, failedIn: WeakMap<object, string>): unknown {
  if ((isObject(error) && failedIn.has(error)) || !(error instanceof Error)) return error;
  return isObject(error.cause) && failedIn.has(error.cause) ? error.cause : error;
}

/** Imports a file and checks what it exports. Throws a `UsageError` that says what is wrong with it. */
export async function loadMethods(file: string): Promise<Methods> {
  const path = resolve(file);
  const isFile = await stat(path).then(
    (stats) => stats.isFile(),
    () => undefined,
  );
  if (isFile === undefined) throw new UsageError(`there is no file "${file}"`);
  if (!isFile) throw new UsageError(`"${file}" is not a file`);
  const module = await importFile(path, file);
  if (!("default" in module)) {
    throw new UsageError(`"${file}" has no default export; it needs \`export default { method: (params) => result }\``);
  }
  return checkMethods(module["default"], file);
}

async function importFile(path: string, file: string): Promise<Record<string, unknown>> {
  let onIdle: (() => void) | undefined;
  const idle = new Promise<never>((_resolve, reject) => {
    onIdle = () =>
      reject(new UsageError(`"${file}" never finishes loading: its top-level await waits for nothing that runs`));
    process.once("beforeExit", onIdle);
  });
  try {
    return await Promise.race([import(pathToFileURL(path).href) as Promise<Record<string, unknown>>, idle]);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`cannot load "${file}": ${describe(error)}${hintFor(error, file)}`);
  } finally {
    process.off("beforeExit", onIdle!);
  }
}

function hintFor(error: unknown, file: string): string {
  // Node keeps the place of a syntax error in an ES module to itself.
  if (error instanceof SyntaxError) return `; \`node --check ${file}\` shows the place`;
  // Also when FILE imports such a file.
  if (error instanceof TypeError && /^Unknown file extension "\.[cm]?tsx?"/.test(error.message))
    return `; compile it first, or run with a loader such as \`NODE_OPTIONS="--import tsx" reciproc serve ${file}\``;
  return "";
}

function checkMethods(value: unknown, file: string): Methods {
  if (!isPlainObject(value)) throw new UsageError(`the default export of "${file}" is not a plain object of methods`);
  const entries = Object.entries(value);
  // What Node makes of an empty file, too.
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
