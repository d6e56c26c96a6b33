/**
 * How a client gets in once the gate has accepted it: it sends its `auth` if it has said so, resumes a session or begins one, and gets
 * a peer. A request by POST gets a peer for as long as it runs.
 */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import * as CloseCode from "../message/close-codes.js";
import { makeConfig, type Config } from "../peer/config.js";
import type { Connection } from "../peer/connection.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { member, parse } from "../message/message.js";
import type { Link } from "../message/transport.js";
import type { Engine } from "../topics/engine.js";
import type { NodeHost } from "../topics/host.js";
import type { ServerNode } from "../topics/local.js";
import { PlainLink } from "../socket/plain.js";
import type { Socket, SocketHandler } from "../socket/socket.js";
import type { AnyPeer } from "../peer/peer.js";
import {
  AUTH_HELLO,
  AUTH_OFFER,
  byeFrame,
  helloOf,
  readBye,
  RESUME_REFUSED,
  RESUME_OFFER,
  resumeOf,
  type Bye,
  type ResumeFrame,
} from "../session/frames.js";
import { PROTOCOL } from "../session/link.js";
import { longestFrame } from "../session/sizes.js";
import { closeIgnored, closeWithBye, cutLater, IGNORE } from "./closing.js";
import { Credential, type Client } from "./credential.js";
import { offeredBy, type Gate, type GateDelegate, type TakeSocket } from "./gate.js";
import type { Posts } from "./http.js";
import { linkWithoutSession, MAX_AUTH_BYTES, type ServerLink } from "./link.js";
import type { CheckedOptions } from "./options.js";
import type { ServerPeers } from "./peers.js";
import type { SessionRegistry } from "./session-registry.js";
import { EXPIRED, type Admission, type GateSocket, type Refusal, type Verdict } from "./upgrade.js";

/** What a server needs of its surroundings. `serve` has those of Node, with HTTP and WebSockets; a test server has clients in memory. */
export interface Platform {
  /** Makes the node of a server with an engine. A server without one needs nothing of a fleet. */
  makeNode?(this: void, engine: Engine, host: NodeHost): ServerNode;
  /** Returns a one-way hash of a token. */
  hash(this: void, token: string): string;
  /** Makes the gate of a server, and what answers requests by POST, if any can come. The options are checked. */
  connect(
    options: CheckedOptions,
    entrance: Entrance,
  ): { readonly gate: Gate<Socket>; readonly posts: Posts | undefined };
}

/** Lets clients in. */
export class Entrance implements GateDelegate<Socket> {
  readonly peers: ServerPeers;
  readonly gate: Gate<Socket>;
  /** Answers requests by HTTP POST. `undefined` if none can come. */
  readonly posts: Posts | undefined;
  readonly maxFrameBytes: number;
  /** Open sockets whose clients have not sent their first frame, or are being authenticated. */
  readonly arrivals = new Set<Arrival>();
  readonly #options: CheckedOptions;
  /** The configs of the dialects that a client can choose by a subprotocol. */
  readonly #configBy = new Map<string, Config>();
  /** The subprotocols that can be chosen. */
  readonly #protocols: readonly string[];

  constructor(peers: ServerPeers, options: CheckedOptions, platform: Platform) {
    this.peers = peers;
    this.#options = options;
    this.maxFrameBytes = longestFrame(options.peer.limits.maxMessageBytes);
    for (const dialect of options.dialects) {
      if (dialect.subprotocol === undefined) continue;
      const isFirst = dialect === options.peer.dialect;
      const config = isFirst ? peers.config : makeConfig({ ...options.peer, dialect }, peers.config.hooks);
      this.#configBy.set(dialect.subprotocol, config);
    }
    this.#protocols = [...(options.link === "packed" ? [PROTOCOL] : []), ...this.#configBy.keys()];
    ({ gate: this.gate, posts: this.posts } = platform.connect(options, this));
  }

  /** Returns a text of the server: each connection keeps the name, and that of its client would take 32 bytes. */
  chooseProtocol(offered: ReadonlySet<string>): string | undefined {
    for (const name of offered) {
      const chosen = this.#protocols.find((one) => one === name);
      if (chosen !== undefined) return chosen;
    }
    return undefined;
  }

