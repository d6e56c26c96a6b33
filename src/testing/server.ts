/** `testServer`: a server in memory, and clients that connect to it without a port. */
import type { IncomingMessage } from "node:http";
import { webSocketUrl } from "../client/credentials.js";
import type { Open, OpeningSocket } from "../client/open.js";
import { GoingAway } from "../message/close-codes.js";
import type { ContractOptions } from "../contract/checks.js";
import { CONNECT_OPTIONS, openPeer, whenOpen, type ConnectOptions } from "../connect.js";
import { allFeatures } from "../features/all.js";
import type { Attempt, Supplied } from "../client/credentials.js";
import type { AnyMethods, Contract, Handler, Handlers } from "../contract/contract.js";
import { ConnectError } from "../message/errors.js";
import { isObject } from "../message/message.js";
import { any, checkOptions, must, optional } from "../message/options.js";
import { Fleet } from "../fleet/fleet.js";
import { NodeLink } from "../session/node-link.js";
import {
  endPeer,
  type AnyPeer,
  type Context,
  type MethodOptions,
  type Options,
  type Peer,
  type PeerOptions,
} from "../peer/peer.js";
import type { Platform } from "../server/entrance.js";
import type { GateOptions } from "../server/options.js";
import {
  Server,
  type CommonOptions,
  type InferredOptions,
  type ServeOptions,
  type ServerContext,
} from "../server/server.js";
import { MemoryGate, upgradeRequest, type Headers } from "./gate.js";
import { MemoryNetwork, Wire, type ClientLine, type Network } from "./network.js";
import { pageWebSocket, type OpenPage, type PageWebSocket } from "./page.js";

/** The options of `serve` that say where to listen. */
type Address = "port" | "host" | "server" | "noServer" | "post";

/**
 * The options of `testServer`: those of `serve` without an address, and with only the methods that a test needs. Entries of
 * `contract` and `schemas` without a method have no effect.
 */
export type TestServerOptions<S extends Contract<S>, C extends Contract<C>, A> = TestServiceOptions<S, C, A> &
  InferredOptions<S, C, A>;

type TestServiceOptions<S extends Contract<S>, C extends Contract<C>, A> = Omit<GateOptions, Address> &
  CommonOptions<C, ServerContext<S, C, A>, A> &
  Pick<MethodOptions<S, ServerContext<S, C, A>>, "contract" | "check" | "schemas"> & {
    /** The methods that the test needs. Others are answered with -32601. */
    methods?: { [K in keyof S]?: Handler<S[K], ServerContext<S, C, A>> } | undefined;
  };

/** The options of a client of a test server. */
export interface TestClientOptions<S extends Contract<S> = any, C extends Contract<C> = any>
  extends PeerOptions<Context<C, S>>, ConnectOptions<S>, Pick<ContractOptions<C, S>, "contract" | "check"> {
  /** The methods that the test needs, such as mocks. Others are answered with -32601. */
  methods?: Partial<Handlers<C, Context<C, S>>> | undefined;
  /** As for every peer. */
  schemas?: Options<C, Context<C, S>>["schemas"];
  /** Headers of the upgrade request, such as `Authorization`, `Cookie` or `Origin`. */
  headers?: Headers | ((attempt: Attempt) => Headers | undefined | PromiseLike<Headers | undefined>) | undefined;
  /** What the server reads as `request.socket.remoteAddress`. Default `"127.0.0.1"`. */
  remoteAddress?: string | undefined;
}

/** A server in memory, its clients, and the network between them. */
export interface TestServer<S extends Contract<S>, C extends Contract<C>, A> extends AsyncDisposable {
  /**
   * The server, as `serve` returns it. Its `close()` also ends the `stop` and the `slow` of the network, and closes every client
   * that `connect` made, with 1001. It leaves no timer. `handleUpgrade` and `handleRequest` throw, because no HTTP comes in.
   */
  readonly server: Server<S, C, A>;
  /**
   * Connects a client, as `connect` of `reciproc/node` does, so that an application can get it in its place. `server.url` is an
   * address, and so is any other: its path, query and host are what the server checks. Rejects as `connect` does: with
   * `ConnectError`, whose `status` says why the server refused the client, with the reason of `signal`, or with a `TypeError`.
   */
  connect(this: void, url: Supplied<string | URL>, options?: TestClientOptions<S, C>): Promise<Peer<C, S>>;
  /** Makes a client that connects, as `open` of `reciproc/node` does. */
  open(this: void, url: Supplied<string | URL>, options?: TestClientOptions<S, C>): Peer<C, S>;
  /**
   * A standard WebSocket that reaches this server, for code that makes its own: in vitest, `vi.stubGlobal("WebSocket", WebSocket)`.
   * Then `connect` of `reciproc` reaches this server at every address. It sends `Origin` and `Cookie` if the runtime has a `location`
   * and a `document`. All these connections share one line. For a client that is not a page, such as one of plain JSON-RPC, write
   * `new WebSocket(url, { protocols, headers })`, as in Node: it sends these headers only, and has a line of its own, which
   * `network.of` returns. Close all of them yourself: `close()` of the server does not.
   */
  readonly WebSocket: PageWebSocket;
  /** The network between the server and all clients. */
  readonly network: Network;
}

