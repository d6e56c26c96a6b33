/** A client and a server with sessions. The test delivers each frame of their connections. */
import { vi } from "vitest";
import { countDeadlines } from "../../../src/core/deadlines.js";
import type { EndpointLimits } from "../../../src/session/state.js";
import type { ServerLink } from "../../../src/server/link.js";
import type { PackedLink } from "../../../src/session/link.js";
import { Sessions, type SessionsOptions } from "../../../src/server/sessions.js";
import { TestClient } from "../../support/links.js";
import type { CloseInfo, Receiver, Transport } from "../../../src/core/transport.js";
import { microtasks, Wire, type WireSocket } from "./wire.js";

/** The answer to a `resume` of an unknown session. */
export const REFUSED = '{"resumed":{"refused":"unknown-session"}}';

/** Records the messages that a receiver gets, and the names of its other notifications, in order. */
export class Told implements Receiver {
  readonly messages: unknown[] = [];
  readonly notices: (string | { closed: CloseInfo } | { lost: string })[] = [];
  /** The numbers of the messages, and the reports of missed ones, in order. */
  readonly log: unknown[] = [];
  readonly missedCounts: number[] = [];
  /** The methods of the messages that this side dropped. */
  readonly drops: string[] = [];

  receive(text: string): void {
    this.dispatch(JSON.parse(text));
  }

  dispatch(value: unknown): void {
    this.messages.push(value);
    this.log.push((value as { n?: unknown }).n);
  }

  missed(count: number): void {
    this.missedCounts.push(count);
    this.log.push({ missed: count });
  }

  dropped(method: string): void {
    this.drops.push(method);
  }

  closed(info: CloseInfo): void {
    this.notices.push({ closed: info });
  }

  suspended(): void {
    this.notices.push("suspended");
  }

  resumed(): void {
    this.notices.push("resumed");
  }
}

/** A receiver that continues on a new connection after its session is lost. */
export class ToldLost extends Told {
  lost(error: Error, next: Transport): void {
    this.notices.push({ lost: error.message });
    next.start(this);
  }
}

/** One link of the server, and its receiver. */
export interface ServerSide {
  readonly link: ServerLink;
  readonly emitted: Told;
}

/** Options of a rig. */
export interface RigOptions {
  limits?: Partial<EndpointLimits>;
  sessions?: Partial<SessionsOptions>;
  principal?: string | undefined;
  /** Whether the client's owner opens another socket when a connection ends. Default true. */
  reconnects?: boolean;
}

export const LIMITS: EndpointLimits = {
  maxMessageBytes: 5000,
  logFrames: 16,
  logLength: 20_000,
  queueLength: 40_000,
  burstLength: 80_000,
  highWaterBytes: 2 ** 20,
};

/** Default session options of the server. */
export const KEPT = { ttlMs: 60_000, maxSuspendedPerPrincipal: 16, maxHeldLength: 2 ** 26 };
/** The limits of them that are sent on the wire. */
export const WIRE_LIMITS = { maxMessageBytes: 5000, logFrames: 16, logLength: 20_000 };

export class Rig implements AsyncDisposable {
  readonly sessions: Sessions;
  readonly servers: ServerSide[] = [];
  readonly wires: Wire[] = [];
  readonly client: TestClient;
  readonly emitted: Told;
  /** Other clients, which `close` closes too. */
  readonly others: TestClient[] = [];
  /** Notifications to the owner of the client's sockets. */
  readonly owner: string[] = [];
  /** The reported close of each connection. */
  readonly ends: CloseInfo[] = [];
  /** Every token that the server issued. */
  readonly tokens: string[] = [];
  readonly #options: RigOptions;

  constructor(options: RigOptions = {}) {
    const { sessions } = options;
    const limits = { ...LIMITS, ...options.limits };
    this.#options = options;
    this.sessions = new Sessions({
      limits,
      ...KEPT,
      makeToken: () => {
        const token = `secret-${this.tokens.length + 1}`;
        this.tokens.push(token);
        return token;
      },
      hash: (token) => `#${token.slice(7)}`,
      ...sessions,
    });
    const wire = this.open(false);
    this.client = new TestClient(wire.client, limits, {
      suspended: () => this.owner.push("suspended"),
      flows: (isFresh) => this.owner.push(isFresh ? "fresh" : "resumed"),
      over: (info) => {
        this.owner.push("over");
        this.ends.push(info);
        return options.reconnects !== false;
      },
    });
    this.emitted = new ToldLost();
    this.client.link.start(this.emitted);
  }