  /** Returns true if a client offers to resume a session and gets `reciproc.v1`. */
  #offersResume(request: IncomingMessage): boolean {
    return this.peers.sessions !== undefined && this.#offers(request, RESUME_OFFER);
  }

  /** Returns true if a client gets `reciproc.v1`, and is authenticated by the `auth` in its hello. */
  authenticatesLater(request: IncomingMessage): boolean {
    return this.#options.gate.authenticate !== undefined && this.#offers(request, AUTH_OFFER);
  }

  /** Returns true if a client makes an offer beside `reciproc.v1`, and gets `reciproc.v1`. */
  #offers(request: IncomingMessage, offer: string): boolean {
    // Most clients make none. Then nothing is split.
    if (request.headers["sec-websocket-protocol"]?.includes(offer) !== true) return false;
    const offered = offeredBy(request);
    return offered.has(offer) && this.chooseProtocol(offered) === PROTOCOL;
  }

  /** Returns the config of the first dialect that a client offers, even if `reciproc.v1` is chosen over that subprotocol. */
  #configFor({ headers }: IncomingMessage): Config {
    const { config } = this.peers;
    if (this.#configBy.size === 0) return config;
    const offered = headers["sec-websocket-protocol"]?.split(",") ?? [];
    const [chosen = config] = offered.flatMap((name) => this.#configBy.get(name.trim()) ?? []);
    return chosen;
  }

  /** The session of a reconnecting client may still have its old socket, which is closed when the client resumes. */
  reserved(request: IncomingMessage): number {
    return this.#offersResume(request) ? this.peers.sessions!.live : 0;
  }

  /** Claims a slot, unless the client sends its `auth` first, or offers to resume a session and may need none. */
  admit(
    request: IncomingMessage,
    admission: Admission | undefined,
    connection: GateSocket,
  ): Refusal | TakeSocket<Socket> {
    const { heartbeat, gate } = this.#options;
    const takesAuth = admission === undefined && gate.authenticate !== undefined;
    const resumes = this.#offersResume(request);
    const refusal = takesAuth || resumes ? undefined : this.peers.claimSlot(admission);
    if (refusal !== undefined) return refusal;
    return (socket, protocol) => {
      if (heartbeat !== undefined) socket.watch?.(heartbeat);
      const client = { socket, request, connection, takesAuth, resumes, admission };
      if (takesAuth) this.#await(new AuthArrival(this, client));
      else this.open(client, protocol);
    };
  }

  /** Limits how long a client may take to send its `auth`, or `resume` or a hello. */
  #await(arrival: Arrival): void {
    this.arrivals.add(arrival);
    setDeadline(arrival, this.#options.gate.limits.handshakeTimeoutMs);
    arrival.start();
  }

  /** Opens or resumes the connection of a client that may come in. */
  open(client: Client, protocol: string = PROTOCOL): void {
    const { socket, resumes, admission } = client;
    const { limits, sessions } = this.peers;
    if (protocol !== PROTOCOL) this.accept(client, new PlainLink(socket));
    else if (sessions === undefined) this.accept(client, linkWithoutSession(socket, limits));
    else if (resumes) this.#await(new ResumeArrival(this, client, sessions));
    else this.accept(client, sessions.link(socket, admission?.principal));
  }

  /** Makes the peer of a new client. */
  accept(client: Client, link: Link): void {
    const { request, admission } = client;
    const peer = this.peers.accept(link, admission?.auth, this.#configFor(request), admission);
    this.#keepAuth(link, peer, client);
    this.peers.emit("peer", [peer, request], peer);
  }

  /** Resumes a session, which has accepted `resume`. */
  resume(client: Client, link: ServerLink, resume: ResumeFrame): void {
    const { admission } = client;
    const peer = (link.receiver as Connection).peer as AnyPeer;
    // A disconnect has ended this session, or will.
    admission?.end();
    // Sets `auth` before the session is resumed, so that listeners of `resume` see the new `auth`.
    const emitRefresh = admission && this.peers.refresh(peer, admission);
    link.onAuth = undefined;
    this.peers.sessions!.resume(link, client.socket, resume);
    this.#keepAuth(link, peer, client);
    emitRefresh?.();
  }

  #keepAuth(link: Link, peer: AnyPeer, client: Client): void {
    const { admission } = client;
    if (admission !== undefined) new Credential(this.peers, this.gate, link, peer, { ...client, admission }).start();
  }

  refused(refusal: Refusal, request: IncomingMessage): void {
    this.peers.refused(refusal, request);
  }

  failed(error: unknown): void {
    this.peers.report(error);
  }

  /** Returns what reports that a client has discarded the session of `token`, because this server does not have it, if others may. */
  abandoned(token: string, principal: string | undefined): (() => void) | undefined {
    return this.peers.node?.sessionOver?.(token, this.peers.sessions!.options.hash(token), principal);
  }

  /** Refuses new clients, and closes those that have no peer yet. */
  shut(bye: Bye): void {
    this.gate.shut();
    for (const arrival of this.arrivals) arrival.shut(bye);
  }
}

