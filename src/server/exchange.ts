/** One HTTP request and its response, which is given once. */
import { isUtf8 } from "node:buffer";
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { LONGEST_DELAY_MS } from "../core/deadlines.js";
import { exceeds } from "../core/codec.js";
import { ReadBudget } from "../sockets/read-budget.js";

/** What a request holds: text, or what the application has parsed already. */
export type Body = { text: string } | { value: unknown };

/** Why a body cannot be read. `"lost"`: the application has read it. */
export type Failure = "too large" | "too late" | "lost";

/** How long the rest of an unread body is dropped, before the connection is cut. */
const LINGER_MS = 1000;

/** Most unanswered requests of one connection. A client that pipelines more is cut, and must send them again (RFC 9112, section 9.3.2). */
const MOST_PIPELINED = 100;

/** So many parts of a body are joined to one: a part of one byte takes 200 bytes of memory. */
const MOST_PARTS = 1024;

/** Begins to answer a request. Cuts the connection and returns `undefined` if too many of its requests are not answered. */
export function beginExchange(request: IncomingMessage, response: ServerResponse): Exchange | undefined {
  const { socket } = request;
  if (lineOf(socket).whenClosed.size < MOST_PIPELINED) return new Exchange(request, response);
  socket.destroy();
  return undefined;
}

/** A request under way. */
export class Exchange {
  readonly request: IncomingMessage;
  /** Resolves when the response has left, or the client. */
  readonly closed: Promise<void>;
  readonly #response: ServerResponse;
  readonly #line: Line;
  /** How long the response is that was given. */
  #length = 0;
  #isAnswered = false;
  #isClosed = false;

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.request = request;
    this.#response = response;
    this.#line = lineOf(request.socket);
    this.closed = new Promise((resolve) => {
      const end = (): void => {
        this.#line.whenClosed.delete(end);
        if (!this.#isClosed) this.#line.unsentBytes -= this.#length;
        this.#isClosed = true;
        resolve();
      };
      this.#line.whenClosed.add(end);
      response.once("close", end);
      if (request.socket.destroyed) end();
    });
  }

  /** Whether the response is given. */
  get isAnswered(): boolean {
    return this.#isAnswered;
  }

  /** Whether nothing is left to do: the response is given, here or by the application, or the client is gone. */
  get isOver(): boolean {
    return this.#isAnswered || this.#isClosed || this.#response.headersSent;
  }

  /** Lets pages of that origin read the response to come, whatever the application has said about it. */
  allow(origin: string): void {
    this.#response.setHeader("Access-Control-Allow-Origin", origin);
    this.#response.appendHeader("Vary", "Origin");
  }

  /** Bytes of responses that wait to be read by this connection's client, pipelined ones included. */
  get unsentBytes(): number {
    return this.#line.unsentBytes;
  }

  /** How long the requests of this connection are processed in one tick. */
  get budget(): ReadBudget {
    return this.#line.budget;
  }

  /** Does `work` at once, or in a later tick if the requests before it have spent the budget of their connection. */
  inTurn<T>(work: () => T): T | Promise<T> {
    const { budget } = this.#line;
    if (budget.isFree(performance.now())) return work();
    return new Promise((resolve) => budget.add(() => resolve(work())));
  }

  /** Answers. The connection stays open for more. */
  answer(status: number, headers: OutgoingHttpHeaders, body?: string): void {
    if (this.#begin(status, headers, body)) this.#response.end(body);
  }

  /** Answers, and ends the connection. */
  refuse(status: number, headers: OutgoingHttpHeaders, body: string): void {
    if (!this.#begin(status, { Connection: "close", ...headers }, body)) return;
    if (this.request.complete) this.#response.end(body);
    else this.#linger(body);
  }

  /** Cuts the connection. */
  cut(): void {
    this.request.socket.destroy();
  }

  /** The body, of at most `maxBytes` and within `timeoutMs`. */
  async read(maxBytes: number, timeoutMs: number): Promise<Body | Failure> {
    const { readableDidRead, readableEnded, body } = this.request as IncomingMessage & { body?: unknown };
    if (!readableDidRead && !readableEnded) return gather(this.request, maxBytes, timeoutMs);
    const given = bodyOf(body);
    return typeof given === "object" && "text" in given && exceeds(given.text, maxBytes) ? "too large" : given;
  }

  #begin(status: number, headers: OutgoingHttpHeaders, body: string | undefined): boolean {
    if (this.isOver) return false;
    this.#isAnswered = true;
    this.#length = body === undefined ? 0 : Buffer.byteLength(body);
    this.#line.unsentBytes += this.#length;
    this.#response.writeHead(status, { ...headers, ...(body !== undefined && { "Content-Length": this.#length }) });
    return true;
  }

  /** Closing while more comes in would make the system reset the connection, and the client might never see the answer. */
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

/** Returns the body that a body parser of the application has left. */
function bodyOf(parsed: unknown): Body | Failure {
  if (parsed === undefined) return "lost";
  if (parsed instanceof Uint8Array) return textOf(Buffer.from(parsed));
  return typeof parsed === "string" ? { text: parsed } : { value: parsed };
}

/** Bytes that are not UTF-8 become a blank text, which is answered with -32700 as any garbage. */
function textOf(bytes: Buffer): Body {
  return { text: isUtf8(bytes) ? bytes.toString() : "" };
}

function gather(request: IncomingMessage, maxBytes: number, timeoutMs: number): Promise<Body | Failure> {
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
      // It is a string where the application has set an encoding.
      const part = typeof chunk === "string" ? Buffer.from(chunk) : chunk;
      bytes += part.length;
      if (bytes > maxBytes) return end("too large");
      chunks.push(part);
      if (chunks.length - joined >= MOST_PARTS) chunks.push(Buffer.concat(chunks.splice(joined++)));
    };
    const timer =
      timeoutMs === Infinity ? undefined : setTimeout(end, Math.min(timeoutMs, LONGEST_DELAY_MS), "too late");
    timer?.unref();
    request.on("data", take);
    request.once("end", () => end(textOf(Buffer.concat(chunks))));
    // If the client is gone, this result is not used.
    request.once("close", () => end("lost"));
  });
}

/** What the requests of one connection share: many may be pipelined. */
interface Line {
  /** Called when the connection is closed: a listener of each request on the socket would be too many for Node. */
  readonly whenClosed: Set<() => void>;
  /** Bytes of responses that were given and have not left. */
  unsentBytes: number;
  /** How long they are processed in one tick. The socket is read on, so that the end of the client is noticed: `MOST_PIPELINED` bounds what waits. */
  readonly budget: ReadBudget;
}

const lines = new WeakMap<Socket, Line>();

function lineOf(socket: Socket): Line {
  const known = lines.get(socket);
  if (known !== undefined) return known;
  const line: Line = { whenClosed: new Set(), unsentBytes: 0, budget: new ReadBudget() };
  lines.set(socket, line);
  socket.once("close", () => {
    for (const tell of line.whenClosed) tell();
  });
  return line;
}