/**
 * Makes a server in memory, of the contracts that `serve` takes: `S` is served, `C` is called back, `A` is the type of `peer.auth`.
 * It is ready at once. Throws a `TypeError` for bad options, as `serve` does, and for an address.
 */
export function testServer<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods, A = unknown>(
  options: TestServiceOptions<NoInfer<S>, NoInfer<C>, NoInfer<A>> & InferredOptions<S, C, A>,
): TestServer<S, C, A> {
  const memory = new Memory();
  const server = new MemoryServer<S, C, A>(options, memory);
  return {
    server,
    network: memory.network,
    WebSocket: pageWebSocket((...given) => memory.openPage(...given)),
    connect: async (url, clientOptions) => whenOpen(memory.openClient<S, C>(url, clientOptions ?? {})),
    open: (url, clientOptions) => memory.openClient<S, C>(url, clientOptions ?? {}).peer,
    [Symbol.asyncDispose]: () => server.close(),
  };
}

/** The part of a page that a browser reads for the request of a WebSocket. */
interface Page {
  readonly location?: { readonly origin?: string };
  readonly document?: { readonly cookie?: string };
}

/** Returns the headers that a browser sends for the present page. */
function pageHeaders(): Headers {
  const { location, document } = globalThis as Page;
  return {
    ...(location?.origin !== undefined && { Origin: location.origin }),
    ...(document?.cookie && { Cookie: document.cookie }),
  };
}

const LOOPBACK = "127.0.0.1";
const isText = (value: unknown): boolean => typeof value === "string";
const CLIENT_OPTIONS = {
  ...CONNECT_OPTIONS,
  headers: any,
  remoteAddress: optional(must<string>("a string", isText), LOOPBACK),
};

/** Returns the options without the schemas of methods that the test has not mocked. They are not checked yet. */
function mocked(options: object): object {
  const { methods = {}, fallback, contract, schemas } = options as Options<any, any>;
  if (fallback !== undefined || !isObject(methods)) return options;
  const hasMethod = ([name]: [string, unknown]): boolean => Object.hasOwn(methods, name);
  const table: unknown = contract?.table;
  return {
    ...options,
    ...(table instanceof Map && { contract: { ...contract, table: new Map([...table].filter(hasMethod)) } }),
    ...(isObject(schemas) && { schemas: Object.fromEntries(Object.entries(schemas).filter(hasMethod)) }),
  };
}

/** A server whose `close` also closes its clients. */
class MemoryServer<S extends Contract<S>, C extends Contract<C>, A> extends Server<S, C, A> {
  readonly #memory: Memory;
  #closed: Promise<void> | undefined;

  constructor(options: object, memory: Memory) {
    for (const name of ["port", "host", "server", "noServer"])
      if (Object.hasOwn(options, name)) throw new TypeError(`A test server needs no address, got \`${name}\``);
    super({ ...mocked(options), noServer: true } as unknown as ServeOptions<S, C, A>, memory);
    this.#memory = memory;
    this.on("peer", (peer, request) => memory.accepted(peer as AnyPeer, request));
    // An engine in memory needs no time. With any other, the server joins its fleet when it can.
    if ("engine" in options) this.listen().catch((error: unknown) => this.emit("error", error));
  }

  override handleUpgrade(): never {
    return noHttp();
  }

  override handleRequest(): never {
    return noHttp();
  }

  override close(): Promise<void> {
    return (this.#closed ??= this.#end());
  }

  async #end(): Promise<void> {
    this.#memory.release();
    await super.close();
    // What the server sent before its close arrives: a client that is ended now would lose it.
    await this.#memory.network.settle();
    await this.#memory.closeClients();
  }
}

