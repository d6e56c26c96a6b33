/**
 * A network in memory, for tests with a fake clock: a double of the runtime's WebSocket, with reciproc and other
 * servers.
 */
import { afterEach, beforeEach, expect, vi } from "vitest";
import { connect, Peer, type AnyPeer } from "../../src/index.js";
import type { CloseInfo, EncodedFrame, Transport } from "../../src/core/transport.js";
import { frameContent, type Socket } from "../../src/link/socket.js";
import { pickLimits, RESUME_OFFER, serverHello } from "../../src/session/frames.js";
import { PROTOCOL } from "../../src/session/link.js";
import { plain } from "../../src/link/plain.js";
import { Sessions } from "../../src/server/sessions.js";
import { Inbox } from "../../src/sockets/inbox.js";
import { pass } from "../support/clock.js";
import { record } from "./clients.js";

export const LIMITS = {
  maxMessageBytes: 2 ** 20,
  logFrames: 4096,
  logLength: 2 ** 22,
  queueLength: 2 ** 20,
  burstLength: 2 ** 23,
  highWaterBytes: 2 ** 20,
};

/** The hello of a server that offers a session, whose other frames the test writes. */
export const HELLO = serverHello({ token: "secret-of-another", ttlMs: 60_000, limits: pickLimits(LIMITS) });

/** One connection attempt: its time, its offer and its line. */
export interface Attempt {
  readonly at: number;
  readonly protocols: readonly string[];
  readonly line: Line;
}

/** Decides an attempt as a server: `accept`s or `refuse`s its line, or ignores it. */
export type Answer = (attempt: Attempt) => void;

/** One connection, from the attempt to the close. */
export class Line {
  readonly near: VirtualWebSocket;
  /** All frames that the client sent. */
  readonly sent: string[] = [];
  /** While true, the line delivers no frame and no close: the cable is pulled. */
  isFrozen = false;
  readonly #network: VirtualNetwork;
  #far: FarSocket | undefined;
  isOver = false;
  #inFlight: (() => void)[] = [];

  constructor(network: VirtualNetwork, near: VirtualWebSocket) {
    this.#network = network;
    this.near = near;
    network.lines.add(this);
  }

  /** Accepts the client. Returns the server's end, which receives once it is started. */
  accept(protocol: string): Socket {
    this.#later(() => this.near.opened(protocol));
    this.#far = new FarSocket(this, (arrive) => this.#later(arrive));
    return this.#far;
  }

  /** Fails like a port without a listener. */
  refuse(): void {
    this.#later(() => this.cut());
  }

  /** Delivers a frame of the client. */
  fromClient(frame: string): void {
    this.sent.push(frame);
    this.#later(() => this.#far?.frame(frame));
  }

  /** Delivers the client's close. A line that has not opened fails. */
  closedByClient(info: CloseInfo): void {
    if (this.#far === undefined) this.cut();
    else this.#later(() => this.end(info));
  }

  /** Reports the loss at both ends at once. */
  cut(): void {
    this.end({ code: 1006, reason: "" });
  }

  /** Stops delivery in both directions. */
  freeze(): void {
    this.isFrozen = true;
  }

  thaw(): void {
    this.isFrozen = false;
    const held = this.#inFlight;
    this.#inFlight = [];
    for (const arrive of held) this.#later(arrive);
  }

  #later(arrive: () => void): void {
    queueMicrotask(() => {
      if (this.isFrozen) this.#inFlight.push(arrive);
      else if (!this.isOver) arrive();
    });
  }

  /** Reports the close at both ends. */
  end(info: CloseInfo): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#network.lines.delete(this);
    this.near.ended(info);
    this.#far?.end(info);
  }
}

/** The server's end of a line. */
class FarSocket extends Inbox implements Socket {
  readonly unsentBytes = 0;
  readonly #line: Line;
  readonly #later: (arrive: () => void) => void;
  #isClosed = false;

  constructor(line: Line, later: (arrive: () => void) => void) {
    super(2 ** 20);
    this.#line = line;
    this.#later = later;
  }

  get open(): boolean {
    return !this.#isClosed && !this.#line.isOver;
  }

  send(frame: string | Uint8Array | EncodedFrame): boolean {
    if (!this.open) return false;
    this.#later(() => this.#line.near.message(frameContent(frame) as string));
    return true;
  }

  close(code = 1000, reason = ""): void {
    if (!this.open) return;
    this.#isClosed = true;
    this.#later(() => this.#line.end({ code, reason }));
  }
}

/** The part of the standard WebSocket that a client uses. */
export class VirtualWebSocket extends EventTarget {
  binaryType = "blob";
  readyState = 0;
  bufferedAmount = 0;
  protocol = "";
  readonly url: string;
  readonly #line: Line;

  constructor(url: string, protocols: string[]) {
    super();
    this.url = url;
    this.#line = new Line(network, this);
    const attempt = { at: performance.now(), protocols, line: this.#line };
    network.attempts.push(attempt);
    network.answer(attempt);
  }

  send(data: string): void {
    if (this.readyState !== 1) throw new Error("a standard WebSocket that is not open throws here, or drops it");
    this.#line.fromClient(data);
  }

  close(code?: number, reason = ""): void {
    if (code !== undefined && code !== 1000 && !(code >= 3000 && code <= 4999)) {
      throw new Error(`InvalidAccessError: ${code}`);
    }
    if (this.readyState > 1) return;
    this.readyState = 2;
    this.#line.closedByClient({ code: code ?? 1005, reason });
  }

  opened(protocol: string): void {
    if (this.readyState !== 0) return;
    this.readyState = 1;
    this.protocol = protocol;
    this.#fire("open");
  }

  message(data: string): void {
    if (this.readyState === 1) this.#fire("message", { data });
  }

  ended({ code, reason }: CloseInfo): void {
    const wasOpen = this.readyState === 1 || this.readyState === 2;
    this.readyState = 3;
    if (!wasOpen || code === 1006) this.#fire("error");
    this.#fire("close", { code: wasOpen ? code : 1006, reason });
  }

  #fire(type: string, members: object = {}): void {
    this.dispatchEvent(Object.assign(new Event(type), members));
  }
}

