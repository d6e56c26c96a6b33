import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { serve as startServer, type Server } from "../node.js";
import { UsageError, type Args } from "./args.js";
import { ExitCode, untilSignal, type Command, type Io } from "./command.js";
import { describe, printable } from "./output.js";

const DEFAULT_PORT = 3000;

/** What a file serves. */
export type Methods = Record<string, (params: any, context: any) => unknown>;

/** `reciproc serve`: serves the methods of a file. */
export const serve: Command = {
  name: "serve",
  arguments: ["FILE"],
  options: ["port", "host", "path"],
  summary: "serve the methods of a file",
  help: `Serves the methods that FILE, a JavaScript module, exports by default:

  export default { add: ([a, b], context) => a + b };

The first line on standard output is "listening on ws://HOST:PORT/PATH". What a handler throws, an RpcError aside,
and refused connections go to standard error, one line each. Ctrl-C ends.

  --port N  the port to listen on (default ${DEFAULT_PORT}); 0 picks a free one
  --host H  the address to listen on (default 127.0.0.1, this machine only)
  --path P  the only path that is served, such as /rpc (default: every path)

Exit codes: 0 ended by SIGINT or SIGTERM, 2 cannot listen, 64 wrong use.

  reciproc serve api.js --port 0`,

  async run(args, io) {
    const methods = await loadMethods(args.arguments[0]!);
    // Before it listens: whoever reads the first line may send the signal.
    const signalled = untilSignal();
    const server = await start(methods, args, io);
    if (server === undefined) return ExitCode.NoConnection;
    io.stdout.line(`listening on ${server.url}`);
    await signalled;
    await server.close();
    return ExitCode.Ok;
  },
};

async function start(
  methods: Methods,
  { port = DEFAULT_PORT, host, path }: Args,
  { stderr }: Io,
): Promise<Server | undefined> {
  let server: Server;
  try {
    server = await startServer({ port, host, path, methods });
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const reason = code === "EADDRINUSE" ? "the address is in use" : message;
    stderr.alarm(printable(`cannot listen on ${host ?? "127.0.0.1"}:${port}: ${reason}`));
    return undefined;
  }
  server.on("error", (error) => stderr.alarm(`error: ${describe(error)}`));
  server.on("refuse", ({ status, reason }, request) => {
    stderr.alarm(printable(`refused ${request.socket.remoteAddress ?? "a connection"}: ${status}, ${reason}`));
  });
  return server;
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
    // Node keeps the place of a syntax error in an ES module to itself.
    const hint = error instanceof SyntaxError ? `; \`node --check ${file}\` shows the place` : "";
    throw new UsageError(`cannot load "${file}": ${describe(error)}${hint}`);
  } finally {
    process.off("beforeExit", onIdle!);
  }
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

function isPlainObject(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const proto: unknown = Object.getPrototypeOf(value);
  return proto === null || Object.getPrototypeOf(proto) === null;
}
