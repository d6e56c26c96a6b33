/**
 * Runs a language server on standard input and output: `node language-server.js LANGUAGE --stdio`.
 *
 * A language server serves whoever opens the demo's page, so it must not read files of this machine or fetch addresses, and
 * whether it does must not depend on what its client sends. The commands of vscode-langservers-extracted pass it a file
 * reader and an HTTP client. Here it gets neither: what it wants to read, it requests from its client.
 */
import { createRequire } from "node:module";
import type { Language } from "./lsp.js";

/** The part of a `vscode-languageserver` connection that is used here. */
interface Connection {
  readonly console: Pick<Console, "log" | "error">;
}

/** What a language server needs of its runtime. `file`, `http` and `configureHttpRequests` are left out on purpose. */
interface Runtime {
  readonly timer: Readonly<Record<"setImmediate" | "setTimeout", (...args: any[]) => { dispose(): void }>>;
}

const language = process.argv[2] as Language;
// As the package itself sees its dependencies, wherever they are installed.
const require = createRequire(createRequire(import.meta.url).resolve("vscode-langservers-extracted/package.json"));
const { createConnection } = require("vscode-languageserver/node") as { createConnection(): Connection };
const { startServer } = require(`./lib/${language}-language-server/${language}Server.js`) as {
  startServer(connection: Connection, runtime: Runtime): void;
};

const runtime: Runtime = {
  timer: {
    setImmediate(callback, ...args) {
      const immediate = setImmediate(callback, ...args);
      return { dispose: () => clearImmediate(immediate) };
    },
    setTimeout(callback, ms, ...args) {
      const timeout = setTimeout(callback, ms, ...args);
      return { dispose: () => clearTimeout(timeout) };
    },
  },
};

const connection = createConnection();
// Standard output carries the protocol.
console.log = connection.console.log.bind(connection.console);
console.error = connection.console.error.bind(connection.console);
process.on("unhandledRejection", (reason) => connection.console.error(`Unhandled rejection: ${String(reason)}`));
startServer(connection, runtime);