/** The surroundings of a server in memory: its gate, its network and its clients. */
class Memory implements Platform {
  readonly network = new MemoryNetwork();
  #gate!: MemoryGate;
  /** The line of all connections that the page makes. */
  #page: ClientLine | undefined;
  readonly #lineBy = new WeakMap<IncomingMessage, ClientLine>();
  readonly #clients = new Set<AnyPeer>();
  #isClosed = false;

  /** Tokens stay in this process, and nothing leaks them. */
  hash(this: void, token: string): string {
    return token;
  }

  makeNode(this: void, ...given: ConstructorParameters<typeof Fleet>): Fleet {
    return new Fleet(...given);
  }

  connect(...[options, entrance]: Parameters<Platform["connect"]>): ReturnType<Platform["connect"]> {
    this.#gate = new MemoryGate(options.gate, entrance, options.peer.limits.maxMessageBytes);
    return { gate: this.#gate, posts: undefined };
  }

  /** Makes a client that connects. */
  openClient<S extends Contract<S>, C extends Contract<C>>(
    url: Supplied<string | URL>,
    options: TestClientOptions<S, C>,
  ): ReturnType<typeof openPeer<C, S>> {
    const { remoteAddress, ...given } = checkOptions("options", mocked(options), CLIENT_OPTIONS);
    const line = this.network.add();
    const openSocket: Open = (target, protocols, maxMessageBytes, headers = {}) =>
      this.#open(line, target, protocols, headers as Headers, remoteAddress, maxMessageBytes).opening;
    const opening = openPeer<C, S>(
      url,
      { ...given, use: [...allFeatures, ...(given.use ?? [])] },
      openSocket,
      NodeLink,
    );
    const { peer } = opening;
    this.network.assign(peer, line);
    this.#clients.add(peer);
    void peer.closed.then(() => {
      this.#clients.delete(peer);
      this.network.remove(line);
    });
    if (this.#isClosed)
      endPeer(peer, { code: GoingAway, reason: CLOSED, error: new ConnectError(this.#gate.url, CLOSED) });
    return opening;
  }

  /** Opens the connection of a WebSocket. Without `given`, it is of the page, whose connections all share a line. */
  openPage(...[webSocket, url, protocols, given]: Parameters<OpenPage>): Wire {
    const target = webSocketUrl(url);
    const line = given === undefined ? (this.#page ??= this.network.add()) : this.network.add();
    this.network.assign(webSocket, line);
    const headers = given ?? pageHeaders();
    const { wire } = this.#open(line, target, protocols, headers, LOOPBACK, Infinity);
    if (given !== undefined) this.network.remove(line);
    return wire;
  }

  /** Sends the request of a client to the gate. */
  #open(
    line: ClientLine,
    url: string,
    protocols: readonly string[],
    headers: Headers,
    remoteAddress: string,
    maxFrameBytes: number,
  ): { wire: Wire; opening: OpeningSocket } {
    const wire = new Wire(line, url, protocols.length > 0, maxFrameBytes);
    line.add(wire);
    const request = upgradeRequest(new URL(url), protocols, headers, remoteAddress);
    this.#lineBy.set(request, line);
    return { wire, opening: wire.request(() => this.#gate.handleUpgrade(request, wire, undefined)) };
  }

  /** Assigns a new peer of the server to the line of its client. */
  accepted(peer: AnyPeer, request: IncomingMessage): void {
    const line = this.#lineBy.get(request)!;
    line.accepted(peer);
    this.network.assign(peer, line);
  }

  /** Lets the closes of all peers pass. */
  release(): void {
    this.network.slow(Infinity);
    this.network.start();
  }

  /** Ends all clients, also those that connect. Resolves when their peers have emitted `close`. */
  async closeClients(): Promise<void> {
    this.#isClosed = true;
    const peers = [...this.#clients];
    const error = new ConnectError(this.#gate.url, CLOSED);
    for (const peer of peers)
      endPeer(peer, { code: GoingAway, reason: CLOSED, error: peer.state === "connecting" ? error : undefined });
    await Promise.all(peers.map((peer) => peer.closed));
  }
}

const CLOSED = "the test server is closed";

function noHttp(): never {
  throw new TypeError("a test server takes no HTTP; use `serve` for that");
}
