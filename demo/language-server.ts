/**
 * Runs a language server on standard input and output: `node language-server.js LANGUAGE --stdio`.
 *
 * A language server serves every client that opens the demo's page. So it must not read files of this machine or fetch
 * addresses, whatever its client sends. The commands of vscode-langservers-extracted pass it a file reader and an HTTP client.
 * Here it gets neither, and requests files from its client.
 */
import { createRequire } from "node:module";
import type { Language } from "./lsp.js";

/** The part of `vscode-languageserver` that is used here. */
interface Protocol {
  createConnection: () => Connection;
}
interface Connection {
  readonly console: { error(message: string): void };
}

/** A language server of the package. */
interface LanguageServer {
  startServer: (connection: Connection, runtime: Runtime) => void;
}

/** The runtime of a language server. `file`, `http` and `configureHttpRequests` are left out on purpose. */
interface Runtime {
  readonly timer: {
    setImmediate(callback: (...args: unknown[]) => void, ...args: unknown[]): Timer;
    setTimeout(callback: (...args: unknown[]) => void, ms: number, ...args: unknown[]): Timer;
  };
}
interface Timer {
  dispose(): void;
}

const language = process.argv[2] as Language;
// Resolves dependencies as the package does, which `npm run demo` installs in a folder of its own.
const installed = createRequire(new URL("../language-servers/package.json", import.meta.url));
const require = createRequire(installed.resolve("vscode-langservers-extracted/package.json"));
const { createConnection } = require("vscode-languageserver/node") as Protocol;
const { startServer } = require(`./lib/${language}-language-server/${language}Server.js`) as LanguageServer;

// Standard output carries the protocol. From here on, console output becomes a message of the protocol.
const connection = createConnection();
process.on("unhandledRejection", (reason) => connection.console.error(`Unhandled rejection: ${String(reason)}`));
startServer(connection, {
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
});
