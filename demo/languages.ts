/**
 * Language servers behind sessions: `/lsp/css` and `/lsp/json`. Each page gets a process of its own, as the protocol requires. The
 * page speaks to it through a reciproc session, so the process and its state survive when the network of the page does not.
 */
import type { Server as HttpServer } from "node:http";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import {
  lsp,
  Peer,
  RpcError,
  serve,
  type AnyPeer,
  type Context,
  type Receiver,
  type Server,
  type Transport,
} from "reciproc/node";
import type * as parts from "../dist/cli/parts.js";
import type * as packages from "../scripts/packages.js";
import type { Language } from "./lsp.js";
import type { Network } from "./network.js";

/** The parts of `reciproc bridge`. The package does not export them, so they are imported by path. */
const { Child, FRAMINGS } = (await import(
  new URL("cli/parts.js", import.meta.resolve("reciproc")).href
)) as typeof parts;
const { ensurePackages } = (await import(
  new URL("../../scripts/packages.js", import.meta.url).href
)) as typeof packages;

const LANGUAGES: readonly Language[] = ["css", "json"];
/** Most processes of each language. Each has about 50 MB. */
const MOST_SERVERS = 12;
const MOST_MEGABYTES = 192;
/** The longest message. From a page it is a whole document, from a language server the list of all completions. */
const MAX_PAGE_BYTES = 256 * 1024;
const MAX_MESSAGE_BYTES = 8 * 2 ** 20;
const GRACE_MS = 2000;
/** The close code of a session whose language server has ended. A client does not reconnect after it. */
const ENDED = 4410;

/** Serves the language servers on an HTTP server that may serve other paths. */
export class LanguageServers {
  readonly #servers: readonly Server[];
  /** The language server of each page. */
  readonly #programs = new WeakMap<AnyPeer, AnyPeer>();
  readonly #running = new Set<Promise<unknown>>();
  /** The installation, unless it has failed. */
  #installed: Promise<void> | undefined;

  private constructor(servers: readonly Server[]) {
    this.#servers = servers;
  }

  static async serve(http: HttpServer, network: Network, ttlMs: number): Promise<LanguageServers> {
    const servers: Server[] = [];
    const languages = new LanguageServers(servers);
    for (const language of LANGUAGES) servers.push(await languages.#serve(language, http, network, ttlMs));
    return languages;
  }

  /**
   * Installs the packages of the language servers, unless they are installed. Prints when it begins and ends. Rejects with an
   * `RpcError` if that fails. Then the next call tries again.
   */
  prepare(): Promise<void> {
    return (this.#installed ??= install().catch((error: unknown) => {
      this.#installed = undefined;
      report("editor", (error as Error).message);
      throw new RpcError(503, "The language servers could not be installed");
    }));
  }

  /** Refuses new connections and ends every language server. Resolves when all have exited. Never rejects. */
  async close(): Promise<void> {
    await Promise.all(this.#servers.map((server) => server.close()));
    await Promise.all(this.#running);
  }

  async #serve(language: Language, http: HttpServer, network: Network, ttlMs: number): Promise<Server> {
    const server = await serve({
      server: http,
      path: `/lsp/${language}`,
      authenticate: async (request) => ({ page: await network.carry(request) }),
      session: { ttlMs },
      limits: {
        maxConnections: MOST_SERVERS,
        maxMessageBytes: MAX_PAGE_BYTES,
        maxReplyBytes: MAX_MESSAGE_BYTES,
        maxUnsentBytes: 2 * MAX_MESSAGE_BYTES,
      },
      fallback: (params, context) => forward(this.#programs.get(context.peer)!, params, context),
    });
    server.on("peer", (page) => this.#start(language, page));
    server.on("error", (error) => report(language, inspect(error)));
    return server;
  }

  /** Starts a language server for a page. If either of the two ends, the other ends too. */
  #start(language: Language, page: AnyPeer): void {
    const pipes = new Pipes(language);
    const program = new Peer(pipes, {
      dialect: lsp,
      timeoutMs: Infinity,
      limits: { maxMessageBytes: MAX_PAGE_BYTES, maxReplyBytes: MAX_MESSAGE_BYTES },
      fallback: (params, context) => forward(page, params, context),
    });
    this.#programs.set(page, program);
    void page.closed.then(() => program.close());
    void program.closed.then(({ reason }) => page.close(ENDED, reason));
    this.#running.add(pipes.gone);
    void pipes.gone.then(() => this.#running.delete(pipes.gone));
  }
}

async function install(): Promise<void> {
  let isNew = false;
  await ensurePackages(fileURLToPath(new URL("../language-servers", import.meta.url)), () => {
    isNew = true;
    process.stdout.write("Installing the language servers of the editor, once ...\n");
  });
  if (isNew) process.stdout.write("The language servers of the editor are installed.\n");
}

/** Makes the call or notification of one side on the other side. `signal` carries a cancel, and an error keeps its code. */
async function forward(to: AnyPeer, params: unknown, { method, id, signal }: Context): Promise<unknown> {
  if (id === undefined) return void to.notify(method, params);
  try {
    return await to.request(method, params, { signal, timeoutMs: Infinity });
  } catch (error) {
    if (error instanceof RpcError) throw new RpcError(error.code, error.message, error.data);
    throw error;
  }
}

/** A language server as the carrier of a peer: a process, with its messages on its standard input and output. */
class Pipes implements Transport {
  /** Resolves when the process is gone. */
  readonly gone: Promise<unknown>;
  readonly #child: parts.Child;
  readonly #decoder = FRAMINGS.lsp.decoder(MAX_MESSAGE_BYTES);
  #receiver: Receiver | undefined;

  constructor(language: Language) {
    const program = fileURLToPath(new URL("language-server.js", import.meta.url));
    this.#child = new Child({
      command: process.execPath,
      args: [`--max-old-space-size=${MOST_MEGABYTES}`, program, language, "--stdio"],
      cwd: undefined,
      env: undefined,
      graceMs: GRACE_MS,
      stderr: "inherit",
      output: (chunk) => this.#read(chunk),
      inputClosed: () => this.#child.end(),
    });
    this.gone = this.#child.gone;
  }

  start(receiver: Receiver): void {
    this.#receiver = receiver;
    void this.#child.ended.then(({ exitCode, signal, error }) => {
      const how = signal === null ? `exited with code ${exitCode}` : `was killed by ${signal}`;
      receiver.closed({ code: 1000, reason: `the command ${error === undefined ? how : "could not be started"}` });
    });
  }

  send(text: string): boolean {
    this.#child.write(FRAMINGS.lsp.encode(Buffer.from(text)));
    return true;
  }

  close(): void {
    this.#child.end();
  }

  #read(chunk: Buffer): void {
    try {
      for (const text of this.#decoder.push(chunk)) this.#receiver?.receive(text.toString());
    } catch (error) {
      report("language server", (error as Error).message);
      this.#child.kill();
    }
  }
}

function report(name: string, what: string): void {
  process.stderr.write(`${name}: ${what}\n`);
}
