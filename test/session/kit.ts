/** Imports `peer/flow`, `features/live`: an end has the flow of a connection, and no peer. One end of `reciproc.v1` at a time: a client's endpoint whose server is the test, or a server whose clients are the test. */
import type { IncomingMessage } from "node:http";
import { onTestFinished } from "vitest";
import type { AnyPeer, CloseInfo } from "../../src/index.js";
import type { LinkReceiver } from "../../src/message/transport.js";
import { NegotiatedLink } from "../../src/session/link.js";
import { RESUME_REFUSED } from "../../src/session/frames.js";
import { unsentMarks } from "../../src/peer/flow.js";
import { LiveFlow as Flow } from "../../src/features/live.js";
import { testServer, type TestServer } from "../../src/testing/index.js";

export { RESUME_REFUSED };

/** A hello without a session. */
export const HELLO = '{"hello":{}}';

/** The limits of an end that are sent on the wire. */
export const WIRE_LIMITS = { maxMessageBytes: 5000, logFrames: 16, logLength: 20_000 };

export const LIMITS = { ...WIRE_LIMITS, highWaterBytes: 20_000, maxUnsentBytes: 80_000 };

export const OFFER = { token: "t", ttlMs: 1000, limits: WIRE_LIMITS };

/** The client's hello that accepts an offer. */
export const TAKEN = JSON.stringify({ hello: { session: true, limits: WIRE_LIMITS } });

export function hello(session: unknown, more = {}): string {
  return JSON.stringify({ hello: { session, ...more } });
}

export function resume(token: unknown, received: unknown = 0, attempt: unknown = 1, limits: unknown = WIRE_LIMITS) {
  return JSON.stringify({ resume: { token, received, attempt, limits } });
}

export const resumed = (token: unknown, received: unknown): string => JSON.stringify({ resumed: { token, received } });

export function message(n: number | string, padding = 0): string {
  return JSON.stringify({ n, ...(padding > 0 && { padding: "x".repeat(padding) }) });
}

/** Returns a notification with a number, as a peer sends and takes it. */
export function note(n: number | string, padding = 0): string {
  const params = padding > 0 ? [n, "x".repeat(padding)] : [n];
  return JSON.stringify({ jsonrpc: "2.0", method: "n", params });
}

export const pack = (...messages: string[]): string => `[${messages.join(",")}]`;

export const range = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** The values that no member of a frame may have, by the name of the member. */
const NO_NUMBERS = [0, -1, 1.5, "16", null, true, [16], 2 ** 53, undefined];
const NO_TOKENS = ["", "x".repeat(257), "a\ud800", "\udc00a", 5, null, ["t"], undefined];
const NO_LIMITS = Object.keys(WIRE_LIMITS).flatMap((name) =>
  NO_NUMBERS.map((value) => ({ ...WIRE_LIMITS, [name]: value })),
);
const WRONG: Record<string, readonly unknown[]> = {
  limits: [undefined, null, 5, [], {}, "x", ...NO_LIMITS],
  token: NO_TOKENS,
  ttlMs: NO_NUMBERS,
  attempt: NO_NUMBERS,
  received: [-1, 0.5, "0", null, undefined, 2 ** 53],
  route: NO_TOKENS.filter((value) => value !== undefined),
};

/** Returns each of these members with each of its wrong values. */
export function wrong(...names: string[]): [name: string, value: unknown][] {
  return names.flatMap((name) => WRONG[name]!.map((value): [string, unknown] => [name, value]));
}

export const GREATEST = { maxMessageBytes: 2 ** 53 - 1, logFrames: 2 ** 53 - 1, logLength: 2 ** 53 - 1 };
export const LEAST = { maxMessageBytes: 1, logFrames: 1, logLength: 1 };

type Socket = NonNullable<NegotiatedLink["socket"]>;

/** The wire of an endpoint. The test sets how full it is. */
export class TestWire implements Socket {
  open = true;
  unsentBytes = 0;
  maxFrameBytes = 0;
  #sent: (string | Uint8Array)[] = [];

