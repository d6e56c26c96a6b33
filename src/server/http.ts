/**
 * HTTP POST: the same methods for clients that keep no connection. Each request is one message or batch, and has its own peer,
 * whose client cannot be called back. `docs/PROTOCOL.md` lists the statuses.
 */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Slot } from "../peer/incoming-call.js";
import { encodeError, plainText } from "../message/codec.js";
import type { Connection } from "../peer/connection.js";
import { ErrorCode } from "../message/errors.js";
import type { LinkReceiver, Link } from "../message/transport.js";
import { connectionOf, endPeer, type AnyPeer } from "../peer/peer.js";
import type { Socket } from "../socket/socket.js";
import { CLOSE_TIMEOUT_MS } from "../socket/ws.js";
import { beginExchange, type Exchange, type Body, type Failure } from "./exchange.js";
import type { Gate } from "./gate.js";
import type { CheckedOptions } from "./options.js";
import type { ServerPeers } from "./peers.js";
import { answerUpgradeRequired, checkHost, type Admission, type Refusal, type Verdict } from "./upgrade.js";

const TEXT = { "Content-Type": "text/plain; charset=utf-8" };
const JSON_TEXT = { "Content-Type": "application/json; charset=utf-8" };
/** The media types of a body. An HTML form can send none of them, and a page of another site only after a preflight. */
const TYPES = new Set(["application/json", "application/json-rpc", "application/jsonrequest"]);
const ALLOW = { Allow: "GET, POST, OPTIONS" };

/** The headers of a refusal, besides its type. */
const EXTRA_HEADERS: Readonly<Record<number, OutgoingHttpHeaders>> = {
  405: ALLOW,
  413: JSON_TEXT,
  415: { "Accept-Post": [...TYPES].join(", "), "Accept-Encoding": "identity" },
  503: { "Retry-After": "5" },
};

/** How long a browser may keep the answer to a preflight, in seconds. */
const PREFLIGHT_AGE = "600";

/** Answers requests that are no upgrades. */
export class Posts {
  readonly #gate: Gate<Socket>;
  readonly #peers: ServerPeers;
  readonly #options: CheckedOptions;
  /** The peer of each request that passed the first checks. It is `undefined` until the request runs. */
  readonly #open = new Map<Exchange, AnyPeer | undefined>();
  #onEmpty: (() => void) | undefined;

  constructor(gate: Gate<Socket>, peers: ServerPeers, options: CheckedOptions) {
    this.#gate = gate;
    this.#peers = peers;
    this.#options = options;
  }

