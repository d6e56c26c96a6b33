// Imports `socket/socket`, `server/tokens`, `server/link`, `session/session`, `session/sizes`, `peer/flow`, `features/live`: a fault replaces parts of these.
/**
 * The oracle: a client and a server, each an endpoint with the least driver that it needs, joined by lines that a test works by
 * hand. It knows what each end has sent, and checks at every step that the other end gets it in order and once, or reports a loss
 * for which there is a reason. What it finds is thrown as a `Breach`.
 */
import { toHttpStatus } from "../../src/message/close-codes.js";
import { member, parse } from "../../src/message/message.js";
import type { CloseInfo } from "../../src/message/transport.js";
import type { Flow as Outgoing } from "../../src/peer/flow.js";
import { NotificationHandle } from "../../src/features/live.js";
import type { Socket } from "../../src/socket/socket.js";
import { TokenRegistry, type Resumable } from "../../src/server/tokens.js";
import { ServerLink } from "../../src/server/link.js";
import {
  helloOf,
  pickLimits,
  RESUME_REFUSED,
  resumeOf,
  serverHello,
  type ResumeFrame,
} from "../../src/session/frames.js";
import { Session, UNKNOWN_LIMITS } from "../../src/session/session.js";
import { PACK_LENGTH } from "../../src/session/sizes.js";
import { flowOver, reporting, type EndLimits, type Reports } from "./kit.js";

export class Breach extends Error {}

export type Side = "client" | "server";

/** The limits of each kind of oracle. */
export const LIMITS: readonly EndLimits[] = [
  { logFrames: 8, logLength: 3000, highWaterBytes: 2 ** 20 },
  { logFrames: 4, logLength: 2 ** 20, highWaterBytes: 1 },
  { logFrames: 2 ** 20, logLength: 3000, highWaterBytes: 5000 },
].map((of) => ({ maxMessageBytes: 1500, maxUnsentBytes: 12_000, ...of }));

const TTL_MS = 60_000;
/** What a queued message counts for besides its length. */
const QUEUED_COST = 64;
/** A conversation of more frames in a row makes frames without end. */
const MOST_FRAMES = 5000;

interface Message {
  readonly label: string;
  readonly length: number;
  readonly handle: { sent: boolean };
  /** The key of a message of which only the newest must arrive. */
  readonly key?: string | undefined;
}

/** What one end has sent, and how much of it the other end has received. */
class Flow {
  readonly sent: Message[] = [];
  got = 0;
  /** How many messages its end has dropped, and how many of them were reported to the other end. */
  dropped = 0;
  reported = 0;
}

/** One connection: the client's endpoint, the server's, and why it may be lost. */
class Pair {
  readonly flows = { client: new Flow(), server: new Flow() };
  client: ClientEnd | undefined;
  server: ServerEnd | undefined;
  reason: string | undefined;
}

/** What travels on a line: a frame, or the close of the other end. */
type Item = string | { readonly code: number };

/** One end of a line. An endpoint writes to it. */
export class LineEnd implements Socket {
  open = true;
  unsentBytes = 0;
  maxFrameBytes = Infinity;
  readonly underWay: Item[] = [];
  readonly sent: string[] = [];
  readonly side: Side;
  readonly line: Line;
  other!: LineEnd;

  constructor(side: Side, line: Line) {
    this.side = side;
    this.line = line;
  }

  send(...frames: readonly string[]): boolean {
    if (!this.open) return false;
    for (const frame of frames) {
      this.sent.push(frame);
      this.line.oracle.sentFrame(this, frame);
      this.other.underWay.push(frame);
    }
    return true;
  }

  start(): void {}
  discard(): void {}

  /** Closes this end. The other one learns of it behind what was sent. */
  close(code: number): void {
    if (!this.open) return;
    this.open = false;
    this.other.underWay.push({ code });
  }
}

export class Line {
  readonly oracle: Oracle;
  readonly client = new LineEnd("client", this);
  readonly server = new LineEnd("server", this);
  /** Whether its client has said that it returns. */
  readonly returns: boolean;
  readonly principal: string;
  /** Whether the client of this oracle has it. */
  readonly isReciproc: boolean;
  /** The connection whose hello was said on it. */
  pair: Pair | undefined;
  /** Server: the end that has it, once that is known. */
  end: ServerEnd | undefined;
  /** Server: the token of its hello, and whether a `resume` was refused on it. */
  readonly token: string;
  isRefused = false;
  /** Client: what was read and said on it. */
  isAnswered: boolean;
  hasSpoken = false;
  owesAck = false;
  /** Client: the connection that its application has closed on this line. The server learns of it with the close. */
  closed: Pair | undefined;