/** The network of one test. */
export class VirtualNetwork {
  readonly attempts: Attempt[] = [];
  /** The connections that are open or opening. */
  readonly lines = new Set<Line>();
  answer: Answer;

  constructor(answer: Answer) {
    this.answer = answer;
  }

  /** The newest attempt. */
  get last(): Attempt {
    return this.attempts.at(-1)!;
  }

  /** Returns the time of each attempt since a moment. */
  times(from: number): number[] {
    return this.attempts.map(({ at }) => at - from).filter((at) => at >= 0);
  }

  cut(): void {
    for (const line of this.lines) line.cut();
  }
}

/** A reciproc server: a method map, and sessions. */
export class VirtualServer {
  readonly peers: AnyPeer[] = [];
  readonly answer: Answer;
  #sessions = this.#makeSessions();
  /** How many tokens were issued. */
  tokens = 0;

  constructor(methods: object = {}) {
    this.answer = ({ protocols, line }) => {
      const welcome = (link: Transport): void => {
        this.peers.push(new Peer(link, { methods: methods as never }) as AnyPeer);
      };
      if (!protocols.includes(PROTOCOL)) return welcome(plain(line.accept("")));
      const socket = line.accept(PROTOCOL);
      if (protocols.includes(RESUME_OFFER)) this.#sessions.admit(socket, undefined, 10_000, welcome);
      else welcome(this.#sessions.link(socket, undefined));
    };
  }

  /** Drops all sessions, as a restarted process does. */
  restart(): void {
    this.#sessions = this.#makeSessions();
  }

  /** Closes every peer. */
  async close(): Promise<void> {
    await Promise.all(this.peers.map((peer) => peer.close()));
  }

  #makeSessions(): Sessions {
    return new Sessions({
      limits: LIMITS,
      ttlMs: 60_000,
      makeToken: () => `secret-${++this.tokens}`,
      hash: (token) => `#${token}`,
      maxSuspendedPerPrincipal: 16,
      maxHeldLength: 2 ** 26,
    });
  }
}

/** Refuses each attempt, like a port without a listener. */
export const refuse: Answer = ({ line }) => line.refuse();

/**
 * Accepts all clients like a plain server without subprotocols, and echoes. A standard WebSocket fails on an offer
 * then.
 */
export const plainEcho: Answer = ({ protocols, line }) => {
  if (protocols.length > 0) return line.refuse();
  const socket = line.accept("");
  socket.start({
    frame: (text) => {
      const { id, method, params } = JSON.parse(text) as { id?: number; method: string; params?: unknown };
      if (id !== undefined && method !== "never")
        socket.send(JSON.stringify({ jsonrpc: "2.0", id, result: params ?? null }));
    },
    closed() {},
  });
};

/** Accepts a client for `reciproc.v1`, sends these frames, and then nothing. */
export function says(...frames: string[]): Answer {
  return ({ line }) => {
    const socket = line.accept(PROTOCOL);
    for (const frame of frames) socket.send(frame);
  };
}

/** Refuses a client by a bye and a close. */
export function dismiss(code: number, reason: string): Answer {
  return ({ line }) => {
    const socket = line.accept(PROTOCOL);
    socket.send(JSON.stringify({ bye: { code, reason } }));
    socket.close(code, reason);
  };
}

const peers: AnyPeer[] = [];

export const URL = "ws://server.test/";

/** `connect` of the standard entry, untyped. */
export async function connectVirtual(options?: object, url = URL): Promise<AnyPeer> {
  const peer = await (connect as (url: string, options?: object) => Promise<AnyPeer>)(url, options);
  peers.push(peer);
  return peer;
}

/** Connects a client whose session both sides have confirmed, and records its events. */
export async function live(options?: object): Promise<{ peer: AnyPeer; emitted: string[] }> {
  const connecting = connectVirtual(options);
  await pass(10);
  const peer = await connecting;
  return { peer, emitted: record(peer) };
}

/** Asserts that calls are answered. */
export async function expectEcho(peer: AnyPeer): Promise<void> {
  expect(await Promise.all([peer.request("echo", [1]), pass(1)])).toMatchObject([[1], undefined]);
}

/** Closes all peers that the test connected. */
export async function closeAll(): Promise<void> {
  await Promise.all(peers.splice(0).map((peer) => peer.close()));
}

/** The handlers of most servers of these tests. */
export const METHODS = { echo: (params: unknown) => params, never: () => new Promise(() => {}) };

/** The network and the server of the present test. */
export let network: VirtualNetwork;
export let server: VirtualServer;

/** Makes a server and its network before each test of a suite, and removes both after it. */
export function useVirtualServer(methods: object): void {
  beforeEach(() => {
    server = new VirtualServer(methods);
    network = new VirtualNetwork(server.answer);
    vi.stubGlobal("WebSocket", VirtualWebSocket);
  });
  afterEach(async () => {
    for (const line of network.lines) line.thaw();
    await closeAll();
    await server.close();
    await pass(0);
    vi.restoreAllMocks();
    vi.unstubAllGlobals();
  });
}
