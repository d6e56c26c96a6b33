/** The control frames of `reciproc.v1`. Data from outside is checked here, once. `docs/PROTOCOL.md` defines their meaning. */
import { isObject, member, parse } from "../message/message.js";
import { isCount, isWellFormed } from "../message/options.js";

/** The longest `retryMs` that a server may send and a client obeys: 10 minutes. A longer one could keep a client away for ever. */
export const MAX_RETRY_MS = 600_000;

/** A client that resumes a session offers this beside `reciproc.v1`, so that the server makes no peer before it has read `resume`. */
export const RESUME_OFFER = "reciproc.resume";

/** A client that can send `auth` offers this beside `reciproc.v1`, so that the server authenticates it after the 101. */
export const AUTH_OFFER = "reciproc.auth";

/** The limits that one end of a session sends to the other. */
export interface SessionLimits {
  /** Longest message that the end accepts, in bytes of UTF-8. */
  readonly maxMessageBytes: number;
  /** Maximum number of frames in its replay log. */
  readonly logFrames: number;
  /** Maximum length of its replay log, in UTF-16 code units. */
  readonly logLength: number;
}

/** The session that a server's hello offers. */
export interface SessionFrame {
  readonly token: string;
  readonly ttlMs: number;
  readonly limits: SessionLimits;
  /** By which a load balancer finds the server that has the session. */
  readonly route?: string | undefined;
}

/** The frame `resume`: a client resumes its session. */
export interface ResumeFrame {
  readonly token: string;
  readonly received: number;
  readonly attempt: number;
  readonly limits: SessionLimits;
  /** Whether the client takes binary frames. */
  readonly bytes?: true | undefined;
}

/** The frame `resumed`: the session continues. */
export interface ResumedFrame {
  readonly token: string;
  readonly received: number;
}

/** The frame `bye`: why an end closes the connection, or a server refuses the client. */
export interface Bye {
  readonly code: number;
  readonly reason: string;
  /** The client reconnects after a random time up to this, in milliseconds. */
  readonly retryMs?: number | undefined;
}

type Check = (value: unknown) => boolean;
/** A check for each member, or the checks of its own members. */
type Checks<T> = { [K in keyof T]-?: Check | Checks<T[K]> };

const LONGEST_TOKEN = 256;
const LIMITS: Checks<SessionLimits> = { maxMessageBytes: isPositive, logFrames: isPositive, logLength: isPositive };
const SESSION: Checks<SessionFrame> = {
  token: isToken,
  ttlMs: isPositive,
  limits: LIMITS,
  route: (value) => value === undefined || isToken(value),
};
const RESUME: Checks<ResumeFrame> = {
  token: isToken,
  received: isCount,
  attempt: isPositive,
  limits: LIMITS,
  bytes: (value) => value === undefined || value === true,
};
const RESUMED: Checks<ResumedFrame> = { token: isToken, received: isCount };
const BYE: Checks<Bye> = {
  code: (value) => isCount(value) && value >= 1000 && value <= 4999,
  reason: (value) => typeof value === "string",
  retryMs: (value) => value === undefined || isCount(value),
};

/** Each returns a new object without other members. Returns `undefined` if a member is missing or out of range. */
export const limitsOf = (value: unknown): SessionLimits | undefined => read(value, LIMITS);
export const sessionOf = (value: unknown): SessionFrame | undefined => read(value, SESSION);
export const resumeOf = (value: unknown): ResumeFrame | undefined => read(value, RESUME);
export const resumedOf = (value: unknown): ResumedFrame | undefined => read(value, RESUMED);
export const byeOf = (value: unknown): Bye | undefined => read(value, BYE);

/** The first hello of a server that authenticates a client by its hello. */
export const AUTH_HELLO = '{"hello":{"auth":true}}';
/** The frame by which a server asks for a fresh `auth`. */
export const ASK_AUTH = '{"auth":true}';
/** The answer to an `auth` that the server has accepted. */
export const AUTHENTICATED = '{"authenticated":true}';
/** The answer to a `resume` of a session that the server does not have, or not for this client. */
export const RESUME_REFUSED = '{"resumed":{"refused":"unknown-session"}}';

/** Returns a server's hello, which offers a session. */
export function serverHello(session: SessionFrame, bytes?: true): string {
  return JSON.stringify({ hello: { session, bytes } });
}

/** Returns the hello of a server without sessions, or that of a client which declines one or was offered none. */
export function sessionlessHello(bytes?: true): string {
  return JSON.stringify({ hello: { bytes } });
}

/** Returns a client's hello, which accepts the session that the server offers. */
export function clientHello(limits: SessionLimits & Pick<ResumeFrame, "bytes">): string {
  return JSON.stringify({ hello: { session: true, limits: pickLimits(limits), bytes: limits.bytes } });
}

/** Returns the limits without other members. */
export function pickLimits({ maxMessageBytes, logFrames, logLength }: SessionLimits): SessionLimits {
  return { maxMessageBytes, logFrames, logLength };
}

/** Returns the content of a hello; `undefined` for any other frame, and for one that begins like a hello but is not JSON. */
export function helloOf(frame: string): unknown {
  return contentOf(frame, "hello");
}

/** Returns the answer to a ping; `undefined` if it cannot be encoded: `JSON.parse` accepts any depth, and `JSON.stringify` does not. */
export function pongFrame(value: unknown): string | undefined {
  try {
    return JSON.stringify({ pong: value });
  } catch {
    return undefined;
  }
}

/** Returns the frame that ends a connection on purpose. */
export function byeFrame({ code, reason, retryMs }: Bye): string {
  return JSON.stringify({ bye: { code, reason, retryMs } });
}

/** Returns the content of a server's first frame if that is a bye. */
export function readBye(frame: string): Bye | undefined {
  return byeOf(contentOf(frame, "bye"));
}

/** Every such frame begins with its name, also one of a later version. No JSON-RPC message of reciproc begins so. */
function contentOf(frame: string, name: "hello" | "bye"): unknown {
  return frame.startsWith(`{"${name}":`) ? member(parse(frame), name) : undefined;
}

/**
 * Returns true if a hello has this member with the value true. `auth`: a server asks for it. `session`: a client accepts the offered
 * one. `bytes`: the sender takes binary frames.
 */
export function says(hello: unknown, name: "auth" | "session" | "bytes"): boolean {
  return member(hello, name) === true;
}

function isPositive(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > 0;
}

/** A client puts a route into its URL, so it must be text that UTF-8 can carry. */
function isToken(value: unknown): boolean {
  return typeof value === "string" && value !== "" && value.length <= LONGEST_TOKEN && isWellFormed(value);
}

/** Copies the checked members, because the other side chooses what else an object contains, and how long that is. */
function read<T>(value: unknown, checks: Checks<T>): T | undefined {
  if (!isObject(value)) return undefined;
  const copy: { -readonly [K in keyof T]?: unknown } = {};
  for (const name in checks) {
    const check = checks[name];
    const given = Object.hasOwn(value, name) ? value[name as never] : undefined;
    const item = typeof check === "function" ? given : read(given, check as Checks<T[typeof name]>);
    if (typeof check === "function" ? !check(given) : item === undefined) return undefined;
    if (item !== undefined) copy[name] = item;
  }
  return copy as T;
}