  constructor(oracle: Oracle, returns: boolean, principal: string, isReciproc: boolean) {
    this.oracle = oracle;
    this.returns = returns;
    this.principal = principal;
    this.isReciproc = isReciproc;
    this.token = oracle.makeToken();
    this.isAnswered = !returns;
    this.client.other = this.server;
    this.server.other = this.client;
  }
}

/** An endpoint of either side: it begins as that of a client, or takes a client. */
export class AnyEndpoint extends reporting(ServerLink) {}

/** Returns what two ends share whose states are alike. */
export function stateOf({ state }: AnyEndpoint): unknown[] {
  return [state.kind, state.session, state.session?.acked, state.session?.owes];
}

/** What both ends have in common: an endpoint, its line, and what it reports. */
export abstract class End implements Reports {
  readonly endpoint: AnyEndpoint;
  readonly outgoing: Outgoing;
  /** The length of the messages that were queued when the line was lost. */
  carried = 0;
  readonly oracle: Oracle;
  readonly side: Side;
  line: Line | undefined;
  pair: Pair;
  /** Set by the endpoint, for the driver to act on when the call returns. */
  #ended: { end: CloseInfo; isRemote: boolean } | undefined;
  #discarded: string | undefined;
  /** Whether frames wait for the end of the tick. */
  #isDue = false;

  /** `endpoint`: that of the connection before. */
  constructor(oracle: Oracle, side: Side, pair: Pair, endpoint?: AnyEndpoint) {
    this.oracle = oracle;
    this.side = side;
    this.pair = pair;
    const limits = { ...oracle.limits, ...oracle.fault.limits };
    const delegate = { confirmed() {}, storedChanged() {}, acceptsBroadcast: () => true };
    this.endpoint = (endpoint ?? new AnyEndpoint(limits, delegate)).reportTo(this);
    this.outgoing = flowOver(this.endpoint, limits.maxUnsentBytes, side === "client");
    if (endpoint === undefined) oracle.fault.changeEndpoint?.(side, this.endpoint);
    oracle.fault.changeOutgoing?.(this);
  }

  get wire(): LineEnd | undefined {
    return this.line?.[this.side];
  }

  get session(): Session | undefined {
    return this.endpoint.state.session;
  }

  /** The endpoint of a client has another end by then, that of the next connection. */
  get hasEnded(): boolean {
    return this.endpoint.state.kind === "ended" || (this.side === "client" && this.oracle.client !== (this as End));
  }

  receive(frame: string): void {
    this.endpoint.receiveFrame(frame);
    this.act();
  }

  lose(code: number): void {
    if (this.wire !== undefined) this.wire.underWay.length = 0;
    this.wire?.close(code);
    this.line = undefined;
    this.endpoint.detach({ code, reason: "" });
    const { state } = this.endpoint;
    if (state.kind === "ended") return this.over(state.end);
    this.suspend();
    this.suspended();
  }

  suspend(): void {
    // What is queued between two lines that are lost counts also behind the second.
    if (this.outgoing.isDown) return;
    this.carried = this.queued;
    this.outgoing.suspended();
  }

  get queued(): number {
    const { sent } = this.pair.flows[this.side];
    return sent.reduce((sum, { handle, length }) => sum + (handle.sent ? 0 : length + QUEUED_COST), 0);
  }

