/**
 * The oracle: a client and a server with sessions, joined by wires that lose, delay and repeat, driven step by step. It knows
 * what each end sent, and checks at every step that the other got it in order and once, or was told of a loss for which there
 * is a reason. What it finds is thrown as a `Breach`.
 */
import type { ClientSession } from "../../../src/link/client.js";
import type { PackedLink } from "../../../src/link/packed.js";
import type { OwnLimits, Session } from "../../../src/link/session.js";
import type { Sessions } from "../../../src/link/sessions.js";
import type { CloseInfo, Receiver, Ticket } from "../../../src/core/transport.js";
import type { Modules } from "./rig.js";
import { PACK_LENGTH } from "../../../src/link/sizes.js";
import { microtasks, Wire, type WireSocket } from "./wire.js";

/** A log that is not full takes one more frame, and no message here is longer than a pack may be. */
const LONGEST_FRAME = PACK_LENGTH;

/** What the oracle found. */
export class Breach extends Error {}

/** Logs that are bounded by their frames, by their length, and by both. */
const LIMITS: OwnLimits[] = [
  {
    maxMessageBytes: 1500,
    logFrames: 8,
    logLength: 3000,
    waitingLength: 6000,
    burstLength: 6000,
    highWaterBytes: 2 ** 20,
  },
  {
    maxMessageBytes: 1500,
    logFrames: 4,
    logLength: 2 ** 20,
    waitingLength: 6000,
    burstLength: 6000,
    highWaterBytes: 1,
  },
  {
    maxMessageBytes: 1500,
    logFrames: 2 ** 20,
    logLength: 3000,
    waitingLength: 6000,
    burstLength: 6000,
    highWaterBytes: 5000,
  },
];
export const WORLD_TTL_MS = 60_000;
const WAITING_COST = 64;
const PATIENCE_MS = 10_000;
/** So many of the newest sockets are where things happen. */
const NEWEST = 3;
const REFUSED = '{"resumed":{"refused":"unknown-session"}}';
const FINAL = [1002, 1003, 1007, 1008, 1009, 1010, 1013, 4400, 4413, 4499];
const PASSING = [1000, 1001, 1005, 1006, 1011, 1012, 3000, 4000, 4399, 4500];
const WAITS_MS = [5, 20, 1000, 9_000, 31_000, 60_000];

type Side = "client" | "server";

/** A message, and what its sender knows of it. */
interface Message {
  readonly label: string;
  readonly length: number;
  readonly ticket: Ticket;
}

/** What one end sent, and how much of it the other got. */
interface Flow {
  readonly sent: Message[];
  got: number;
}

/** One connection of the client, from hello to loss, and the server's end of it. */
interface Pair {
  readonly flow: Flow;
  server: ServerEnd | undefined;
  /** Why it may be lost; `undefined` while it may not. */
  reason: string | undefined;
  /** Whether `session` has come to the client, and whether the server knows it. */
  hasToken: boolean;
  isAcked: boolean;
  readonly tokens: string[];
  /** The index of the newest token that the server knows to have come. */
  confirmed: number;
}

/** A link of the server. */
interface ServerEnd {
  readonly link: PackedLink;
  readonly flow: Flow;
  pair: Pair | undefined;
  line: Line | undefined;
  suspendedAt: number | undefined;
  isOver: boolean;
}

/** A wire, and what was seen on it. */
interface Line {
  readonly wire: Wire;
  /** Whether the model's client has it, and not somebody else. */
  isOurs: boolean;
  /** The pair whose hello or `resume` was said on it. */
  pair: Pair | undefined;
  server: ServerEnd | undefined;
  /** Whether the client has said anything on it. */
  hasSpoken: boolean;
  /** Whether the client may send whatever it likes. */
  isAnswered: boolean;
  /** Whether the client's next frame must be an ack. */
  owesAck: boolean;
  /** Ends to which the other said bye: they read no more. */
  readonly dismissed: Set<Side>;
  /** The token that the last `resume` on it showed, and the index of the one that was given for it. */
  shown: string | undefined;
  given: number | undefined;
}

/** The world: one client, its server, and whoever else connects. */
export class World {
  readonly #limits: OwnLimits;
  readonly #advance: (ms: number) => void;
  readonly #sessions: Sessions;
  readonly #client: ClientSession;
  readonly #servers: ServerEnd[] = [];
  /** Newest first. */
  readonly #lines: Line[] = [];
  /** Of messages that were not sent, as their sender was told: they must never arrive. */
  readonly #never = new Set<string>();
  /** Those that must be over by the end of the step, or be closing. */
  readonly #ending = new Set<Pair>();
  readonly #resumes: string[] = [];
  readonly #tokens: string[] = [];
  #pair = newPair();
  #clientLine: Line | undefined;
  /** Whether the client was told that nothing flows. */
  #isClientDown = false;
  /** Since when its session has had no socket. */
  #clientSuspendedAt: number | undefined;
  /** Whether a frame arrives at the client's present socket, or did last. */
  #isArriving = false;
  /** Whether both ends send a message whenever they are told something. */
  #isTalkative = false;
  /** What becomes of the client's socket while it takes the next message. */
  #inside: "leave" | "lose" | undefined;
  #clientClosed: CloseInfo | undefined;
  readonly #labels = { client: 0, server: 0 };
  /** A socket that was filled, and the number of the last frame of then. */
  #stalled: { socket: WireSocket; session: Session; last: number } | undefined;
  /** While an end is closed by will it sends all it has. */
  #isClosing = false;
  /** The first that was found. Kept and not thrown where it is found: that is often inside the code under test. */
  #breach: Breach | undefined;

