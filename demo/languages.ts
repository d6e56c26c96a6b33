/**
 * Language servers behind WebSockets: `/lsp/css` and `/lsp/json`. Each connection gets its own process. So a process that is
 * slow or exits affects one person, and a session has one client and one server, as the protocol requires.
 */
import type { IncomingMessage, Server } from "node:http";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import type { WebSocket } from "ws";
import type * as parts from "../dist/cli/parts.js";
import type { Language } from "./lsp.js";
import type { Network } from "./network.js";

/** The parts of `reciproc bridge`. The package does not export them, so they are imported by path. */
const { bridge, HttpGate, checkServerOptions } = (await import(
  new URL("cli/parts.js", import.meta.resolve("reciproc")).href
)) as typeof parts;

const LANGUAGES: readonly Language[] = ["css", "json"];
/** Most connections. Each has a process of about 50 MB. */
const MOST_SERVERS = 24;
const MOST_MEGABYTES = 192;
/** The longest message. From a page it is a whole document, from a language server the list of all completions. */
const MAX_FRAME_BYTES = 256 * 1024;
const MAX_MESSAGE_BYTES = 8 * 2 ** 20;

/** Serves the language servers on an HTTP server that may serve other paths. Hosts and origins are checked as by `serve`. */
export class LanguageServers {
  readonly #gates: readonly parts.HttpGate[];
  readonly #running = new Set<Promise<void>>();
  readonly #stop = new AbortController();

  constructor(server: Server, network: Network) {
    const authenticate = async (request: IncomingMessage): Promise<object> => ({ page: await network.carry(request) });
    this.#gates = LANGUAGES.map((language) => {
      const { gate } = checkServerOptions({ server, path: `/lsp/${language}`, authenticate });
      return new HttpGate(gate, {
        maxFrameBytes: MAX_FRAME_BYTES,
        chooseProtocol: () => undefined,
        admit: (webSocket) => this.#admit(webSocket, language),
        refused: () => {},
        failed: report,
      });
    });
  }

  /** Refuses new connections and ends every language server. Resolves when all have exited. Never rejects. */
  async close(): Promise<void> {
    for (const gate of this.#gates) gate.shut();
    this.#stop.abort();
    await Promise.all(this.#running);
    await Promise.all(this.#gates.map((gate) => gate.close()));
  }

  #admit(webSocket: WebSocket, language: Language): void {
    if (this.#running.size >= MOST_SERVERS) {
      webSocket.on("error", report);
      webSocket.close(1013, `${MOST_SERVERS} language servers run already`);
      return;
    }
    const running = bridge(webSocket, { ...commandOf(language), signal: this.#stop.signal }).then(
      ({ isFailure, reason }) => void (isFailure && report(`${language} language server: ${reason}`)),
      report,
    );
    this.#running.add(running);
    void running.then(() => this.#running.delete(running));
  }
}

function commandOf(language: Language): parts.BridgeOptions {
  const program = fileURLToPath(new URL("language-server.js", import.meta.url));
  return {
    command: process.execPath,
    args: [`--max-old-space-size=${MOST_MEGABYTES}`, program, language, "--stdio"],
    maxMessageBytes: MAX_MESSAGE_BYTES,
  };
}

function report(error: unknown): void {
  process.stderr.write(`${typeof error === "string" ? error : inspect(error)}\n`);
}