  send(...frames: readonly (string | Uint8Array)[]): boolean {
    if (!this.open) return false;
    this.#sent.push(...frames);
    return true;
  }

  start(): void {}
  close(): void {}
  discard(): void {}

  /** Returns the frames that were written since the last call. */
  take(): (string | Uint8Array)[] {
    return this.#sent.splice(0);
  }
}

/** The limits of an endpoint, and of the flow above it. */
export type EndLimits = ConstructorParameters<typeof NegotiatedLink>[0] & { readonly maxUnsentBytes: number };

/** Returns the flow above an endpoint, without a connection between them. */
export function flowOver(endpoint: NegotiatedLink, maxUnsentBytes: number, isDown: boolean): Flow {
  return new Flow(
    {
      transport: endpoint,
      config: { marks: unsentMarks({ maxUnsentBytes, maxReplyBytes: 1 }), hasOnOpen: false },
      get ended() {
        return endpoint.state.kind === "ended" ? new Error("ended") : undefined;
      },
      end: ({ code, reason }) => endpoint.end(code, reason),
      report() {},
      outgoing: { refused() {} },
    },
    isDown,
  );
}

/** What an endpoint reports, and its tick. */
export type Reports = Pick<
  NegotiatedLink,
  "tick" | "receivePack" | "socketFull" | "reportReady" | "reportEnd" | "reportDiscarded"
> &
  Pick<LinkReceiver, "missed" | "drained"> & { confirmed?(): void };

/** Returns a class of endpoints that report to the test. */
export function reporting<T extends new (...args: any[]) => NegotiatedLink>(Base: T) {
  return class extends Base {
    declare readonly tick: Reports["tick"];
    declare protected readonly reports: Reports;
    /** Reports to `reports` from now on. */
    reportTo(reports: Reports): this {
      this.start({
        dispatch: (value: unknown) => reports.receivePack([value]),
        missed: (count: number) => reports.missed(count),
        drained: () => reports.drained(),
        suspended() {},
      } as LinkReceiver);
      return Object.assign(this, { reports, tick: reports.tick });
    }
    override receivePack = (messages: unknown[]): void => this.reports.receivePack(messages);
    override socketFull = (): void => this.reports.socketFull();
    override reportReady = (wasSuspended: boolean): void => this.reports.reportReady(wasSuspended);
    override reportEnd = (...of: Parameters<NegotiatedLink["reportEnd"]>): void => this.reports.reportEnd(...of);
    override reportDiscarded = (...of: Parameters<NegotiatedLink["reportDiscarded"]>): void =>
      this.reports.reportDiscarded(...of);
    override confirmed = (): void => this.reports.confirmed?.();
    /** No flow ends a connection here because of a slow reader. */
    override get unsentBytes(): number {
      return 0;
    }
  };
}

const ClientEndpoint = reporting(NegotiatedLink);

/** A client's endpoint. The test is its server, its socket and the end of each tick. */
export class ClientEnd implements Reports {
  readonly endpoint: NegotiatedLink;
  readonly flow: Flow;
  wire = new TestWire();
  /** The values of the received messages, and the reports of missed ones, in order. Of a message with a number, that. */
  readonly got: unknown[] = [];
  readonly events: unknown[] = [];
  /** Whether frames wait for the end of the tick, and whether a message leaves before that, in the call that sends it. */
  isDue = false;
  sendsAtOnce = false;
  /** Whether the endpoint waits until the wire has drained. */
  isSocketFull = false;

  constructor(limits: Partial<EndLimits> = {}, wantsSession = true) {
    this.endpoint = new ClientEndpoint({ ...LIMITS, ...limits }, wantsSession, undefined).reportTo(this);
    this.flow = flowOver(this.endpoint, limits.maxUnsentBytes ?? LIMITS.maxUnsentBytes, true);
  }

  /** Returns an end whose session is open, and whose hello is sent. `theirs`: the limits of the server. */
  static live(limits: Partial<EndLimits> = {}, theirs: object = {}, more = {}): ClientEnd {
    const end = new ClientEnd(limits);
    end.attach();
    end.receive(hello({ ...OFFER, limits: { ...WIRE_LIMITS, ...limits, ...theirs } }, more));
    end.frames();
    return end;
  }