  /** `kind` chooses the limits; `advance` lets time pass. */
  constructor({ ClientSession, Sessions }: Modules, kind: number, advance: (ms: number) => void) {
    this.#limits = LIMITS[kind % LIMITS.length]!;
    this.#advance = advance;
    this.#sessions = new Sessions({
      limits: this.#limits,
      ttlMs: WORLD_TTL_MS,
      makeToken: () => `secret-${this.#tokens.push("") + 0}`,
      hash: hashOf,
      maxSuspendedPerPrincipal: 16,
      maxHeldLength: 2 ** 20,
    });
    const line = this.#open(false);
    this.#clientLine = line;
    line.isOurs = true;
    line.isAnswered = true;
    line.pair = this.#pair;
    const owner = { suspended: () => {}, flows: () => {}, over: () => true };
    this.#client = new ClientSession(line.wire.client, this.#limits, owner);
    this.#client.link.start(this.#clientReceiver());
  }

  /** Takes one step, and checks everything. */
  step({ kind, a, b }: Step): Promise<void> {
    return this.perform((world) => STEPS[kind](world, a, b));
  }

  /** Lets something happen, and checks everything. */
  async perform(act: (world: World) => void): Promise<void> {
    act(this);
    await microtasks();
    this.#checkBounds();
    this.#throwBreach();
  }

  /** Mends the network: then nothing may be missing, and closing must leave nothing behind. */
  async finish(how: number): Promise<void> {
    this.stall("client", false);
    this.stall("server", false);
    this.#inside = undefined;
    await this.#settle();
    if (this.#isConnected()) this.#checkComplete();
    // What is lost is lost for a reason, so one more socket is enough, whatever came before.
    this.abandon();
    this.reconnect();
    await this.#settle();
    this.#checkComplete();
    this.send("client", 3, 10);
    this.send("server", 3, 10);
    await this.#settle();
    this.#checkComplete();
    this.#throwBreach();
    await this.#close(how);
    this.#throwBreach();
  }

  #check(holds: boolean, what: string): void {
    if (!holds) this.#breach ??= new Breach(what);
  }

  #throwBreach(): void {
    if (this.#breach !== undefined) throw this.#breach;
  }

  send(side: Side, count: number, size: number): void {
    for (let i = 0; i < count; i++) {
      const { link, flow, pair, isOver } = this.#end(side);
      if (isOver) return;
      const label = `${side}-${this.#labels[side]++}`;
      const text = JSON.stringify({ label, x: "x".repeat(size) });
      const waits = flow.sent.reduce((sum, { ticket, length }) => sum + (ticket.sent ? 0 : length + WAITING_COST), 0);
      const isMuch = waits + text.length > this.#limits.waitingLength && link.session !== undefined;
      const message = { label, length: text.length, ticket: { sent: true } };
      // Before it is sent: it may be told as lost inside.
      flow.sent.push(message);
      if (link.send(text, message.ticket)) continue;
      const at = flow.sent.indexOf(message);
      if (at >= 0) flow.sent.splice(at, 1);
      this.#never.add(label);
      if (isMuch) giveReason(pair, "full");
      if (pair?.reason === "full" && link.session !== undefined) this.#ending.add(pair);
    }
  }

  /** More than may wait. */
  flood(side: Side): void {
    const { isOver, link } = this.#end(side);
    if (isOver) return;
    this.send(side, 12, 1200);
    const { logLength, waitingLength, burstLength, maxMessageBytes } = this.#limits;
    // What waited when the socket was lost, and as much as may wait for the next one.
    const most = logLength + LONGEST_FRAME + burstLength + waitingLength + maxMessageBytes;
    this.#check(link.held <= most, `${link.held} is held, and ${most} may be`);
  }

  tooLong(side: Side): void {
    const { link, pair, isOver } = this.#end(side);
    if (isOver || link.session === undefined || !pair?.hasToken) return;
    this.#check(!link.send(JSON.stringify("x".repeat(1600))), "a message was taken that the other side would not take");
  }

  withdraw(side: Side, which: number): void {
    const { link, flow, isOver } = this.#end(side);
    if (isOver) return;
    const waiting = flow.sent.filter(({ ticket }) => !ticket.sent);
    const message = waiting[which % (waiting.length || 1)];
    if (message !== undefined) {
      this.#check(link.withdraw(message.ticket), `${message.label} waits and was not given back`);
      flow.sent.splice(flow.sent.indexOf(message), 1);
      this.#never.add(message.label);
    } else if (flow.sent.length > 0) {
      this.#check(!link.withdraw(flow.sent[0]!.ticket), `${flow.sent[0]!.label} has left and was given back`);
    }
  }

  deliver(to: Side, which: number, count: number): void {
    const { wire } = this.#line(which);
    for (let i = 0; i < count; i++) if (!wire[to].deliver()) return;
  }

  /** Where the next of what is under way can arrive: what is on its way to a socket that the client has left matters to nobody. */
  get arrivals(): [to: Side, which: number][] {
    const toServer = this.#lines.flatMap(({ wire }, i): [Side, number][] =>
      wire.server.isDue && i < NEWEST ? [["server", i]] : [],
    );
    return this.#clientLine?.wire.client.isDue ? [["client", 0], ...toServer] : toServer;
  }

  /** Which ends of sockets can be cut, those that their link has. */
  get cuttable(): [side: Side, which: number][] {
    const ends: [Side, Line | undefined][] = [
      ["client", this.#clientLine],
      ["server", this.#server().line],
    ];
    return ends.flatMap(([side, line]): [Side, number][] => {
      if (line === undefined || line.wire[side].isOver) return [];
      return [[side, this.#lines.indexOf(line)]];
    });
  }

  get hasSocket(): boolean {
    return this.#client.link.hasSocket;
  }

  /** Everything that what happens next can depend on, and the oracle's verdict on it. */
  get state(): object {
    return {
      client: this.#client,
      sessions: this.#sessions,
      servers: this.#servers,
      // What the others hold cannot come any more, or matters to nobody.
      lines: this.#lines.filter((line) => line === this.#clientLine || line.wire.server.isDue),
      never: this.#never,
      pair: this.#pair,
      clientLine: this.#clientLine,
      isClientDown: this.#isClientDown,
      clientSuspendedAt: this.#clientSuspendedAt,
      clientClosed: this.#clientClosed,
      labels: this.#labels,
    };
  }

  /** Ends everything at once, so that nothing of it is left in the process. */
  discard(): void {
    this.#client.link.close();
    for (const { link } of this.#servers) link.close();
    for (const { wire } of this.#lines) {
      wire.client.cut();
      wire.server.cut();
    }
  }

  deliverAll(which: number): void {
    const { wire } = this.#line(which);
    // As many as may be under way, and not until there are none: each may make another.
    for (let i = 0; i < 500 && (wire.client.deliver() || wire.server.deliver()); i++);
  }

  cut(side: Side, which: number): void {
    this.#line(which).wire[side].cut();
  }

  /** One end is closed with a code. */
  closeSocket(side: Side, code: number): void {
    const line = this.#present(side);
    if (line === undefined) return;
    const { pair } = this.#end(side);
    const isFinal = FINAL.includes(code);
    if (isFinal && pair !== undefined) pair.reason ??= `closed with ${code}`;
    line.wire[side].cut({ code, reason: "by the test" });
    if (!isFinal) return;
    const isOver = side === "client" ? this.#pair !== pair : line.server!.isOver;
    this.#check(isOver, `a close with ${code} did not end the session of the ${side}`);
  }

  abandon(): void {
    this.#clientLine = undefined;
    this.#client.link.giveUp("the test");
  }

  /** The client leaves its socket in the middle of a pack, perhaps, whose rest has come all the same; or loses it for good. */
  partInside(isLost: boolean): void {
    this.#inside = isLost ? "lose" : "leave";
  }

  /** From now on what is told is answered at once, or no longer. */
  talk(): void {
    this.#isTalkative = !this.#isTalkative;
  }

  reconnect(): void {
    if (this.#client.link.hasSocket || this.#clientClosed !== undefined) return;
    const line = this.#open(this.#client.isResumable);
    this.#clientLine = line;
    line.isOurs = true;
    line.pair = this.#pair;
    this.#client.attach(line.wire.client, true);
  }

  /** The client opens another socket and has read the server's hello: its `resume` is under way. */
  reconnectToHello(): void {
    this.reconnect();
    const line = this.#clientLine;
    if (line !== undefined && !line.hasSpoken) line.wire.client.deliver();
  }

  /** The client gives one `resume` up for another, and the first arrives when the second was answered. */
  crossResumes(isAnswered: boolean): void {
    this.abandon();
    this.reconnectToHello();
    const first = this.#clientLine;
    this.abandon();
    this.reconnectToHello();
    const second = this.#clientLine;
    second?.wire.server.deliver();
    if (isAnswered) second?.wire.client.deliver();
    first?.wire.server.deliver();
  }

  stall(side: Side, isFull: boolean): void {
    for (const { wire } of this.#lines) wire[side].unsentBytes = isFull ? this.#limits.highWaterBytes : 0;
    const socket = this.#present(side)?.wire[side];
    const { session } = this.#end(side).link;
    if (isFull && socket !== undefined && session !== undefined)
      this.#stalled = { socket, session, last: session.log.last };
  }

  pass(ms: number): void {
    this.#advance(ms);
  }

  /** A `resume` that was said before comes again on a socket of its own: late, or from somebody who listened. */
  repeatResume(which: number): void {
    const frame = this.#resumes.at(-1 - (which % 3));
    if (frame !== undefined) this.#impostor("alice").inject(frame);
  }

  /** The same `resume` comes again on the socket that it resumed. */
  resumeTwice(): void {
    const line = this.#present("server");
    const frame = line?.wire.client.sent.find((sent) => sent.startsWith('{"resume"'));
    if (line === undefined || frame === undefined) return;
    if (line.server!.pair !== undefined) line.server!.pair.reason ??= "resumed twice on one socket";
    line.wire.server.inject(frame);
    this.#check(!line.wire.server.open, "a second `resume` was taken on one socket");
  }

  /** Somebody who is not the client shows its newest token. */
  steal(): void {
    const token = this.#pair.tokens.at(-1);
    if (token !== undefined) this.#tryToken(token, "mallory");
  }

  /** Somebody shows a token in whose place a newer one has come, or that of a session that is over. */
  reuse(which: number): void {
    const old = this.#pair.tokens.slice(0, Math.max(0, this.#pair.confirmed));
    if (old.length > 0) this.#tryToken(old[which % old.length]!, "alice");
  }

  /** Who says that it returns says neither `resume` nor a hello, or after a refusal anything but a hello. */
  breakIn(which: number, isRefused: boolean): void {
    const token = this.#pair.tokens.at(-1) ?? "x";
    const frames = ['[{"label":"in"}]', '{"ack":0}', '{"ping":1}', "x", resumeOf(token)];
    const socket = this.#impostor("alice");
    const line = this.#lines[0]!;
    if (isRefused) socket.inject(resumeOf("wrong"));
    const frame = frames[which % (isRefused ? frames.length : frames.length - 1)]!;
    socket.inject(frame);
    this.#check(socket.closedWith?.code === 1002 && line.server === undefined, `${frame} was taken from who returns`);
  }

  /** What cannot be read comes in. */
  poison(side: Side): void {
    const line = this.#sessionLine(side);
    if (line === undefined) return;
    const pair = this.#end(side).pair!;
    pair.reason ??= "poisoned";
    line.wire[side].inject("[1,");
    this.#check(line.wire[side].closedWith?.code === 1002, "what cannot be read was not closed with 1002");
    if (side === "client") this.#check(!this.#client.isResumable, "what cannot be read would be asked for again");
    else this.#check(!this.#isAccepted(pair), "a session that read what cannot be read may be resumed");
  }

  /** Whether a token of that pair resumes its session. */
  #isAccepted({ tokens }: Pair): boolean {
    return tokens.some((token) => this.#sessions.find(hashOf(token), "alice") !== undefined);
  }

  /** An ack that cannot be true. */
  lie(side: Side, which: number): void {
    const line = this.#sessionLine(side);
    if (line === undefined) return;
    const { next } = this.#end(side).link.session!;
    this.#end(side).pair!.reason ??= "lied to";
    const ack = [next, next + 5, -1, 0.5, "1", null, 2 ** 53][which % 7];
    line.wire[side].inject(JSON.stringify({ ack }));
    this.#check(!line.wire[side].open, `an ack of ${ack} was taken where ${next - 1} frames were sent`);
  }

  /** A `resume` with the right token and a count that cannot be true. */
  lieInResume(which: number): void {
    const token = this.#pair.tokens.at(-1);
    const { server } = this.#pair;
    const session = server?.link.session;
    if (token === undefined || server!.isOver || session === undefined || !this.#pair.isAcked) return;
    const counts = session.log.acked > 0 ? [session.next + 99, session.log.acked - 1] : [session.next + 99];
    this.#pair.reason ??= "lied to";
    const socket = this.#impostor("alice");
    const received = counts[which % counts.length]!;
    socket.inject(resumeOf(token, received));
    this.#check(socket.sent.includes(REFUSED), `${received} was taken for a count of frames`);
    this.#check(
      !this.#sessions.find(`#${token.slice(7)}`, "alice"),
      "a session goes on after a count that cannot be true",
    );
  }

  /** A `resumed` with a count that cannot be true. */
  lieInResumed(which: number): void {
    this.reconnectToHello();
    const line = this.#clientLine;
    if (line === undefined || line.isAnswered || !line.hasSpoken || !line.wire.client.open) return;
    const session = this.#client.link.session!;
    const counts = session.log.acked > 0 ? [session.next + 99, session.log.acked - 1] : [session.next + 99];
    this.#pair.reason ??= "lied to";
    const received = counts[which % counts.length]!;
    line.wire.client.inject(JSON.stringify({ resumed: { token: "x", received } }));
    line.owesAck = false;
    this.#check(line.wire.client.closedWith?.code === 1002, `${received} was taken for a count of frames`);
  }

  /** Data where `resumed` must come. */
  dataBeforeResumed(): void {
    this.reconnectToHello();
    const line = this.#clientLine;
    if (line === undefined || line.isAnswered || !line.hasSpoken || !line.wire.client.open) return;
    this.#pair.reason ??= "answered with data";
    line.wire.client.inject('[{"label":"before"}]');
    this.#check(line.wire.client.closedWith?.code === 1002, "data before `resumed` was not closed with 1002");
  }

  /** An ack that was overtaken by another. */
  ackLate(side: Side): void {
    const line = this.#sessionLine(side);
    if (line === undefined || !this.#end(side).pair!.isAcked) return;
    const { log } = this.#end(side).link.session!;
    const { acked } = log;
    if (acked === 0) return;
    line.wire[side].inject(JSON.stringify({ ack: acked - 1 }));
    this.#check(line.wire[side].open && log.acked === acked, "a late ack was not ignored");
  }

  /** The server's application closes: by will, so nothing is to be resumed. */
  closeServer(): void {
    const { link, pair, isOver } = this.#end("server");
    if (isOver) return;
    if (pair !== undefined) pair.reason ??= "closed by the server";
    this.#isClosing = true;
    link.close(4001, "enough");
    this.#isClosing = false;
  }

  #end(side: Side): { link: PackedLink; flow: Flow; pair: Pair | undefined; isOver: boolean } {
    if (side === "server") return this.#server();
    return {
      link: this.#client.link,
      flow: this.#pair.flow,
      pair: this.#pair,
      isOver: this.#clientClosed !== undefined,
    };
  }

  /** The server's end for the client, where there is one; or else the newest, whose client may be gone. */
  #server(): ServerEnd {
    const { server } = this.#pair;
    return server === undefined || server.isOver ? this.#servers.at(-1)! : server;
  }

  /** The newest are where things happen; those before them still hold what was under way. */
  #line(which: number): Line {
    return this.#lines[which % Math.min(this.#lines.length, NEWEST)]!;
  }

  /** The line that a side's link is on, open. */
  #present(side: Side): Line | undefined {
    const line = side === "client" ? this.#clientLine : this.#server().line;
    return line?.wire[side].open && !line.wire[side].isOver ? line : undefined;
  }

  /** The same, where a session flows on it. */
  #sessionLine(side: Side): Line | undefined {
    const line = this.#present(side);
    const { link, pair } = this.#end(side);
    if (line === undefined || link.session === undefined || pair === undefined) return undefined;
    if (line.dismissed.has(side)) return undefined;
    return side === "client" && !(pair.hasToken && line.isAnswered) ? undefined : line;
  }

  #open(returns: boolean, principal = "alice"): Line {
    const wire = new Wire();
    const line: Line = {
      wire,
      isOurs: false,
      pair: undefined,
      server: undefined,
      hasSpoken: false,
      isAnswered: !returns,
      owesAck: false,
      dismissed: new Set(),
      shown: undefined,
      given: undefined,
    };
    wire.client.onSend = (frame) => this.#sentByClient(line, frame);
    wire.server.onSend = (frame) => this.#sentByServer(line, frame);
    wire.client.onArrive = (frame) => this.#arrivesAtClient(line, frame);
    wire.server.onArrive = (frame) => this.#arrivesAtServer(line, frame);
    this.#lines.unshift(line);
    const welcome = (link: PackedLink): void => {
      const end: ServerEnd = {
        link,
        flow: { sent: [], got: 0 },
        pair: undefined,
        line,
        suspendedAt: undefined,
        isOver: false,
      };
      line.server = end;
      this.#servers.push(end);
      if (returns) this.#join(line.pair, end);
      link.start(this.#serverReceiver(end));
    };
    if (returns) this.#sessions.admit(wire.server, principal, PATIENCE_MS, welcome);
    else welcome(this.#sessions.link(wire.server, principal));
    return line;
  }

  /** The server's end of a socket at whose other end is nobody. */
  #impostor(principal: string): WireSocket {
    const { wire } = this.#open(true, principal);
    wire.client.start({ frame() {}, closed() {} });
    return wire.server;
  }

  #tryToken(token: string, principal: string): void {
    const end = this.#server();
    const before = end.line;
    const socket = this.#impostor(principal);
    socket.inject(resumeOf(token));
    this.#check(socket.sent.includes(REFUSED), `${principal} resumed by ${token}`);
    this.#check(end.line === before, "whoever was refused took the session's socket");
  }

  #sentByClient(line: Line, frame: string): void {
    if (typeof frame !== "string") return this.#check(false, "the client sent what is no frame");
    if (this.#client?.link.session !== undefined) this.#checkWater(line.wire.client, frame);
    if (!line.isOurs) return;
    if (frame.startsWith('{"resume"')) this.#resumes.push(frame);
    this.#check(
      !line.owesAck || frame.startsWith('{"ack"'),
      `the client, which owes an ack of its token, says ${frame}`,
    );
    line.owesAck = false;
    const isFirst = !line.hasSpoken && /^\{"(resume|hello)"/.test(frame);
    line.hasSpoken = true;
    this.#check(line.isAnswered || isFirst, `${frame} before \`resumed\``);
    if (!frame.startsWith('{"hello"')) return;
    line.isAnswered = true;
    line.pair = this.#pair;
  }

  #sentByServer(line: Line, frame: string): void {
    if (typeof frame !== "string") return this.#check(false, "the server sent what is no frame");
    if (line.server?.link.session !== undefined) this.#checkWater(line.wire.server, frame);
    if (frame.startsWith('{"session"')) this.#given(line, line.server!.pair, frame);
    else if (frame.startsWith('{"resumed":{"token"')) {
      const end = this.#servers.find(({ pair }) => pair?.tokens.includes(line.shown!));
      const old = end!.line?.wire.server;
      this.#check(old === undefined || !old.open, "a newer socket did not evict the older");
      line.server = end;
      end!.line = line;
      // Who shows a token has it.
      end!.pair!.isAcked = true;
      this.#given(line, end!.pair, frame);
    }
  }

  #given(line: Line, pair: Pair | undefined, frame: string): void {
    const { session, resumed } = JSON.parse(frame) as Record<string, { token: string }>;
    const { token } = (session ?? resumed)!;
    this.#check(!this.#servers.some((end) => end.pair?.tokens.includes(token)), "a token was given twice");
    line.given = pair!.tokens.push(token) - 1;
  }

  #arrivesAtServer(line: Line, frame: string): void {
    if (frame.startsWith('{"bye"')) line.dismissed.add("server");
    if (frame.startsWith('{"resume"')) line.shown = (JSON.parse(frame) as { resume: { token: string } }).resume.token;
    const end = line.server;
    if (end === undefined) return;
    if (frame.startsWith('{"hello"') && line.isOurs) this.#join(line.pair, end);
    if (!frame.startsWith('{"ack"') || end.line !== line || end.pair === undefined || end.isOver) return;
    end.pair.isAcked = true;
    end.pair.confirmed = Math.max(end.pair.confirmed, line.given ?? -1);
  }

  #arrivesAtClient(line: Line, frame: string): void {
    if (frame.startsWith('{"bye"')) line.dismissed.add("client");
    this.#isArriving = line === this.#clientLine;
    if (!this.#isArriving) return;
    if (frame.startsWith('{"resumed"')) line.isAnswered = true;
    if (frame.startsWith('{"session"')) line.pair!.hasToken = true;
    if (line.wire.client.open)
      line.owesAck ||= frame.startsWith('{"session"') || frame.startsWith('{"resumed":{"token"');
  }

  /** One of each connection: when it is lost, another takes its place. */
  #clientReceiver(): Receiver {
    let isOver = false;
    const gets = (value: unknown): void => {
      this.#check(!isOver, "a message came to a connection that is over");
      this.#clientGets(value);
    };
    const tells = (what: string): void => {
      this.#check(!isOver && this.#clientClosed === undefined, `${what} was told to a connection that is over`);
    };
    return {
      receive: (text) => gets(JSON.parse(text)),
      dispatch: gets,
      suspended: () => {
        tells("suspended");
        this.#check(!this.#isClientDown, "the client was suspended twice");
        this.#isClientDown = true;
        this.#clientSuspendedAt = performance.now();
        if (this.#isTalkative) this.send("client", 1, 10);
      },
      resumed: () => {
        tells("resumed");
        this.#check(this.#isClientDown, "the client was resumed and not suspended");
        this.#check(this.#clientLine?.isAnswered === true, "the client was resumed and nothing flows");
        this.#isClientDown = false;
        this.#clientSuspendedAt = undefined;
        if (this.#isTalkative) this.send("client", 1, 10);
      },
      lost: (error) => {
        tells("lost");
        this.#check(this.#isClientDown, "the client lost its connection and was not suspended");
        isOver = true;
        this.#clientIsOver(error.message);
        this.#pair = newPair();
        this.#client.link.start(this.#clientReceiver());
        if (this.#isTalkative) this.send("client", 1, 10);
      },
      closed: (info) => {
        tells("the end");
        isOver = true;
        this.#clientClosed = info;
        this.#clientIsOver(`closed with ${info.code}`);
      },
    };
  }

  #serverReceiver(end: ServerEnd): Receiver {
    return {
      receive: (text) => this.#serverGets(end, JSON.parse(text)),
      dispatch: (value) => this.#serverGets(end, value),
      suspended: () => {
        this.#check(end.suspendedAt === undefined, "the server was suspended twice");
        this.#check(end.pair?.isAcked === true, "a session was suspended whose token was never acked");
        end.suspendedAt = performance.now();
        end.line = undefined;
        this.#serverTalks(end);
      },
      resumed: () => {
        this.#check(end.suspendedAt !== undefined, "the server was resumed and not suspended");
        end.suspendedAt = undefined;
        this.#serverTalks(end);
      },
      closed: ({ code, reason }) => {
        this.#check(!end.isOver, "the server's end was told twice");
        end.isOver = true;
        end.line = undefined;
        const { pair } = end;
        this.#noteUnsent(end.flow);
        if (pair === undefined || !pair.isAcked || isOverdue(end.suspendedAt))
          return giveReason(pair, "the server's end is over");
        this.#check(pair.reason !== undefined, `the server gave a session up for no reason: ${code} ${reason}`);
      },
    };
  }

  #serverTalks(end: ServerEnd): void {
    if (this.#isTalkative && end === this.#server()) this.send("server", 1, 10);
  }

  #clientIsOver(why: string): void {
    const { reason, hasToken, flow } = this.#pair;
    this.#check(reason !== undefined || !hasToken || isOverdue(this.#clientSuspendedAt), `lost for no reason: ${why}`);
    giveReason(this.#pair, "the client's end is over");
    this.#clientSuspendedAt = undefined;
    this.#noteUnsent(flow);
  }

  /** What the sender was told was not sent must never arrive. */
  #noteUnsent({ sent, got }: Flow): void {
    for (const [i, { label, ticket }] of sent.entries()) {
      if (ticket.sent) continue;
      this.#check(i >= got, `${label} was not sent, and arrived`);
      this.#never.add(label);
    }
  }

  #join(pair: Pair | undefined, end: ServerEnd): void {
    if (pair === undefined) return;
    this.#check((end.pair ?? pair) === pair && (pair.server ?? end) === end, "two connections were mixed up");
    end.pair = pair;
    pair.server = end;
  }

  #serverGets(end: ServerEnd, value: unknown): void {
    this.#check(!end.isOver, "a message came after the end");
    this.#check(end.suspendedAt === undefined, "a message came while the server was suspended");
    const { label } = value as { label: string };
    // What was said before hello belongs to the pair whose hello follows.
    if (end.pair === undefined) this.#join(end.line?.pair, end);
    if (end.pair === undefined) this.#check(false, `${label} came from nowhere`);
    else this.#gets(end.pair.flow, label);
  }

  #clientGets(value: unknown): void {
    this.#check(!this.#isClientDown || this.#isArriving, "a message came while the client was suspended");
    const { label } = value as { label: string };
    const end = this.#pair.server ?? this.#clientLine?.server;
    if (end === undefined) return this.#check(false, `${label} came from nowhere`);
    this.#join(this.#pair, end);
    this.#gets(end.flow, label);
    const inside = this.#inside;
    this.#inside = undefined;
    if (inside === "leave") this.abandon();
    else if (inside === "lose") this.closeSocket("client", 1008);
  }

  #gets(flow: Flow, label: string): void {
    this.#check(!this.#never.has(label), `${label} was not sent, and arrived`);
    const due = flow.sent[flow.got];
    this.#check(due?.label === label, `${label} arrived where ${due?.label ?? "nothing"} was due`);
    flow.got++;
  }

  #checkWater({ unsentBytes }: WireSocket, frame: string): void {
    if (frame.startsWith("[") && !this.#isClosing)
      this.#check(unsentBytes < this.#limits.highWaterBytes, "a frame left above high water");
  }

  #checkBounds(): void {
    for (const pair of this.#ending) {
      const isOver = pair !== this.#pair || pair.server?.isOver === true;
      const isClosing = this.#lines.some(
        ({ wire, pair: on }) => on === pair && (!wire.client.open || !wire.server.open),
      );
      this.#check(isOver || isClosing, "a session goes on without a message that was too much");
    }
    this.#ending.clear();
    if (this.#stalled !== undefined) {
      const { socket, session, last } = this.#stalled;
      if (socket.unsentBytes === 0 || !socket.open || socket.isOver) this.#stalled = undefined;
      // One more: that the socket is full is seen when a frame was sent.
      else this.#check(session.log.last <= last + 1 || this.#isClosing, "messages got numbers above high water");
    }
    this.#check(this.#clientLine?.owesAck !== true, "the client has a token and did not ack it");
    const isLate =
      this.#clientSuspendedAt !== undefined && !this.#client.link.hasSocket && isOverdue(this.#clientSuspendedAt);
    this.#check(!isLate, "the client's session outlived its time");
    for (const { link, isOver } of [this.#end("client"), ...this.#servers]) {
      const log = link.session?.log;
      if (log === undefined) continue;
      this.#check(!isOver, "a session is left behind an end");
      this.#check(log.last - log.acked <= this.#limits.logFrames, `${log.last - log.acked} frames are logged`);
      const most = this.#limits.logLength + LONGEST_FRAME;
      this.#check(log.length <= most, `${log.length} is logged, and ${most} may be`);
    }
    const late = this.#servers.filter(({ isOver, suspendedAt }) => !isOver && isOverdue(suspendedAt));
    this.#check(late.length === 0, "the server's session outlived its time");
    const suspended = this.#servers.filter(({ suspendedAt, isOver }) => suspendedAt !== undefined && !isOver);
    this.#check(
      this.#sessions.suspended === suspended.length,
      `${this.#sessions.suspended} suspended sessions are kept`,
    );
    const held = suspended.reduce((sum, { link }) => sum + link.held, 0);
    this.#check(this.#sessions.held === held, `${held} is held, and ${this.#sessions.held} is counted`);
    this.#check(this.#sessions.tokens <= this.#tokensLeft(), `${this.#sessions.tokens} tokens are accepted`);
  }

  /** Most tokens that may be accepted: one confirmed and one newer for each session. */
  #tokensLeft(): number {
    const live = this.#servers.filter(
      ({ isOver, link, line }) => !isOver && link.session !== undefined && line?.wire.server.closedWith === undefined,
    );
    return live.reduce(
      (sum, { pair }) => sum + (pair === undefined ? 0 : Math.min(2, pair.tokens.length - pair.confirmed)),
      0,
    );
  }

  /** Whether a session flows between both ends, as they are. */
  #isConnected(): boolean {
    const line = this.#sessionLine("client");
    return line !== undefined && line === this.#sessionLine("server") && line.wire.client.open && line.wire.server.open;
  }

  /** Everything arrived, nothing waits, and both ends agree on the counts. */
  #checkComplete(): void {
    const { server, flow } = this.#pair;
    const here = this.#client.link.session;
    const there = server?.link.session;
    if (here === undefined || there === undefined)
      return this.#check(false, "the client did not find back to a session");
    this.#check(!this.#isClientDown && server!.suspendedAt === undefined, "messages flow, and an end was not told so");
    for (const { sent, got } of [flow, server!.flow])
      this.#check(got === sent.length, `${sent[got]?.label} never arrived`);
    for (const [from, to] of [
      [here, there],
      [there, here],
    ] as const) {
      this.#check(to.received === from.log.last, `${to.received} frames are counted of ${from.log.last}`);
      this.#check(from.next === from.log.last + 1, "what is logged was not written");
      this.#check(
        from.log.last - from.log.acked < this.#limits.logFrames / 4,
        "an ack is due for the frames and did not come",
      );
      this.#check(from.log.length < this.#limits.logLength / 4, "an ack is due for the length and did not come");
    }
  }

  /** Closes in one of several ways. After the life of a session nothing is left of it anywhere. */
  async #close(how: number): Promise<void> {
    const isSuspended = how % 2 === 1;
    const { server } = this.#pair;
    giveReason(this.#pair, "closed");
    if (isSuspended) this.abandon();
    this.#client.link.close(4002, "done");
    if (isSuspended) {
      this.#check(this.#clientClosed?.code === 4002, "close() while suspended did not settle at once");
      this.#check(!this.#client.isResumable, "close() while suspended left a token");
    }
    await this.#settle();
    if (!isSuspended) this.#check(server!.isOver, "the server did not take `bye` for the end");
    this.#advance(WORLD_TTL_MS);
    await this.#settle();
    this.#advance(WORLD_TTL_MS);
    await this.#settle();
    this.#check(this.#clientClosed !== undefined, "the client is not closed");
    for (const end of this.#servers) end.link.close();
    await this.#settle();
    this.#check(server!.isOver, "the server's end outlived its time");
    const { suspended, held, tokens } = this.#sessions;
    this.#check(
      suspended === 0 && held === 0 && tokens === 0,
      `left: ${suspended} sessions, ${held} held, ${tokens} tokens`,
    );
  }

  async #settle(): Promise<void> {
    for (let i = 0; i < 3; i++) {
      for (const { wire } of this.#lines) await wire.settle();
      // A full socket is looked at again.
      this.#advance(20);
      await microtasks();
    }
  }
}