  /** Ends the tick, and does what the endpoint has asked for. */
  act(): void {
    if (this.#isDue) this.endpoint.flush();
    this.#isDue = false;
    const { wire } = this;
    const [discarded, ended] = [this.#discarded, this.#ended];
    this.#discarded = this.#ended = undefined;
    if (discarded !== undefined) this.startAnew(discarded);
    if (ended === undefined) return;
    this.line = undefined;
    // Where the other side ended it, its close follows, and is of no interest any more.
    wire?.close(ended.isRemote ? 1000 : ended.end.code);
    this.over(ended.end);
  }

  abstract over(end: CloseInfo): void;
  abstract startAnew(reason: string): void;

  receivePack(messages: unknown[]): void {
    for (const message of messages) {
      if (this.hasEnded) return;
      if (message === undefined) this.oracle.check(false, "a frame that is not JSON is taken for a message");
      else this.oracle.got(this, (message as { label: string }).label);
    }
  }

  missed(count: number): void {
    this.oracle.missed(this, count);
  }

  reportEnd(end: CloseInfo, isRemote: boolean): void {
    this.#ended = { end, isRemote };
  }

  reportDiscarded(reason: string): void {
    this.#discarded = reason;
  }

  readonly tick = {
    countMessage: () => this.oracle.sendsAtOnce || !(this.#isDue = true),
    schedule: () => void (this.#isDue = true),
  };

  drained(): void {
    this.outgoing.drained();
  }

  reportReady(wasSuspended: boolean): void {
    if (wasSuspended) this.outgoing.resumed();
  }

  suspended(): void {}
  confirmed(): void {}
  socketFull(): void {}
}

export class ClientEnd extends End {
  /** The server's hello on the present line. */
  hello: unknown;
  hadSession = false;

  /** Takes what arrives. The first frame of a line is the server's hello. */
  override receive(frame: string): void {
    const { line, oracle } = this;
    if (this.hello !== undefined) return super.receive(frame);
    this.hello = helloOf(frame);
    oracle.check(this.hello !== undefined, `the server's first frame is ${frame}`);
    this.attach(line!);
    this.act();
  }

  attach(line: Line): void {
    this.endpoint.attach(line.client, true, this.hello, line.returns);
  }

  override suspended(): void {
    this.hello = undefined;
  }

  override reportReady(wasSuspended: boolean): void {
    this.hadSession ||= this.session !== undefined;
    super.reportReady(wasSuspended);
  }

  override over({ code }: CloseInfo): void {
    this.oracle.begin(this, `closed with ${code}`);
  }

  /** The server does not have the session: a new connection begins on the same line. */
  override startAnew(reason: string): void {
    const { line, hello } = this;
    this.line = undefined;
    const next = this.oracle.begin(this, reason);
    next.line = line;
    next.hello = hello;
    next.attach(line!);
    next.act();
  }
}

export class ServerEnd extends End implements Resumable {
  readonly principal: string | undefined;
  confirmedHash: string | undefined = undefined;
  nextHash: string | undefined = undefined;
  attempt = 0;

  constructor(oracle: Oracle, line: Line, pair: Pair) {
    super(oracle, "server", pair);
    pair.server = this;
    this.principal = line.principal;
    oracle.registry.open(this, line.token);
    const session = new Session(oracle.limits, { ttlMs: TTL_MS, limits: UNKNOWN_LIMITS });
    line.end = this;
    this.line = line;
    this.endpoint.attachSocket(line.server, "greeting", session);
  }

  override confirmed(): void {
    this.oracle.registry.confirm(this);
  }

  override over({ code, reason }: CloseInfo): void {
    this.oracle.registry.drop(this);
    this.oracle.isOver(this, `closed with ${code} ${reason}`);
  }

  override startAnew(): void {
    throw new Breach("a server cannot begin anew");
  }

  resume(line: Line, resume: ResumeFrame): void {
    // Rule 2: the old line is left before the count of received frames is read.
    if (this.line !== undefined) {
      this.line.server.close(4000);
      this.endpoint.detach({ code: 4000, reason: "" });
      this.suspend();
    }
    this.line = line;
    line.end = this;
    this.endpoint.resume(line.server, resume, this.oracle.registry.renew(this));
    this.act();
  }
}

/** What an end of an oracle does wrong: nothing, if nothing is given. */
export interface Fault {
  readonly ClientEnd?: typeof ClientEnd;
  readonly ServerEnd?: typeof ServerEnd;
  readonly limits?: Partial<EndLimits>;
  changeOutgoing?(end: End): void;
  /** Whether a server's end reads what arrives on a line that it has left. */
  readonly readsOldLines?: boolean;
  changeEndpoint?(side: Side, endpoint: AnyEndpoint): void;
  changeRegistry?(registry: TokenRegistry<ServerEnd>): void;
  acceptsFirst?: typeof acceptsFirst;
}

/** Whether an end takes a first frame on the line of a client that returns. Returns false where it closes the line. */
export function acceptsFirst(frame: string, { isRefused }: Pick<Line, "isRefused">): boolean {
  return helloOf(frame) !== undefined || (!isRefused && resumeOf(member(parse(frame), "resume")) !== undefined);
}

export class Oracle {
  readonly limits: EndLimits;
  readonly registry: TokenRegistry<ServerEnd>;
  readonly lines: Line[] = [];
  readonly servers: ServerEnd[] = [];
  client: ClientEnd;
  /** Labels of messages that their sender was emitted were not sent. */
  readonly #never = new Set<string>();
  readonly fault: Fault;
  /** Whether a message leaves in the call that sends it, and not at the end of its tick. */
  sendsAtOnce = false;
  #tokens = 0;
  readonly makeToken = (): string => `secret-${++this.#tokens}`;
  readonly #labels = { client: 0, server: 0 };
  #isClosing = false;

  constructor(kind = 0, fault: Fault = {}) {
    this.limits = LIMITS[kind % LIMITS.length]!;
    this.fault = fault;
    this.registry = new TokenRegistry({ makeToken: this.makeToken, hash: (token) => `#${token}` });
    fault.changeRegistry?.(this.registry);
    this.client = this.#makeClient();
    this.reconnect();
  }

  check(holds: boolean, what: string): void {
    if (!holds) throw new Breach(what);
  }

  perform(act: (oracle: Oracle) => void): void {
    act(this);
    this.#checkBounds();
  }

  end(side: Side): End | undefined {
    return side === "client" ? this.client : this.server;
  }

  /** The server's end for the client, or else the newest. */
  get server(): ServerEnd | undefined {
    const { server } = this.client.pair;
    return server === undefined || server.hasEnded ? this.servers.at(-1) : server;
  }

  #open(side: Side): End | undefined {
    const end = this.end(side);
    return end?.hasEnded === false ? end : undefined;
  }

  /** Returns the end of a side, and its session, if messages flow. */
  #live(side: Side): { end: End; session: Session } | undefined {
    const end = this.#open(side);
    return end?.endpoint.state.kind === "live" ? { end, session: end.session! } : undefined;
  }

  /** `key`: only the newest message of that key must arrive. */
  send(side: Side, size = 1, key?: string): void {
    const end = this.#open(side);
    if (end === undefined) return;
    const { pair } = end;
    const { sent } = pair.flows[side];
    const label = `${side}-${this.#labels[side]++}`;
    const text = JSON.stringify({ label, x: "x".repeat(size) });
    const handle = key === undefined ? { sent: true } : new NotificationHandle("shown", key, false);
    const message = { label, length: text.length, handle, key };
    const older = sent.find((one) => key !== undefined && one.key === key && !one.handle.sent);
    if (older !== undefined) this.#withdraw(sent, older);
    const most = end.carried + this.limits.maxUnsentBytes / 2;
    const { kind } = end.endpoint.state;
    const isTooMuch = (kind === "suspended" || kind === "resuming") && end.queued + text.length > most;
    if (isTooMuch) pair.reason ??= "too much is queued";
    // Before it is sent: its connection may end inside.
    sent.push(message);
    const isTaken = end.outgoing.send(text, handle);
    this.check(!isTooMuch || (!isTaken && end.hasEnded), `a session goes on with ${label}, which is too much`);
    if (!isTaken) {
      this.#withdraw(sent, message);
      this.check(isTooMuch || end.session === undefined, `${label} is refused, and there is room for it`);
    }
    end.act();
  }

  /** Removes a message, which must not arrive. */
  #withdraw(sent: Message[], message: Message): void {
    sent.splice(sent.indexOf(message), 1);
    this.#never.add(message.label);
  }

  drop(side: Side, count: number): void {
    const end = this.#open(side);
    if (end === undefined) return;
    end.pair.flows[side].dropped += count;
    end.endpoint.reportMissed(count);
    end.act();
  }

  sendTooLong(side: Side): void {
    const end = this.#open(side);
    if (end?.session === undefined || end.session.theirs.maxMessageBytes === Infinity) return;
    const isTaken = end.outgoing.send(JSON.stringify("x".repeat(1600)));
    this.check(!isTaken, "a message is taken that the other side does not accept");
    end.act();
  }

  cancel(side: Side, which: number): void {
    const end = this.#open(side);
    if (end === undefined) return;
    const { sent } = end.pair.flows[side];
    const queued = sent.filter(({ handle }) => !handle.sent);
    const message = queued[which % (queued.length || 1)];
    const { label, handle } = message ?? sent[0] ?? {};
    if (handle === undefined) return;
    const isCancelled = end.outgoing.cancel(handle);
    this.check(isCancelled === (message !== undefined), `${label} is cancelled: ${isCancelled}`);
    if (message !== undefined) this.#withdraw(sent, message);
  }

  /** Lets the next item arrive at one end of a line. Returns false if there is none. */
  deliver(to: Side, which = 0): boolean {
    const line = this.lines[which];
    const item = line?.[to].underWay.shift();
    if (item !== undefined) this.#take(to, line!, item);
    return item !== undefined;
  }

  #take(to: Side, line: Line, item: Item): void {
    if (to === "client") this.#toClient(line, item);
    else this.#toServer(line, item);
  }