  /** Maximum length of a body, in bytes. */
  get #maxMessageBytes(): number {
    return this.#options.peer.limits.maxMessageBytes;
  }

  /** Answers one request. Resolves when the response has left or the client has disconnected. Never rejects. */
  async handle(request: IncomingMessage, response: ServerResponse, checksPath: boolean): Promise<void> {
    // The application has already answered the request.
    if (response.headersSent) return;
    const exchange = beginExchange(request, response);
    if (exchange === undefined) return;
    const isRead = request.method === "GET" || request.method === "HEAD";
    if (isRead && checkHost(request) === undefined) answerUpgradeRequired(response);
    else {
      const refusal = this.#check(exchange, checksPath);
      if (refusal !== undefined) this.#refuse(exchange, refusal);
      else if (request.method === "OPTIONS") answerPreflight(exchange);
      else void this.#take(exchange);
    }
    await exchange.closed;
  }

  /** Refuses the requests that do not run yet, and ends every peer. Handlers may run on, without a caller. */
  shut(code: number, reason: string): void {
    for (const [exchange, peer] of this.#open) {
      if (peer === undefined) this.#refuse(exchange, { status: 503, reason });
      else endPeer(peer, { code, reason });
    }
  }

  /** Resolves when no handler of any request runs, not even of a notification, or after `timeoutMs`. Never rejects. */
  async drain(timeoutMs: number): Promise<void> {
    if (this.#open.size === 0) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    await new Promise<void>((resolve) => {
      this.#onEmpty = resolve;
      timer = setTimeout(resolve, timeoutMs);
    });
    clearTimeout(timer);
  }

  /** Resolves when every response has left. Cuts clients that do not read their responses within 5 seconds. Never rejects. */
  async close(): Promise<void> {
    const open = [...this.#open.keys()];
    const cut = setTimeout(() => {
      for (const exchange of open) exchange.cut();
    }, CLOSE_TIMEOUT_MS);
    await Promise.all(open.map(({ closed }) => closed));
    clearTimeout(cut);
  }

  /** Checks `Host` and `Origin` first, so that an allowed page may read any other refusal. */
  #check(exchange: Exchange, checksPath: boolean): Refusal | undefined {
    const { request } = exchange;
    const foreign = this.#gate.checkOrigin(request);
    if (foreign !== undefined) return foreign;
    allowPage(exchange);
    return this.#gate.checkCapacity(request, checksPath, false) ?? checkHead(request, this.#maxMessageBytes);
  }

  async #take(exchange: Exchange): Promise<void> {
    const { verdict, leave } = this.#gate.enter(exchange.request);
    this.#open.set(exchange, undefined);
    const peer = await this.#admit(exchange, verdict);
    await Promise.all([exchange.closed, peer?.closed]);
    this.#open.delete(exchange);
    if (peer !== undefined) this.#peers.posts--;
    leave();
    if (this.#open.size === 0) this.#onEmpty?.();
  }

  /** Returns the peer of the request, or `undefined` if the request is refused or its client has disconnected. */
  async #admit(exchange: Exchange, verdict: Promise<Verdict> | undefined): Promise<AnyPeer | undefined> {
    const due = performance.now() + this.#options.gate.limits.handshakeTimeoutMs;
    const decision = (await verdict) ?? { admission: undefined };
    if ("refusal" in decision) return this.#refuse(exchange, decision.refusal);
    if (exchange.isDone) return undefined;
    const body = await exchange.read(this.#maxMessageBytes, due - performance.now());
    if (typeof body === "string") return this.#fail(exchange, body);
    return exchange.runInBudget(() => (exchange.isDone ? undefined : this.#run(exchange, body, decision.admission)));
  }

  #run(exchange: Exchange, body: Body, admission: Admission | undefined): AnyPeer | undefined {
    const refusal = this.#peers.claimSlot(admission);
    if (refusal !== undefined) return this.#refuse(exchange, refusal);
    this.#peers.posts++;
    const peer = this.#peers.acceptPost(transportOf(exchange), admission?.auth);
    this.#open.set(exchange, peer);
    answer(exchange, body, connectionOf(peer), this.#options);
    return peer;
  }

  #fail(exchange: Exchange, failure: Failure): undefined {
    if (failure === "too large") return this.#refuse(exchange, tooLarge(this.#maxMessageBytes));
    const { handshakeTimeoutMs } = this.#options.gate.limits;
    const reason = `the request took longer than \`limits.handshakeTimeoutMs\`, ${handshakeTimeoutMs}`;
    if (failure === "too late") return this.#refuse(exchange, { status: 408, reason });
    if (exchange.isDone) return undefined;
    this.#peers.report(new Error("a request's body was read before `handleRequest`, and is not in `request.body`"));
    exchange.refuse(500, TEXT, "the request's body is lost\n");
    return undefined;
  }

  #refuse(exchange: Exchange, refusal: Refusal): undefined {
    if (exchange.isDone) return;
    const { status, reason } = refusal;
    this.#peers.refused(refusal, exchange.request);
    const body = status === 413 ? tooLargeReply(this.#maxMessageBytes) : `${reason}\n`;
    exchange.refuse(status, { ...TEXT, ...EXTRA_HEADERS[status] }, body);
  }
}

/** Why the peer of a request cannot call. All requests share one error, because recording its stack is expensive. */
const NO_CALLS = { reason: new Error("the call came by HTTP POST, so its caller cannot be called back") };

/** Returns the transport of one request. The transport sends nothing, because the reply goes into a slot. */
function transportOf(exchange: Exchange): Link {
  let receiver: LinkReceiver;
  return {
    budget: exchange.budget,
    start(given) {
      receiver = given;
    },
    send: () => false,
    close(code = 1000, reason = "") {
      const why = reason === "" ? `closed with ${code}` : reason;
      // Not 503 and not a silent cut, because either would invite the client to repeat a call that may have run.
      exchange.refuse(500, TEXT, `${why}; what was called may have run\n`);
      receiver.closed({ code, reason });
    },
  };
}

