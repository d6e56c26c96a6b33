/** A peer's options, checked and brought into the shape that dispatching needs. A server makes one for all its peers. */
import { CallContext } from "./context.js";
import { expected } from "./errors.js";
import { checkKnown, checkTimeout, peerLimits, type PeerLimits } from "./limits.js";
import type { Id } from "./message.js";
import { isSchema, type StandardSchema } from "./schema.js";

/** A handler as the core sees it. */
export type AnyHandler = (params: any, context: any) => unknown;

/** One call as `around` sees it; `peer.ts` has its public type. */
export interface CallRecord {
  readonly direction: "incoming" | "outgoing";
  readonly peer: unknown;
  readonly method: string;
  readonly id: Id | undefined;
  params: unknown;
  readonly context: CallContext | undefined;
}

type AnyAround = (call: any, next: () => Promise<unknown>) => unknown;

/** The options as given: `peer.ts` has their public types. */
export interface AnyOptions {
  methods?: object | undefined;
  schemas?: object | undefined;
  timeoutMs?: number | undefined;
  fallback?: AnyHandler | undefined;
  around?: AnyAround | undefined;
  limits?: Partial<PeerLimits> | undefined;
}

/** The names of a peer's options. */
export const PEER_OPTIONS = { methods: 0, schemas: 0, timeoutMs: 0, fallback: 0, around: 0, limits: 0 };
const DEFAULT_TIMEOUT_MS = 60_000;

/** What a server adds to the settings that its peers share. */
export interface Owner {
  /** Makes the `context` of a call. */
  readonly Context: typeof CallContext;
  /** A peer emits this error. */
  failed(error: unknown, peer: unknown): void;
  /** A peer is closed; told before anybody else hears of it. */
  ended(peer: unknown): void;
}

const NOBODY: Owner = { Context: CallContext, failed() {}, ended() {} };

/** A peer's options after checking. Throws a `TypeError` that names the option, the rule and the value. */
export class Settings {
  readonly methods: ReadonlyMap<string, AnyHandler>;
  readonly schemas: ReadonlyMap<string, StandardSchema> | undefined;
  readonly fallback: AnyHandler | undefined;
  readonly around: AnyAround | undefined;
  readonly timeoutMs: number;
  readonly limits: PeerLimits;
  readonly owner: Owner;

  constructor(options: AnyOptions = {}, owner = NOBODY) {
    checkKnown("options", options, PEER_OPTIONS);
    this.methods = table("methods", options.methods, checkHandler);
    this.schemas = options.schemas === undefined ? undefined : table("schemas", options.schemas, checkSchema);
    this.fallback = options.fallback === undefined ? undefined : checkHandler("fallback", options.fallback);
    this.around = options.around === undefined ? undefined : (checkHandler("around", options.around) as AnyAround);
    const { timeoutMs = DEFAULT_TIMEOUT_MS } = options;
    this.timeoutMs = checkTimeout("timeoutMs", timeoutMs);
    this.limits = peerLimits(options.limits);
    this.owner = owner;
  }
}

/** Throws a `TypeError` unless `value` is a function. */
export function checkHandler(name: string, value: unknown): AnyHandler {
  if (typeof value === "function") return value as AnyHandler;
  throw expected(name, "a function", value);
}

function checkSchema(name: string, value: unknown): StandardSchema {
  if (isSchema(value)) return value;
  throw expected(name, "a Standard Schema", value);
}

/** An object's own members as a Map: a method called `constructor` or `__proto__` is found only if somebody put it there. */
function table<T>(name: string, given: unknown, check: (name: string, value: unknown) => T): Map<string, T> {
  const entries = new Map<string, T>();
  if (given === undefined) return entries;
  if (!isPlain(given)) throw expected(name, "a plain object, not an instance of a class", given);
  for (const [key, value] of Object.entries(given)) {
    if (value !== undefined) entries.set(key, check(`${name}.${key}`, value));
  }
  return entries;
}

/** Handlers are called without `this`, and a class's methods are not its own members: an instance would serve nothing. */
function isPlain(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const proto = Object.getPrototypeOf(value) as object | null;
  return proto === null || Object.getPrototypeOf(proto) === null;
}
