/** One HTTP request and its one response. */
import { isUtf8 } from "node:buffer";
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { LONGEST_DELAY_MS } from "../base/deadlines.js";
import { exceeds } from "../message/codec.js";
import { ReadBudget } from "../base/read-budget.js";

/** The body of a request: text, or the value that the application has already parsed. */
export type Body = { text: string } | { value: unknown };

/** Why a body cannot be read. `"lost"` means that the application has read it. */
export type Failure = "too large" | "too late" | "lost";

/** How long the rest of an unread body is read and dropped before the connection is cut. */
const LINGER_MS = 1000;

/**
 * Maximum number of unanswered requests on one connection. A client that pipelines more is cut, and must send them again
 * (RFC 9112, section 9.3.2).
 */
const MAX_PIPELINED = 100;

/** So many parts of a body are joined into one, because a part of one byte takes 200 bytes of memory. */
const MAX_PARTS = 1024;

/** Begins to answer a request. If too many requests of its connection are unanswered, cuts the connection and returns `undefined`. */
export function beginExchange(request: IncomingMessage, response: ServerResponse): Exchange | undefined {
  const { socket } = request;
  if (stateOf(socket).whenClosed.size < MAX_PIPELINED) return new Exchange(request, response);
  socket.destroy();
  return undefined;
}

/** A request and its response. */
export class Exchange {
  readonly request: IncomingMessage;
  /** Resolves when the response has left or the client has disconnected. */
  readonly closed: Promise<void>;
  readonly #response: ServerResponse;
  readonly #state: ConnectionState;
  /** Length of the response, in bytes. */
  #length = 0;
  #isAnswered = false;
  #isClosed = false;

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.request = request;
    this.#response = response;
    this.#state = stateOf(request.socket);
    this.closed = new Promise((resolve) => {
      const end = (): void => {
        this.#state.whenClosed.delete(end);
        if (!this.#isClosed) this.#state.unsentBytes -= this.#length;
        this.#isClosed = true;
        resolve();
      };
      this.#state.whenClosed.add(end);
      response.once("close", end);
      if (request.socket.destroyed) end();
    });
  }

  /** True if the response was given here. */
  get isAnswered(): boolean {
    return this.#isAnswered;
  }

  /** True if the response was given, here or by the application, or if the client has disconnected. */
  get isDone(): boolean {
    return this.#isAnswered || this.#isClosed || this.#response.headersSent;
  }

  /** Lets pages of that origin read the response. Overrides a header that the application has set. */
  allow(origin: string): void {
    this.#response.setHeader("Access-Control-Allow-Origin", origin);
    this.#response.appendHeader("Vary", "Origin");
  }

  /** Unsent bytes of all responses on this connection, pipelined ones included. */
  get unsentBytes(): number {
    return this.#state.unsentBytes;
  }

  /** Bounds how long the requests of this connection are processed in one tick. */
  get budget(): ReadBudget {
    return this.#state.budget;
  }

  /** Runs `work` at once, or in a later tick if earlier requests have spent the budget of the connection. */
  runInBudget<T>(work: () => T): T | Promise<T> {
    const { budget } = this.#state;
    if (budget.received()) return work();
    return new Promise((resolve) => budget.add(() => resolve(work())));
  }

  /** Answers, and keeps the connection open. */
  answer(status: number, headers: OutgoingHttpHeaders, body?: string): void {
    if (this.#begin(status, headers, body)) this.#response.end(body);
  }

  /** Answers, and closes the connection. */
  refuse(status: number, headers: OutgoingHttpHeaders, body: string): void {
    if (!this.#begin(status, { Connection: "close", ...headers }, body)) return;
    if (this.request.complete) this.#response.end(body);
    else this.#linger(body);
  }

  /** Cuts the connection. */
  cut(): void {
    this.request.socket.destroy();
  }

  /** Returns the body, of at most `maxBytes` and within `timeoutMs`, or why it cannot be read. */
  async read(maxBytes: number, timeoutMs: number): Promise<Body | Failure> {
    const { readableDidRead, readableEnded, body } = this.request as IncomingMessage & { body?: unknown };
    if (!readableDidRead && !readableEnded) return readBody(this.request, maxBytes, timeoutMs);
    const given = bodyOf(body);
    return typeof given === "object" && "text" in given && exceeds(given.text, maxBytes) ? "too large" : given;
  }

  #begin(status: number, headers: OutgoingHttpHeaders, body: string | undefined): boolean {
    if (this.isDone) return false;
    this.#isAnswered = true;
    this.#length = body === undefined ? 0 : Buffer.byteLength(body);
    this.#state.unsentBytes += this.#length;
    this.#response.writeHead(status, { ...headers, ...(body !== undefined && { "Content-Length": this.#length }) });
    return true;
  }

  /**
   * Answers, and drops the rest of the body before closing. Closing while data comes in would make the system reset the
   * connection, and the client might never read the answer.
   */
  #linger(body: string): void {
    const { request } = this;
    const end = (): void => {
      clearTimeout(timer);
      this.#response.end();
    };
    const timer = setTimeout(end, LINGER_MS);
    timer.unref();
    this.#response.write(body);
    request.once("end", end);
    void this.closed.then(end);
    request.resume();
  }
}

/** Returns the body that the application's body parser has produced. */
function bodyOf(parsed: unknown): Body | Failure {
  if (parsed === undefined) return "lost";
  if (parsed instanceof Uint8Array) return textOf(Buffer.from(parsed));
  return typeof parsed === "string" ? { text: parsed } : { value: parsed };
}

/** Decodes a body. Returns a blank text for bytes that are not UTF-8, which is answered with -32700. */
function textOf(bytes: Buffer): Body {
  return { text: isUtf8(bytes) ? bytes.toString() : "" };
}

function readBody(request: IncomingMessage, maxBytes: number, timeoutMs: number): Promise<Body | Failure> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let joined = 0;
    let bytes = 0;
    const end = (body: Body | Failure): void => {
      clearTimeout(timer);
      request.off("data", take);
      resolve(body);
    };
    const take = (chunk: Buffer | string): void => {
      // The chunk is a string if the application has set an encoding.
      const part = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
      bytes += part.length;
      if (bytes > maxBytes) return end("too large");
      chunks.push(part);
      if (chunks.length - joined >= MAX_PARTS) chunks.push(Buffer.concat(chunks.splice(joined++)));
    };
    const timer =
      timeoutMs === Infinity ? undefined : setTimeout(end, Math.min(timeoutMs, LONGEST_DELAY_MS), "too late");
    timer?.unref();
    request.on("data", take);
    request.once("end", () => end(textOf(Buffer.concat(chunks))));
    // If the client has disconnected, this result is not used.
    request.once("close", () => end("lost"));
  });
}

/** The state of one HTTP connection, shared by its pipelined requests. */
interface ConnectionState {
  /** Called when the connection closes. Node warns about a listener on the socket for each request. */
  readonly whenClosed: Set<() => void>;
  /** Unsent bytes of the responses that were given. */
  unsentBytes: number;
  /**
   * Bounds how long the requests are processed in one tick. The socket is not paused, so that its end is noticed.
   * `MAX_PIPELINED` bounds the deferred work.
   */
  readonly budget: ReadBudget;
}

const states = new WeakMap<Socket, ConnectionState>();

function stateOf(socket: Socket): ConnectionState {
  const known = states.get(socket);
  if (known !== undefined) return known;
  const state: ConnectionState = { whenClosed: new Set(), unsentBytes: 0, budget: new ReadBudget() };
  states.set(socket, state);
  socket.once("close", () => {
    for (const end of state.whenClosed) end();
  });
  return state;
}