  settle(): void {
    for (let i = 0; this.deliver("server") || this.deliver("client"); i++) {
      if (i > MOST_FRAMES) throw new Breach("the ends never come to rest");
    }
  }

  /** One end learns that its line is lost. What was under way to it is lost, too. */
  cut(side: Side, code = 1006): void {
    const end = this.end(side);
    if (end?.line === undefined) return;
    const { pair } = end;
    if (isFinal(code)) pair.reason ??= `closed with ${code}`;
    end.lose(code);
    if (isFinal(code)) this.check(end.hasEnded, `a close with ${code} did not end the session`);
    else if (end.session === undefined && hadSession(pair))
      this.check(pair.reason !== undefined, "a passing close ended a session");
  }

  reconnect(): void {
    this.client.line ??= this.#connect(this.client.session !== undefined, "alice", true);
  }

  /** The client opens another line, and reads the server's hello: its `resume` is under way. */
  reconnectToHello(): void {
    this.reconnect();
    if (this.client.hello === undefined) this.deliver("client");
  }

  expire(): void {
    for (const end of [this.client, ...this.servers]) {
      if (end.endpoint.state.kind !== "suspended" || end.line !== undefined) continue;
      end.pair.reason ??= "expired";
      end.endpoint.end(1006, "expired");
      end.act();
      this.check(end.hasEnded, "a session outlives its time");
    }
  }