/** A client that has not sent its first frame, or is being authenticated. It has a second to answer a close. */
abstract class Arrival implements SocketHandler, Expiring {
  deadline = 0;
  protected readonly entrance: Entrance;
  protected readonly client: Client;

  constructor(entrance: Entrance, client: Client) {
    this.entrance = entrance;
    this.client = client;
  }

  /** Sends the hello of the server, and reads what the client answers. */
  abstract start(): void;

  abstract receiveFrame(text: string): void;

  closed(): void {
    this.settle();
  }

  abstract expire(): void;

  /** Closes the socket, because the server closes. */
  shut(bye: Bye): void {
    this.close(bye);
  }

  /** Closes the socket, and ignores further frames. */
  protected close({ code, reason }: Pick<Bye, "code" | "reason">): void {
    this.settle();
    closeIgnored(this.client.socket, code, reason);
    cutLater(this.client.connection);
  }

  protected settle(): void {
    clearDeadline(this);
    this.entrance.arrivals.delete(this);
  }
}

/** A client that is asked for its `auth`. Closed if it sends anything else, more than `MAX_AUTH_BYTES`, or nothing in time. */
class AuthArrival extends Arrival {
  /** The TCP socket; `undefined` in memory, where no part of a frame is buffered. */
  readonly #raw: Duplex | undefined;
  #bytes = 0;
  #isAsking = false;
  #isOver = false;

  constructor(entrance: Entrance, client: Client) {
    super(entrance, client);
    this.#raw = isStream(client.connection) ? client.connection : undefined;
  }

  start(): void {
    const { socket } = this.client;
    socket.maxFrameBytes = MAX_AUTH_BYTES;
    // The WebSocket itself would buffer a frame of the longest message.
    this.#raw?.on("data", this.#count);
    socket.send(AUTH_HELLO);
    socket.start(this);
  }

  receiveFrame(text: string): void {
    const hello = helloOf(text);
    if (hello === undefined || this.#isAsking)
      return this.close({ code: CloseCode.ProtocolError, reason: "not one hello with `auth`" });
    this.#isAsking = true;
    clearDeadline(this);
    const { request, connection } = this.client;
    void this.entrance.gate
      .authenticate(request, member(hello, "auth"), connection)
      .then((verdict) => this.#decide(verdict));
  }

  expire(): void {
    this.close({ code: CloseCode.Superseded, reason: "no `auth` came in time" });
  }

  #decide(verdict: Verdict): void {
    if (this.#isOver) return;
    this.settle();
    if ("refusal" in verdict) return this.#refuse(verdict.refusal);
    const { entrance } = this;
    const client = { ...this.client, admission: verdict.admission };
    const refusal = client.resumes ? undefined : entrance.peers.claimSlot(client.admission);
    if (refusal !== undefined) return this.#refuse(refusal);
    entrance.open(client);
  }

  #refuse(refusal: Refusal): void {
    const { socket, request, connection } = this.client;
    this.entrance.refused(refusal, request);
    socket.start(IGNORE);
    closeWithBye(socket, refusal);
    cutLater(connection);
  }

  readonly #count = (part: Buffer): void => {
    const wasFlooded = this.#isFlooded;
    this.#bytes += part.length;
    if (!this.#isFlooded) return;
    if (!wasFlooded) this.close({ code: CloseCode.MessageTooBig, reason: CloseCode.TOO_LARGE });
    // Nothing more is buffered. The WebSocket may resume its socket, so each further part pauses it again.
    this.#raw!.pause();
  };

  get #isFlooded(): boolean {
    return this.#bytes > MAX_AUTH_BYTES + EXTRA_BYTES;
  }

