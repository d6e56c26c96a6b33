/** A client of `reciproc.v1` whose frames the test writes, and a server whose connections it can cut: in memory, or on a port. */
import { expect, onTestFinished } from "vitest";
import { WebSocket } from "ws";
import { ConnectError, type ConnectOptions } from "../../src/index.js";
import { connect as connectNode, serve } from "../../src/node.js";
import type { AnyMethods, AnyPeer, ServeOptions, Server } from "../../src/node.js";
import { testServer, type TestServer, type TestServerOptions } from "../../src/testing/index.js";
import { binaryFrame } from "../support/binary.js";
import { Inbox } from "../support/inbox.js";
import { bareHttp, upgrade } from "../support/network.js";

/** The servers in memory of the present test, by the host of their address. Other addresses are of real servers. */
const inMemory = new Map<string, TestServer<any, any, any>>();
let made = 0;

const memoryOf = (url: string): TestServer<any, any, any> | undefined => inMemory.get(new URL(url).host);

/** The limits of a client that accepts and keeps any amount. */
export const LIMITS = { maxMessageBytes: 2 ** 20, logFrames: 4096, logLength: 2 ** 22 };

export const REFUSED = { resumed: { refused: "unknown-session" } };
export const RESUMED = { resumed: { token: expect.any(String) as string, received: 0 } };

/** One WebSocket of such a client. */
export class ByHand {
  readonly closed: Promise<{ code: number; reason: string }>;
  /** Cuts the connection without a close frame. */
  readonly cut: () => void;
  readonly #webSocket: Pick<EventTarget, "addEventListener"> & { send(frame: string | Uint8Array): void };
  readonly #frames = new Inbox<any>();
  /** The session in the server's hello. */
  #offered: { token: string } | undefined;

  private constructor(url: string, protocols: string[], headers: Record<string, string>) {
    const memory = memoryOf(url);
    if (memory === undefined) {
      const webSocket = new WebSocket(url, protocols, { headers });
      this.cut = () => webSocket.terminate();
      this.#webSocket = webSocket as unknown as EventTarget & WebSocket;
    } else {
      const webSocket = new memory.WebSocket(url, { protocols, headers });
      this.cut = () => memory.network.of(webSocket).cut();
      this.#webSocket = webSocket;
    }
    onTestFinished(this.cut);
    this.#on("message", ({ data }) => {
      const frame = JSON.parse(data) as { hello?: { session?: { token: string } } };
      this.#offered ??= frame.hello?.session;
      this.#frames.push(frame);
    });
    this.closed = new Promise((resolve) => this.#on("close", ({ code, reason }) => resolve({ code, reason })));
  }

  /** Opens a WebSocket. `returns`: it offers to resume a session. `offersAuth`: it offers `auth`. */
  static async open(url: string, { returns = false, offersAuth = false, headers = {} } = {}): Promise<ByHand> {
    const offers = [...(returns ? ["reciproc.resume"] : []), ...(offersAuth ? ["reciproc.auth"] : [])];
    const byHand = new ByHand(url, ["reciproc.v1", ...offers], headers);
    await new Promise<void>((resolve, reject) => {
      byHand.#on("open", () => resolve());
      byHand.#on("error", () => reject(new Error("the WebSocket did not open")));
    });
    return byHand;
  }

  /** Opens a WebSocket, and a session on it. */
  static async begin(url: string, headers = {}): Promise<{ byHand: ByHand; token: string }> {
    const byHand = await ByHand.open(url, { headers });
    return { byHand, token: await byHand.hello() };
  }

  /** Opens a WebSocket that resumes a session. Returns the server's reply. */
  static async resume(url: string, token: string, attempt: number, headers = {}) {
    const byHand = await ByHand.open(url, { returns: true, headers });
    byHand.say({ resume: { token, received: 0, attempt, limits: LIMITS } });
    await byHand.next();
    return { byHand, answer: await byHand.next() };
  }

  /** Accepts the session that the server offers, and says that it takes bytes. Returns its token when the server has read that. */
  async hello(): Promise<string> {
    while (this.#offered === undefined) await this.next();
    this.say({ hello: { session: true, limits: LIMITS, bytes: true } });
    this.say({ ping: "hello" });
    while ((await this.next()).pong !== "hello");
    return this.#offered.token;
  }

  say(frame: object): void {
    this.#webSocket.send(JSON.stringify(frame));
  }

  /** Sends a message whose JSON has the placeholder "a" in a binary frame, with that attachment. */
  sayBytes(message: object, attachment: Uint8Array): void {
    this.#webSocket.send(binaryFrame(JSON.stringify([["a", attachment.length], message]), attachment));
  }

  next(): Promise<any> {
    return this.#frames.next();
  }

  /** Returns the received frames that `next` has not returned. */
  get unread(): readonly unknown[] {
    return this.#frames.left;
  }

  #on(event: string, listener: (event: any) => void): void {
    this.#webSocket.addEventListener(event, listener);
  }
}