function hashOf(token: string): string {
  return `hash of ${token.length} and ${token.slice(7)}`;
}

/** A `resume` that is no late one. */
function resumeOf(token: string, received = 0): string {
  return JSON.stringify({ resume: { token, received, attempt: 2 ** 40 } });
}

function newPair(): Pair {
  const flow = { sent: [], got: 0 };
  return { flow, server: undefined, reason: undefined, hasToken: false, isAcked: false, tokens: [], confirmed: -1 };
}

function giveReason(pair: Pair | undefined, reason: string): void {
  if (pair !== undefined) pair.reason ??= reason;
}

function isOverdue(since: number | undefined): boolean {
  return since !== undefined && performance.now() - since >= WORLD_TTL_MS;
}

/** What may happen; `a` and `b` choose among what is there. */
const STEPS = {
  clientSends: (world, a, b) => world.send("client", 1 + (a % 4), SIZES[b % SIZES.length]!),
  serverSends: (world, a, b) => world.send("server", 1 + (a % 4), SIZES[b % SIZES.length]!),
  deliverToClient: (world, a, b) => world.deliver("client", b % 8 === 0 ? a : 0, 1 + (a % 3)),
  deliverToServer: (world, a, b) => world.deliver("server", b % 8 === 0 ? a : 0, 1 + (a % 3)),
  deliverOld: (world, a) => world.deliver(a % 2 === 0 ? "client" : "server", 1 + (a % 2), 2),
  settle: (world, a, b) => world.deliverAll(b % 4 === 0 ? a : 0),
  cutClient: (world, a, b) => world.cut("client", b % 4 === 0 ? a : 0),
  cutServer: (world, a, b) => world.cut("server", b % 4 === 0 ? a : 0),
  cutBoth: (world) => (world.cut("client", 0), world.cut("server", 0)),
  closeFinally: (world, a, b) => world.closeSocket(sideOf(a), FINAL[b % FINAL.length]!),
  closeInPassing: (world, a, b) => world.closeSocket(sideOf(a), PASSING[b % PASSING.length]!),
  abandon: (world) => world.abandon(),
  partInside: (world, a) => world.partInside(a % 2 === 0),
  talk: (world) => world.talk(),
  reconnect: (world) => world.reconnect(),
  reconnectToHello: (world) => world.reconnectToHello(),
  crossResumes: (world, a) => world.crossResumes(a % 2 === 0),
  reconnectAndSettle: (world) => (world.reconnect(), world.deliverAll(0)),
  stall: (world, a, b) => world.stall(sideOf(a), b % 2 === 0),
  withdraw: (world, a, b) => world.withdraw(sideOf(a), b),
  pass: (world, a) => world.pass(WAITS_MS[a % WAITS_MS.length]!),
  expire: (world) => (world.cut("client", 0), world.cut("server", 0), world.pass(WORLD_TTL_MS)),
  flood: (world, a) => world.flood(sideOf(a)),
  tooLong: (world, a) => world.tooLong(sideOf(a)),
  repeatResume: (world, a) => world.repeatResume(a),
  resumeTwice: (world) => world.resumeTwice(),
  steal: (world) => world.steal(),
  reuse: (world, a) => world.reuse(a),
  breakIn: (world, a, b) => world.breakIn(a, b % 2 === 0),
  poison: (world, a) => world.poison(sideOf(a)),
  lie: (world, a, b) => world.lie(sideOf(a), b),
  lieInResume: (world, a) => (world.deliverAll(0), world.lieInResume(a)),
  lieInResumed: (world, a) => world.lieInResumed(a),
  dataBeforeResumed: (world) => world.dataBeforeResumed(),
  ackLate: (world, a) => (world.deliverAll(0), world.ackLate(sideOf(a))),
  closeServer: (world) => world.closeServer(),
} satisfies Record<string, (world: World, a: number, b: number) => void>;

const SIZES = [1, 20, 200, 600, 1100];

export type StepKind = keyof typeof STEPS;

/** One step. */
export interface Step {
  readonly kind: StepKind;
  readonly a: number;
  readonly b: number;
}

export const STEP_KINDS = Object.keys(STEPS) as StepKind[];

function sideOf(a: number): Side {
  return a % 2 === 0 ? "client" : "server";
}