  protected override settle(): void {
    this.#isOver = true;
    super.settle();
    if (!this.#isFlooded) this.#raw?.off("data", this.#count);
  }
}

/**
 * A client that has offered to resume a session. If it resumes, the session continues on the link that it has. If it sends a hello, a
 * new session begins.
 */
class ResumeArrival extends Arrival {
  readonly #sessions: SessionRegistry;
  /** The token for a new session. A client that resumes one ignores it. */
  #token = "";
  #isRefused = false;
  /** Reports that the client has discarded a session that is not here. */
  #abandoned: (() => void) | undefined;
  /** What the server answers to a hello, because it closes. */
  #bye: Bye | undefined;

  constructor(entrance: Entrance, client: Client, sessions: SessionRegistry) {
    super(entrance, client);
    this.#sessions = sessions;
  }

  start(): void {
    const { socket } = this.client;
    this.#token = this.#sessions.offer(socket);
    // `resume` may be longer than any message.
    socket.maxFrameBytes = this.entrance.maxFrameBytes;
    socket.start(this);
  }

  receiveFrame(text: string): void {
    const { admission } = this.client;
    if (admission !== undefined && admission.expiresAt <= performance.now())
      return this.close({ code: CloseCode.Expired, reason: EXPIRED });
    if (helloOf(text) !== undefined) this.#startNewSession(text);
    // Rule 1: the client closed before it read the refusal. Its close follows.
    else if (this.#isRefused && readBye(text) !== undefined) return;
    else this.#resume(resumeOf(member(parse(text), "resume")));
  }

  expire(): void {
    this.close(this.#bye ?? { code: CloseCode.Superseded, reason: "neither `resume` nor a hello came in time" });
  }

  /** Closes the socket: at once, or when the hello of a refused client has come, which may be on its way. */
  override shut(bye: Bye): void {
    if (this.#abandoned === undefined) return this.close(bye);
    if (this.#bye !== undefined) return;
    this.#bye = bye;
    setDeadline(this, HELLO_WAIT_MS);
  }

  #startNewSession(hello: string): void {
    const { socket, admission } = this.client;
    // Only now: a client that has not received the refusal keeps its session.
    this.#abandoned?.();
    const bye = this.#bye ?? this.#byeFor(this.entrance.peers.claimSlot(admission));
    if (bye !== undefined) {
      socket.send(byeFrame(bye));
      return this.close(bye);
    }
    this.settle();
    const link = this.#sessions.begin(socket, admission?.principal, this.#token);
    this.entrance.accept(this.client, link);
    // A listener of `peer` may have ended the socket.
    if (link.socket === socket) link.receiveFrame(hello);
  }

  #resume(resume: ResumeFrame | undefined): void {
    // Rule 1: a refused client sends a hello and nothing else.
    if (resume === undefined || this.#isRefused)
      return this.close({ code: CloseCode.ProtocolError, reason: "neither `resume` nor a hello" });
    const { client, entrance } = this;
    const { admission } = client;
    const found = this.#sessions.tokens.find(resume, admission?.principal);
    if (found === "stale")
      return this.close({ code: CloseCode.Superseded, reason: "a later attempt came before this one" });
    // Rule 10: the token is not kept.
    if (found === "unknown") this.#abandoned = entrance.abandoned(resume.token, admission?.principal);
    else if (found.checkResume(resume)) {
      entrance.resume(client, found, resume);
      return this.settle();
    }
    this.#refuseResume();
  }

  #refuseResume(): void {
    // Without a bye, the client keeps its session, which another server may have, and reconnects.
    const bye = this.#byeFor(this.entrance.peers.checkSlot());
    if (bye !== undefined) return this.close(bye);
    this.#isRefused = true;
    this.client.socket.send(RESUME_REFUSED);
  }

  /** Reports a refusal, if there is one. Returns the bye for the client. */
  #byeFor(refusal: Refusal | undefined): Bye | undefined {
    if (refusal === undefined) return undefined;
    this.entrance.refused(refusal, this.client.request);
    return { code: CloseCode.fromHttpStatus(refusal.status), reason: refusal.reason };
  }
}

/** A client that is not authenticated may send so many bytes more: the headers of its frames, and pongs. */
const EXTRA_BYTES = 1024;

/** How long a server that closes waits for the hello of a client that it has refused. The hello follows in one round trip. */
const HELLO_WAIT_MS = 1_000;

function isStream(connection: GateSocket): connection is Duplex {
  return "pause" in connection;
}