  close(side: Side): void {
    const end = this.#open(side);
    if (end === undefined) return;
    end.pair.reason ??= `closed by the ${side}`;
    this.#isClosing = true;
    const { wire } = end;
    const { kind } = end.endpoint.state;
    if (side === "client" && (kind === "live" || kind === "resuming")) wire!.line.closed = end.pair;
    const isAttached = end.endpoint.socket !== undefined;
    end.endpoint.sayBye({ code: 4001, reason: "enough" });
    wire?.close(isAttached ? 4001 : 4000);
    this.#isClosing = false;
    end.line = undefined;
    end.over({ code: 4001, reason: "" });
  }

  /** A wire takes nothing more, or does again. */
  stall(side: Side, isFull: boolean): void {
    const { wire } = this.end(side) ?? {};
    if (wire === undefined) return;
    wire.unsentBytes = isFull ? this.limits.highWaterBytes : 0;
    if (!isFull) this.drain(side);
  }

  /** What a link does every 20 ms while its wire is full. */
  drain(side: Side): void {
    const end = this.end(side);
    end?.endpoint.drain();
    end?.act();
  }

  /** Opens a line of another client, which shows what it likes. Returns the server's end of it. */
  intrude(principal: string, frames: readonly string[]): LineEnd {
    const line = this.#connect(true, principal, false);
    for (const frame of frames) if (line.server.open) this.#toServer(line, frame);
    this.lines.splice(this.lines.indexOf(line), 1);
    return line.server;
  }

