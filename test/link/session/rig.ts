/** A client and a server with sessions, over wires that the test works by hand. */
import { vi } from "vitest";
import { countDeadlines } from "../../../src/core/deadlines.js";
import type { EndpointLimits } from "../../../src/session/endpoint.js";
import type { PackedLink } from "../../../src/session/link.js";
import { Sessions, type SessionsOptions } from "../../../src/server/sessions.js";
import { TestClient } from "../../support/links.js";
import type { CloseInfo, Receiver, Transport } from "../../../src/core/transport.js";
import { microtasks, Wire } from "./wire.js";

/** What a receiver was told, in order: messages as they came, the rest by name. */
export class Told implements Receiver {
  readonly messages: unknown[] = [];
  readonly notices: (string | { closed: CloseInfo } | { lost: string })[] = [];

  receive(text: string): void {
    this.dispatch(JSON.parse(text));
  }

  dispatch(value: unknown): void {
    this.messages.push(value);
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

/** A receiver that goes on after its session is lost. */
export class ToldLost extends Told {
  lost(error: Error, next: Transport): void {
    this.notices.push({ lost: error.message });
    next.start(this);
  }
}

/** One link of the server, and what it was told. */
export interface ServerSide {
  readonly link: PackedLink;
  readonly told: Told;
}

/** How a rig is made. */
export interface RigOptions {
  limits?: Partial<EndpointLimits>;
  sessions?: Partial<SessionsOptions>;
  principal?: string;
  /** Whether the client's owner brings another socket when a connection is over. Default true. */
  comesBack?: boolean;
}

export const LIMITS: EndpointLimits = {
  maxMessageBytes: 5000,
  logFrames: 16,
  logLength: 20_000,
  queueLength: 40_000,
  burstLength: 80_000,
  highWaterBytes: 2 ** 20,
};
export { PEER_LIMITS } from "../../support/links.js";
/** How a server keeps sessions, where the test does not care. */
export const KEPT = { ttlMs: 60_000, maxSuspendedPerPrincipal: 16, maxHeldLength: 2 ** 26 };
/** What of them is said on the wire. */
export const WIRE_LIMITS = { maxMessageBytes: 5000, logFrames: 16, logLength: 20_000 };
export const PATIENCE_MS = 10_000;

export class Rig {
  readonly sessions: Sessions;
  readonly servers: ServerSide[] = [];
  readonly wires: Wire[] = [];
  readonly client: TestClient;
  readonly told: Told;
  /** Other clients, which are closed with this one. */
  readonly others: TestClient[] = [];
  /** What the owner of the client's sockets was told. */
  readonly owner: string[] = [];
  /** How each connection ended of which it was told. */
  readonly ends: CloseInfo[] = [];
  /** Every token that was given. */
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
        return options.comesBack !== false;
      },
    });
    this.told = new ToldLost();
    this.client.link.start(this.told);
  }

  /** One whose session is open and acked. */
  static async live(options?: RigOptions): Promise<Rig> {
    const rig = new Rig(options);
    await rig.settle();
    rig.owner.length = 0;
    return rig;
  }

  /** The wire that was opened last. */
  get wire(): Wire {
    return this.wires.at(-1)!;
  }

  /** The server's link that was made last. */
  get server(): ServerSide {
    return this.servers.at(-1)!;
  }

  /** A connection of somebody's whose client does not say that it returns. */
  openFresh(principal: string | undefined): Wire {
    return this.#open(false, principal);
  }

  /** A connection of somebody's whose client says that it returns. */
  openAs(principal: string | undefined): Wire {
    return this.#open(true, principal);
  }

  /** Opens a connection to the server. `returns`: its client says that it returns. */
  open(returns: boolean): Wire {
    return this.#open(returns, this.#options.principal);
  }

  #open(returns: boolean, principal: string | undefined): Wire {
    const wire = new Wire();
    this.wires.push(wire);
    const welcome = (link: PackedLink): void => {
      const told = new Told();
      this.servers.push({ link, told });
      link.start(told);
    };
    if (returns) this.sessions.admit(wire.server, principal, PATIENCE_MS, welcome);
    else welcome(this.sessions.link(wire.server, principal));
    return wire;
  }

  /** Lets time pass. */
  pass(ms: number): void {
    vi.advanceTimersByTime(ms);
  }

  /** A connection at whose other end is the test. */
  openBare(): Wire {
    const wire = new Wire();
    wire.server.start({ frame() {}, closed() {} });
    return wire;
  }

  /** The client opens another connection, as its driver would. Nothing has arrived on it yet, not even the server's hello. */
  reconnect(): Wire {
    const wire = this.open(this.client.isResumable);
    this.client.dial(wire.client);
    return wire;
  }

  /** Both ends of the present connection learn that it is gone. */
  cut(info?: CloseInfo): void {
    const { wire } = this;
    wire.client.cut(info);
    wire.server.cut(info);
  }

  /** Everything that is under way arrives. */
  async settle(): Promise<void> {
    for (const wire of this.wires) await wire.settle();
    await microtasks();
  }

  /** Closes the client by will, and throws when anything of its session is left. */
  async close(): Promise<void> {
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

  /** Cuts, reconnects and lets everything arrive. */
  async cutAndResume(): Promise<void> {
    this.cut();
    this.reconnect();
    await this.settle();
  }
}

/** A message that says what it is. */
export function message(n: number | string, padding = 0): string {
  return JSON.stringify({ n, ...(padding > 0 && { padding: "x".repeat(padding) }) });
}

/** A client's `resume`. */
export function resume(
  token: unknown,
  received: unknown = 0,
  attempt: unknown = 1,
  limits: unknown = WIRE_LIMITS,
): string {
  return JSON.stringify({ resume: { token, received, attempt, limits } });
}

/** The numbers of messages, as they came. */
export function numbers(told: Told): unknown[] {
  return told.messages.map((received) => (received as { n: unknown }).n);
}

/** The control frames among those that were sent. */
export function controls(sent: readonly string[]): any[] {
  return sent.filter((frame) => frame.startsWith("{")).map((frame) => JSON.parse(frame) as unknown);
}

/** The data frames among those that were sent. */
export function packs(sent: readonly string[]): string[] {
  return sent.filter((frame) => frame.startsWith("["));
}