  get session() {
    return this.endpoint.state.session!;
  }

  get kind(): string {
    return this.endpoint.state.kind;
  }

  /** Gives the end a new socket, as `Endpoint.attach`. */
  attach(content?: unknown, isAgreed = true, isAwaited = true): TestWire {
    this.wire = new TestWire();
    this.endpoint.attach(this.wire, isAgreed, content, isAwaited);
    return this.wire;
  }

  lose(code = 1006, reason = ""): void {
    this.endpoint.detach({ code, reason });
    if (this.kind === "suspended" && !this.flow.isDown) this.flow.suspended();
  }

  /** Attaches a new socket, whose server offers a session. Returns the frames of the client. */
  returns(): unknown[] {
    this.attach({ session: { ...OFFER, token: "other" } });
    return this.frames();
  }

  /** Takes a new socket on which the server has received so many frames. Returns the frames behind `resume`, without the ack. */
  resume(received: number, token = "next"): unknown[] {
    this.returns();
    this.receive(resumed(token, received));
    return this.frames().slice(1);
  }

  /** Takes frames, as of one tick. */
  receive(...frames: (string | Uint8Array)[]): void {
    for (const frame of frames) {
      if (typeof frame === "string") this.endpoint.receiveFrame(frame);
      else if (!this.endpoint.receiveBinary(frame)) this.endpoint.receiveFrame(new TextDecoder().decode(frame));
    }
  }

  /** Sends numbered messages, each in a tick of its own. */
  send(from: number, to = from, padding = 0): void {
    for (const n of range(from, to)) {
      this.flow.send(message(n, padding));
      this.endTick();
    }
  }

  endTick(): void {
    if (this.isDue) this.endpoint.flush();
    this.isDue = false;
  }

  /** Ends the tick. Returns the frames since the last call. */
  frames(): unknown[] {
    this.endTick();
    return this.wire.take();
  }

  receivePack(messages: unknown[]): void {
    this.got.push(...messages.map((value) => (value as { n?: unknown } | null | undefined)?.n ?? value));
  }

  readonly missed = (count: number): void => void this.got.push({ missed: count });
  readonly drained = (): void => this.flow.drained();
  readonly socketFull = (): void => void (this.isSocketFull = true);
  readonly reportDiscarded = (): void => void this.events.push("discarded");
  readonly tick = {
    countMessage: () => this.sendsAtOnce || !(this.isDue = true),
    schedule: () => void (this.isDue = true),
  };

  reportReady(wasSuspended: boolean): void {
    this.events.push("ready");
    if (wasSuspended) this.flow.resumed();
  }

  reportEnd({ code, reason, ...more }: CloseInfo, isRemote: boolean): void {
    this.events.push({ ended: code, reason, isRemote, ...(more.retryMs !== undefined && { retryMs: more.retryMs }) });
  }
}

/** One peer of the server, the numbers of its notifications and counts of missed messages, and its connection events. */
export interface Served {
  readonly peer: AnyPeer;
  readonly got: unknown[];
  readonly events: unknown[];
}

/** A server in memory whose clients are the test. */
export class Serving {
  readonly test: TestServer<any, any, any>;
  readonly peers: Served[] = [];

  constructor(options: object = {}) {
    this.test = testServer<any, any, any>({
      heartbeat: false,
      // A client of the tests is who its header says.
      authenticate: ({ headers }: IncomingMessage) => ({ user: headers["user"] }),
      ...options,
    } as never);
    onTestFinished(() => this.test.server.close());
    this.test.server.on("peer", (peer: AnyPeer) => {
      const served: Served = { peer, got: [], events: [] };
      this.peers.push(served);
      peer.on("notification", (_method, params) => served.got.push((params as unknown[])[0]));
      peer.on("missed", (count) => served.got.push({ missed: count }));
      for (const name of ["suspend", "resume"] as const) peer.on(name, () => served.events.push(name));
      peer.on("close", ({ code }) => served.events.push(code));
    });
  }