  /** Returns a rig whose session is open and acked. */
  static async live(options?: RigOptions): Promise<Rig> {
    const rig = new Rig(options);
    await rig.settle();
    rig.owner.length = 0;
    return rig;
  }

  get wire(): Wire {
    return this.wires.at(-1)!;
  }

  get server(): ServerSide {
    return this.servers.at(-1)!;
  }

  /** Opens a connection to the server. `returns`: its client offers to resume. */
  open(returns: boolean, { principal }: Pick<RigOptions, "principal"> = this.#options): Wire {
    const wire = new Wire();
    this.wires.push(wire);
    const welcome = (link: ServerLink): void => {
      const emitted = new Told();
      this.servers.push({ link, emitted });
      link.start(emitted);
    };
    if (returns) this.sessions.admit(wire.server, principal, 10_000, welcome);
    else welcome(this.sessions.link(wire.server, principal));
    return wire;
  }

  /** Advances the clock. */
  pass(ms: number): void {
    vi.advanceTimersByTime(ms);
  }

  /** Opens a connection to the server whose client is the test. `returns`: the client offers to resume. Returns the server's end. */
  arrival(returns = true, of?: Pick<RigOptions, "principal">): WireSocket {
    const { client, server } = this.open(returns, of);
    client.start({ frame() {}, closed() {} });
    return server;
  }

  /**
   * Opens another connection of the client, as its driver would. No frame has arrived on it yet, not even the server's
   * hello.
   */
  reconnect(): Wire {
    const wire = this.open(this.client.isResumable);
    this.client.dial(wire.client);
    return wire;
  }

  /** Reports the loss of the current connection at both of its ends. */
  cut(info?: CloseInfo): void {
    const { wire } = this;
    wire.client.cut(info);
    wire.server.cut(info);
  }

  /** Delivers all frames in flight. */
  async settle(): Promise<void> {
    for (const wire of this.wires) await wire.settle();
    await microtasks();
  }

  /** Sends numbered messages, each in a tick of its own. */
  async send(link: PackedLink, from: number, to: number, padding?: number): Promise<void> {
    for (let n = from; n <= to; n++) {
      link.send(message(n, padding));
      await microtasks();
    }
  }

  /** Sends numbered messages, and delivers each before the next. */
  async exchange(link: PackedLink, from: number, to: number): Promise<void> {
    for (let n = from; n <= to; n++) {
      link.send(message(n));
      await this.settle();
    }
  }

  /** Opens another connection, on which the client's `resume` is in flight. Returns the client's end. */
  resuming(): WireSocket {
    const { client } = this.reconnect();
    client.deliver();
    return client;
  }

  /** Closes all clients. Throws if any of their sessions is left. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const { link } of [this.client, ...this.others]) link.close();
    await this.settle();
    for (const { link } of this.servers) link.close();
    for (const { server } of this.wires) server.cut();
    await this.settle();
    const {
      suspended,
      held,
      tokens: { size: tokens },
    } = this.sessions;
    const { waiting } = countDeadlines();
    if (suspended + held + tokens + waiting > 0) {
      throw new Error(`left: ${suspended} sessions, ${held} held, ${tokens} tokens, ${waiting} deadlines`);
    }
  }

  /** Opens another connection of the client, and delivers all frames. */
  async comeBack(): Promise<void> {
    this.reconnect();
    await this.settle();
  }

  async cutAndResume(): Promise<void> {
    this.cut();
    await this.comeBack();
  }
}

/** Returns a message with a number. */
export function message(n: number | string, padding = 0): string {
  return JSON.stringify({ n, ...(padding > 0 && { padding: "x".repeat(padding) }) });
}

/** Returns a client's `resume`. */
export function resume(
  token: unknown,
  received: unknown = 0,
  attempt: unknown = 1,
  limits: unknown = WIRE_LIMITS,
): string {
  return JSON.stringify({ resume: { token, received, attempt, limits } });
}

/** Returns the whole numbers from one to another. */
export function range(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

/** Returns the numbers of the received messages, in order. */
export function numbers(emitted: Told): unknown[] {
  return emitted.messages.map((received) => (received as { n: unknown }).n);
}

/** Returns the control frames among the sent frames. */
export function controls(sent: readonly string[]): any[] {
  return sent.filter((frame) => frame.startsWith("{")).map((frame) => JSON.parse(frame) as unknown);
}

/** Returns the data frames among the sent frames. */
export function packs(sent: readonly string[]): string[] {
  return sent.filter((frame) => frame.startsWith("["));
}