  /** A frame that the other end never sent arrives, and must end the session. */
  #endBy(end: End, frame: string): void {
    end.pair.reason ??= `got ${frame}`;
    this.#take(end.side, end.line!, frame);
    this.check(end.hasEnded, `${frame} ended no session`);
  }

  /** What cannot be read arrives, or an ack that cannot be true. */
  lie(side: Side, which = 0): void {
    const { end, session } = this.#live(side) ?? {};
    if (end === undefined) return;
    const { next } = session!;
    const acks = [next, next + 5, -1, 0.5, "1", null, 2 ** 53].map((ack) => JSON.stringify({ ack }));
    this.#endBy(end, ["[1,", ...acks][which % 8]!);
    this.check(side === "client" || tokensOf(end as ServerEnd).length === 0, "a session can be resumed after a lie");
  }

  /** An ack that a later one has overtaken. */
  ackLate(side: Side): void {
    const { end, session } = this.#live(side) ?? {};
    if (end === undefined || session!.acked === 0) return;
    const { acked } = session!;
    this.#take(side, end.line!, JSON.stringify({ ack: acked - 1 }));
    this.check(!end.hasEnded && session!.acked === acked, "a late ack is not ignored");
  }

  /** The other side ends the connection. */
  bye(side: Side): void {
    const end = this.#open(side);
    const { kind } = end?.endpoint.state ?? {};
    if (kind === "live" || (side === "client" && kind === "resuming"))
      this.#endBy(end!, '{"bye":{"code":4001,"reason":"enough"}}');
  }

  /** Data, or a count that cannot be true, where `resumed` must come. */
  answerWrongly(which: number): void {
    this.reconnectToHello();
    const { client } = this;
    if (client.endpoint.state.kind !== "resuming") return;
    const { next, acked } = client.session!;
    const counts = [next + 99, acked - 1].filter((count) => count >= 0);
    const lies = ['[{"label":"before"}]', ...counts.map((n) => `{"resumed":{"token":"x","received":${n}}}`)];
    this.#endBy(client, lies[which % lies.length]!);
    this.check(this.client !== client, "a client goes on after a wrong answer");
  }

  /** A `resume` that was sent before comes again on a line of its own, be it late or from a thief. */
  repeatResume(which: number): void {
    const resumes = this.lines
      .filter(({ isReciproc }) => isReciproc)
      .flatMap(({ client, server }) =>
        // A client that sends a `resume` before the line of that `resume` delivers it gets the session, like a thief of its token.
        client.sent.filter((frame) => frame.startsWith('{"resume"') && !server.underWay.includes(frame)),
      );
    const frame = resumes[which % (resumes.length || 1)];
    if (frame !== undefined) this.intrude("alice", [frame]);
  }

  /** The same `resume` comes again on the line that it has resumed. */
  resumeTwice(): void {
    const { end } = this.#live("server") ?? {};
    if (end !== undefined) this.#endBy(end, resumeFrame(this.newestToken ?? "x"));
  }

  steal(): void {
    if (this.newestToken === undefined) return;
    const { server } = this;
    const before = server?.line;
    const hadEnded = server?.hasEnded;
    this.#showWrong("mallory", this.newestToken, "another principal resumes a session");
    this.check(server?.line === before && server?.hasEnded === hadEnded, "another principal ends a session");
  }

  /** A client shows a token in whose place a newer one has come. */
  reuse(which: number): void {
    const accepted = this.servers.flatMap(tokensOf);
    const given = Array.from({ length: this.#tokens }, (_, i) => `secret-${i + 1}`);
    const old = given.filter((one) => !accepted.includes(`#${one}`));
    const token = old[which % (old.length || 1)];
    if (token !== undefined) this.#showWrong("alice", token, "an old token resumes a session");
  }

  #showWrong(principal: string, token: string, breach: string): void {
    const wire = this.intrude(principal, [resumeFrame(token)]);
    this.check(wire.sent.includes(RESUME_REFUSED), breach);
  }

  /** A client that says it returns says neither `resume` nor a hello, or after a refusal anything but a hello. */
  breakIn(which: number, isRefused: boolean): void {
    const frames = ['[{"label":"in"}]', '{"ack":0}', '{"ping":1}', "x", resumeFrame("wrong")];
    const frame = frames[which % (isRefused ? frames.length : frames.length - 1)]!;
    const wire = this.intrude("alice", isRefused ? [resumeFrame("wrong"), frame] : [frame]);
    this.check(!wire.open && wire.line.end === undefined, `${frame} is taken from a client that says it returns`);
  }

  /** A `resume` with the right token and a count that cannot be true. */
  lieInResume(which: number): void {
    const token = this.newestToken;
    const { server } = this;
    if (token === undefined || server?.session === undefined || server.confirmedHash === undefined) return;
    const { next, acked } = server.session;
    const counts = [next + 99, acked - 1].filter((count) => count >= 0);
    const received = counts[which % counts.length]!;
    server.pair.reason ??= "lied to";
    const wire = this.intrude("alice", [resumeFrame(token, received)]);
    this.check(wire.sent.includes(RESUME_REFUSED) && server.hasEnded, `${received} is taken for a count of frames`);
  }

  get newestToken(): string | undefined {
    return this.client.session?.token;
  }

  #connect(returns: boolean, principal: string, isReciproc: boolean): Line {
    const line = new Line(this, returns, principal, isReciproc);
    this.lines.unshift(line);
    line.server.send(serverHello({ token: line.token, ttlMs: TTL_MS, limits: pickLimits(this.limits) }));
    if (!returns) this.#accept(line);
    return line;
  }

  #accept(line: Line): ServerEnd {
    const pair = line.isReciproc ? (line.pair ?? this.client.pair) : new Pair();
    this.check(pair.server === undefined, "two connections are mixed up");
    const end = new (this.fault.ServerEnd ?? ServerEnd)(this, line, pair);
    this.servers.push(end);
    return end;
  }

  #toServer(line: Line, item: Item): void {
    const { end, server } = line;
    if (typeof item !== "string") {
      // A session whose hello came behind its refused `resume` is of no client.
      const isKept = server.open && !line.isRefused && line.closed?.server?.hasEnded === false;
      if (end?.line === line) end.lose(item.code);
      server.open = false;
      this.check(!isKept, "the server keeps a session that its client has closed");
    } else if (end !== undefined) {
      if (end.line === line || (this.fault.readsOldLines && end.line !== undefined)) end.receive(item);
    } else if (server.open) this.#first(line, item);
  }

  /** The first frame on the line of a client that returns. */
  #first(line: Line, frame: string): void {
    // The client closed before it read the refusal.
    if (line.isRefused && frame.startsWith('{"bye"')) return;
    if (!(this.fault.acceptsFirst ?? acceptsFirst)(frame, line)) return line.server.close(1002);
    const resume = resumeOf(member(parse(frame), "resume"));
    if (resume === undefined) return this.#accept(line).receive(frame);
    const found = this.registry.find(resume, line.principal);
    // Rule 9: on the line of a client that returns, a session begins with the client's hello.
    if (found === "unknown" && this.lines.some(({ token, end }) => token === resume.token && end === undefined))
      this.client.pair.reason ??= "the hello of a session that begins anew has not come";
    if (found === "stale") return line.server.close(4000);
    if (found !== "unknown" && found.session!.canHaveReceived(resume.received)) return found.resume(line, resume);
    if (found !== "unknown") {
      found.pair.reason ??= "lied to";
      found.endpoint.fail("`received` is no count of the frames sent");
      found.act();
    }
    line.isRefused = true;
    line.server.send(RESUME_REFUSED);
  }

  #toClient(line: Line, item: Item): void {
    const { client } = this;
    if (client.line !== line) return;
    if (typeof item !== "string") return client.lose(item.code);
    if (item.startsWith('{"resumed"')) {
      line.isAnswered = true;
      line.owesAck = item.startsWith('{"resumed":{"token"') && client.endpoint.state.kind === "resuming";
    }
    client.receive(item);
    this.check(!line.owesAck || !line.client.open, "the client has a token, and did not ack it");
  }

  sentFrame({ side, line, unsentBytes }: LineEnd, frame: string): void {
    if (/^(\[|\{"missed")/.test(frame) && !this.#isClosing && hadSession(this.client.pair))
      this.check(unsentBytes < this.limits.highWaterBytes, "a frame leaves above the high-water mark");
    if (side === "server") {
      const older = this.lines.filter((one) => one !== line && one.end === line.end && one.server.open);
      return this.check(!frame.startsWith('{"resumed":{"token"') || older.length === 0, "an older line is still open");
    }
    this.check(!line.owesAck || frame.startsWith('{"ack"'), `the client owes an ack of its token, and says ${frame}`);
    line.owesAck = false;
    const isFirst = !line.hasSpoken && /^\{"(resume|hello)"/.test(frame);
    const isBye = this.#isClosing && line.hasSpoken && frame.startsWith('{"bye"');
    line.hasSpoken = true;
    this.check(line.isAnswered || isFirst || isBye, `the client says ${frame} before \`resumed\``);
    if (!frame.startsWith('{"hello"')) return;
    line.isAnswered = true;
    if (line.isReciproc) line.pair = this.client.pair;
  }

  got({ pair, side }: End, label: string): void {
    const flow = pair.flows[side === "client" ? "server" : "client"];
    const due = flow.sent[flow.got];
    this.check(!this.#never.has(label), `${label} was not sent, and arrives`);
    this.check(due?.label === label, `${label} arrives where ${due?.label ?? "nothing"} is due`);
    flow.got++;
  }

  missed({ pair, side }: End, count: number): void {
    const flow = pair.flows[side === "client" ? "server" : "client"];
    flow.reported += count;
    this.check(flow.reported <= flow.dropped, `${flow.reported} messages are reported as missed, of ${flow.dropped}`);
  }

  /** The client's connection is over, and another one begins. */
  begin(end: ClientEnd, why: string): ClientEnd {
    this.check(end === this.client, "a connection is over twice");
    this.isOver(end, why);
    end.endpoint.state = { kind: "connecting" };
    return (this.client = this.#makeClient(end.endpoint));
  }

  /** An end is over, for which there must be a reason. */
  isOver({ pair, side }: End, why: string): void {
    this.check(pair.reason !== undefined || !hadSession(pair), `the ${side} lost its session for no reason: ${why}`);
    pair.reason ??= `the ${side}'s end is over`;
    const { sent, got } = pair.flows[side];
    for (const [i, { label, handle }] of sent.entries()) {
      if (handle.sent) continue;
      this.check(i >= got, `${label} was not sent, and has arrived`);
      this.#never.add(label);
    }
  }

  #makeClient(endpoint?: AnyEndpoint): ClientEnd {
    const pair = new Pair();
    return (pair.client = new (this.fault.ClientEnd ?? ClientEnd)(this, "client", pair, endpoint));
  }

  #checkBounds(): void {
    for (const { session } of [this.client, ...this.servers]) {
      if (session === undefined) continue;
      const { acked, last, logLength } = session;
      this.check(last - acked <= this.limits.logFrames, `${last - acked} frames are logged`);
      this.check(logLength <= this.limits.logLength + PACK_LENGTH, `${logLength} is logged`);
    }
    // The confirmed token and the newest one of each session that can go on.
    const open = this.servers.filter(({ hasEnded }) => !hasEnded);
    const most = open.flatMap(tokensOf).length;
    this.check(this.registry.size <= most, `${this.registry.size} tokens are accepted, not ${most}`);
  }

  /** Mends everything: then nothing may be missing, and closing must leave nothing behind. */
  finish(closes: Side = "client"): void {
    this.stall("client", false);
    this.stall("server", false);
    this.#settleWell();
    if (this.client.session !== undefined && this.client.line !== undefined && this.server?.line === this.client.line)
      this.#checkComplete();
    // What is lost is lost for a reason, so one more line is enough.
    this.cut("client");
    this.reconnect();
    this.#settleWell();
    this.#checkComplete();
    for (const side of ["client", "server"] as const) for (let i = 0; i < 3; i++) this.send(side, 10);
    this.#settleWell();
    this.#checkComplete();
    const { server, client } = this;
    this.close(closes);
    this.settle();
    this.check(server!.hasEnded && client.hasEnded, `a close by the ${closes}'s application did not end the session`);
    this.expire();
    for (const end of this.servers) if (!end.hasEnded) end.lose(1006);
    this.expire();
    this.check(this.registry.size === 0, `${this.registry.size} tokens are left`);
  }

  #settleWell(): void {
    for (let i = 0; i < 3; i++) {
      this.reconnect();
      this.settle();
      this.drain("client");
      this.drain("server");
    }
  }

  /** Everything has arrived, nothing is queued, and both ends agree on the counts. */
  #checkComplete(): void {
    const { pair, session: here } = this.client;
    const there = pair.server?.session;
    if (here === undefined || there === undefined)
      return this.check(false, "the client did not find back to a session");
    for (const { sent, got, dropped, reported } of Object.values(pair.flows)) {
      this.check(got === sent.length, `${sent[got]?.label} never arrives`);
      this.check(reported === dropped, `${reported} messages are reported as missed, of ${dropped}`);
    }
    for (const [from, to] of [
      [here, there],
      [there, here],
    ] as const) {
      this.check(to.received === from.last, `${to.received} frames are counted of ${from.last}`);
      this.check(from.next === from.last + 1, "what is logged was not written");
      this.check(from.last - from.acked < Math.max(1, this.limits.logFrames / 4), "an ack is due for the frames");
      this.check(from.logLength < this.limits.logLength / 4, "an ack is due for the length");
    }
  }
}

/** Returns the hashes of the tokens by which a session can be resumed. */
function tokensOf({ confirmedHash, nextHash }: ServerEnd): string[] {
  return [confirmedHash, nextHash].filter((token) => token !== undefined);
}

/** Returns a `resume` that is no late one. */
function resumeFrame(token: string, received = 0): string {
  return JSON.stringify({ resume: { token, received, attempt: 2 ** 40, limits: pickLimits(LIMITS[0]!) } });
}

function hadSession({ client }: Pair): boolean {
  return client?.hadSession === true;
}

function isFinal(code: number): boolean {
  const status = toHttpStatus(code) ?? 0;
  return [1002, 1003, 1007, 1008, 1009, 1010, 1013].includes(code) || (status >= 400 && status < 500);
}