  get served(): Served {
    return this.peers.at(-1)!;
  }

  get stats() {
    return this.test.server.stats();
  }

  settle(): Promise<void> {
    return this.test.network.settle();
  }

  /** Opens a connection of a client. `returns`: it offers to resume. Its server's hello has come. */
  async open(returns = false, user?: string): Promise<RawClient> {
    const raw = new RawClient(this, ["reciproc.v1", ...(returns ? ["reciproc.resume"] : [])], user);
    await this.settle();
    return raw;
  }

  async begin(user?: string, limits: object = WIRE_LIMITS): Promise<RawClient> {
    const raw = await this.open(false, user);
    await raw.deliver(JSON.stringify({ hello: { session: true, limits } }));
    raw.take();
    return raw;
  }

  /** Notifies the newest client, of each value in a tick of its own. */
  async notify(...values: unknown[]): Promise<void> {
    for (const value of values) {
      this.served.peer.notify("n", [value].flat());
      await this.settle();
    }
  }

  /** Opens a connection of a client that resumes. Returns it with the server's answer, unread. */
  async resume(token: string, received = 0, attempt = 1, user?: string): Promise<RawClient> {
    const raw = await this.open(true, user);
    raw.take();
    await raw.deliver(resume(token, received, attempt));
    return raw;
  }
}

/** One connection of a client whose frames the test writes. */
export class RawClient {
  /** The token that the server's hello offers, or the newest one since. */
  token = "";
  readonly cut: () => void;
  readonly line: ReturnType<Serving["test"]["network"]["of"]>;
  readonly #serving: Serving;
  readonly #webSocket: InstanceType<Serving["test"]["WebSocket"]>;
  #frames: string[] = [];
  closedWith: { code: number; reason: string } | undefined;

  constructor(serving: Serving, protocols: readonly string[], user?: string) {
    this.#serving = serving;
    const { WebSocket, network } = serving.test;
    const headers: Record<string, string> = user === undefined ? {} : { user };
    this.#webSocket = new WebSocket(serving.test.server.url, { protocols, headers });
    this.line = network.of(this.#webSocket);
    this.cut = () => this.line.cut();
    this.#webSocket.addEventListener("message", ({ data }: { data: string }) => {
      this.#frames.push(data);
      this.token = /^\{"(?:hello":\{"session|resumed)":\{"token":"([^"]+)"/.exec(data)?.[1] ?? this.token;
    });
    this.#webSocket.addEventListener("close", ({ code, reason }: { code: number; reason: string }) => {
      this.closedWith = { code, reason };
    });
  }

  send(...frames: string[]): void {
    for (const frame of frames) if (this.closedWith === undefined) this.#webSocket.send(frame);
  }

  /** Sends frames, and waits until they have arrived. */
  async deliver(...frames: string[]): Promise<void> {
    this.send(...frames);
    await this.#serving.settle();
  }

  close(code: number, reason = ""): void {
    this.#webSocket.close(code, reason);
  }

  /** Returns the frames that came since the last call. */
  take(): string[] {
    return this.#frames.splice(0);
  }

  /** Returns the numbers of the messages in the packs that came since the last call, and the reports of dropped ones, in order. */
  numbers(): unknown[] {
    return this.take().flatMap((frame) => {
      const value = JSON.parse(frame) as { params: unknown[] }[] | { missed?: number };
      if (Array.isArray(value)) return value.map(({ params }) => params[0]);
      return value.missed === undefined ? [] : [{ missed: value.missed }];
    });
  }
}

/** Serves, and opens a session of each user, whose peers are in a topic. `raw`: the first. */
export async function begun(options?: object, users: readonly (string | undefined)[] = [undefined]) {
  const serving = new Serving(options);
  const topic = serving.test.server.topic("all");
  const raws: RawClient[] = [];
  for (const user of users) {
    raws.push(await serving.begin(user));
    topic.add(serving.served.peer);
  }
  return { serving, raws, raw: raws[0]!, topic };
}