/** `connect` of `reciproc/node`, to a server in memory if the address is of one. */
export function connect(url: string, options: ConnectOptions<any> & Record<string, unknown> = {}): Promise<AnyPeer> {
  return (memoryOf(url)?.connect ?? (connectNode as (url: string, options: object) => Promise<AnyPeer>))(url, options);
}

/** Connects a client, and closes it. Resolves with the status of the handshake. */
export async function statusOf(url: string, headers: Record<string, string> = {}): Promise<number> {
  const memory = memoryOf(url);
  if (memory === undefined) return (await upgrade(url, headers)).status;
  try {
    await (await memory.connect(url, { link: "plain", headers })).close();
    return 101;
  } catch (error) {
    expect(error).toBeInstanceOf(ConnectError);
    return (error as ConnectError).status!;
  }
}

export interface Serving<D> {
  readonly server: Server<AnyMethods, AnyMethods, D>;
  readonly url: string;
  cut(): void;
}

type Some<D> = Partial<Omit<ServeOptions<AnyMethods, AnyMethods, D>, "methods">> & {
  methods?: Record<string, (params: any, context: any) => unknown>;
};

/** Serves in memory until the test ends. */
export async function serving<D = unknown>(options: Some<D> = {}): Promise<Serving<D>> {
  const kit = testServer<any, any, D>(options as TestServerOptions<any, any, D>);
  const host = `server-${++made}.test`;
  inMemory.set(host, kit);
  onTestFinished(async () => {
    await kit.server.close();
    inMemory.delete(host);
  });
  return { server: kit.server, url: `ws://${host}`, cut: () => kit.network.cut() };
}

/** Serves on an HTTP server of its own until the test ends, for tests of HTTP and of sockets. */
export async function servingOnPort<D = unknown>(options: Some<D> = {}): Promise<Serving<D>> {
  const http = await bareHttp();
  const server = await serve<AnyMethods, AnyMethods, D>({
    server: http.server,
    ...options,
  } as unknown as ServeOptions<AnyMethods, AnyMethods, D>);
  onTestFinished(async () => {
    http.cut();
    await server.close();
    await http[Symbol.asyncDispose]();
  });
  return { server, url: http.url, cut: http.cut };
}

export function nextPeer<D>(server: Server<AnyMethods, AnyMethods, D>): Promise<AnyPeer> {
  return new Promise((resolve) => void server.once("peer", resolve as never));
}

export function recorded(server: Pick<Server, "on">): { refusals: string[]; errors: unknown[] } {
  const refusals: string[] = [];
  const errors: unknown[] = [];
  server.on("refuse", ({ status, reason }) => refusals.push(`${status} ${reason}`));
  server.on("error", (error) => errors.push(error));
  return { refusals, errors };
}

export type Session = Awaited<ReturnType<typeof begun>>;

export async function begun<D>({ server, url }: Serving<D>, headers = {}) {
  const coming = nextPeer(server);
  const { byHand, token } = await ByHand.begin(url, headers);
  return { byHand, token, peer: await coming };
}

/** Cuts a socket of a session. Resolves when its peer is suspended. */
export async function drop({ byHand, peer }: Pick<Session, "byHand" | "peer">): Promise<void> {
  const gone = peer.waitFor("suspend");
  byHand.cut();
  await gone;
}

export async function suspended<D>(world: Serving<D>, headers = {}): Promise<Session> {
  const session = await begun(world, headers);
  await drop(session);
  return session;
}