/**
 * Processes the message or batch of a request, and answers with the reply. If no reply is needed, answers at once, and handlers
 * run on. The connection ends when the reply is given and no handler runs, or when the client has disconnected.
 */
function answer(exchange: Exchange, body: Body, connection: Connection, options: CheckedOptions): void {
  const { incoming, outgoing } = connection;
  let isReplied = false;
  const endIfIdle = (): void => {
    if (isReplied && incoming.running === 0) connection.end({ code: 1000, reason: "" });
  };
  const reply = (text: string | undefined): void => {
    if (connection.ended !== undefined) return;
    giveReply(exchange, text, options);
    isReplied = true;
    endIfIdle();
  };
  const slot: Slot = {
    reserveBytes: (text) => incoming.reserveBytes(text),
    put(text, onSent) {
      reply(plainText(text));
      onSent?.(connection.ended === undefined);
      return true;
    },
    leaveOut: () => reply(undefined),
  };
  outgoing.whyNoCalls = NO_CALLS;
  incoming.onIdle = endIfIdle;
  void exchange.closed.then(() => {
    if (!exchange.isAnswered) connection.closed({ code: 1006, reason: "the client is gone" });
  });
  if ("text" in body) connection.receive(body.text, slot);
  else connection.dispatch(body.value, slot);
}

function giveReply(exchange: Exchange, text: string | undefined, options: CheckedOptions): void {
  const { notificationStatus } = options;
  // Each pipelined request may fit the limits, but a client can send many without reading the replies.
  if (exchange.unsentBytes > options.peer.limits.maxUnsentBytes) exchange.cut();
  else if (text === undefined) exchange.answer(notificationStatus, {}, notificationStatus === 200 ? "" : undefined);
  else exchange.answer(200, JSON_TEXT, text);
}

/** Lets the page of an allowed origin read the response. Does not allow credentials, so browsers send no cookies. */
function allowPage(exchange: Exchange): void {
  const { origin } = exchange.request.headers;
  if (origin !== undefined) exchange.allow(origin);
}

/** Answers the preflight that a browser sends before a page may send JSON to another origin. */
function answerPreflight(exchange: Exchange): void {
  const { "access-control-request-headers": wanted } = exchange.request.headers;
  exchange.answer(204, {
    ...ALLOW,
    "Access-Control-Allow-Methods": "POST",
    ...(wanted !== undefined && { "Access-Control-Allow-Headers": wanted }),
    "Access-Control-Max-Age": PREFLIGHT_AGE,
  });
}

/** Checks method, type, encoding and length. A form of another site can send only text, form data and URL encoding. */
function checkHead({ method, headers }: IncomingMessage, maxMessageBytes: number): Refusal | undefined {
  if (method === "OPTIONS") return undefined;
  if (method !== "POST") return { status: 405, reason: `calls are made by POST, not by ${method}` };
  const { "content-type": type = "", "content-encoding": encoding = "identity" } = headers;
  if (!isJson(type)) return { status: 415, reason: `\`Content-Type\` is "${type}", not "application/json" in UTF-8` };
  if (encoding.trim().toLowerCase() !== "identity")
    return { status: 415, reason: `\`Content-Encoding\` is "${encoding}", not "identity"` };
  return Number(headers["content-length"] ?? 0) > maxMessageBytes ? tooLarge(maxMessageBytes) : undefined;
}

function isJson(contentType: string): boolean {
  const [type, ...parameters] = contentType.split(";").map((part) => part.trim().toLowerCase());
  return TYPES.has(type!) && parameters.every((one) => !one.startsWith("charset=") || isUtf8(one.slice(8)));
}

function isUtf8(charset: string): boolean {
  return /^("?)utf-?8\1$/.test(charset);
}

function tooLarge(maxMessageBytes: number): Refusal {
  return { status: 413, reason: `the message is longer than \`limits.maxMessageBytes\`, ${maxMessageBytes}` };
}

function tooLargeReply(maxMessageBytes: number): string {
  const { RequestTooLarge: code } = ErrorCode;
  return plainText(encodeError(null, { code, message: "Request is too large", data: { maxMessageBytes } }));
}
