/** The options of a peer, checked once and brought into the shape that calls need. A server makes one for all its peers. */

import type { CallOptions } from "./contract.js";
import type { ExtensionsFactory } from "./extensions.js";
import type { CallContext } from "./incoming-call.js";
import type { Dialect } from "./dialect.js";
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
  dialect?: Dialect | undefined;
  compat?: "1.0" | undefined;
  onForeignMessage?: AnyHandler | undefined;
}

/** The names of a peer's options. */
export const PEER_OPTIONS = {
  methods: 0,
  schemas: 0,
  timeoutMs: 0,
  fallback: 0,
  around: 0,
  limits: 0,
  dialect: 0,
  compat: 0,
  onForeignMessage: 0,
};
const DEFAULT_TIMEOUT_MS = 60_000;
const CALL_OPTIONS = { timeoutMs: 0, maxTotalTimeoutMs: 0, signal: 0, onProgress: 0, resetTimeoutOnProgress: 0 };

/** How long a call waits, and for what besides its response. */
export interface Wait {
  readonly timeoutMs: number;
  readonly maxTotalTimeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((value: unknown) => void) | undefined;
  readonly resetTimeoutOnProgress: boolean;
}

/** The options of a peer after checking. Peers may share one: it never changes. */
export interface Config {
  readonly methods: ReadonlyMap<string, AnyHandler>;
  readonly schemas: ReadonlyMap<string, StandardSchema> | undefined;
  readonly fallback: AnyHandler | undefined;
  readonly around: AnyAround | undefined;
  /** How long a call waits if its options do not say so. */
  readonly wait: Wait;
  readonly limits: PeerLimits;
  readonly dialect: Dialect;
  /** Whether the application chose the dialect. The default dialect is understood, and spoken only to a reciproc peer. */
  readonly choseDialect: boolean;
  /** Methods that the extensions take before any handler. */
  readonly controlMethods: ReadonlySet<string>;
  readonly extensions: ExtensionsFactory;
  /** Whether `params: null` is read as absent. */
  readonly readsNullParams: boolean;
  /** Whether messages of JSON-RPC 1.0 are understood. */
  readonly readsVersion1: boolean;
  /** Takes messages of another protocol, with the peer. If it is missing, they are malformed. */
  readonly onForeignMessage: AnyHandler | undefined;
  /** Whether calls and notifications are queued, on each new connection, until `Connection.release`. */
  readonly opensFirst: boolean;
}

/** Checks the options of a peer. Throws a `TypeError` that names the option, the rule and the value. */
export function checkConfig(options: AnyOptions = {}, factory: ExtensionsFactory, opensFirst = false): Config {
  checkKnown("options", options, PEER_OPTIONS);
  const { dialect: chosen, compat } = options;
  const dialect = chosen === undefined ? factory.defaultDialect : checkDialect(chosen);
  if (compat !== undefined && compat !== "1.0") throw expected("compat", '"1.0"', compat);
  const methods = table("methods", options.methods, checkHandler);
  const schemas = options.schemas === undefined ? undefined : table("schemas", options.schemas, checkSchema);
  const fallback = checkIfGiven("fallback", options.fallback);
  if (schemas !== undefined && fallback === undefined) {
    checkKnown("schemas", Object.fromEntries(schemas), Object.fromEntries(methods));
  }
  return {
    methods,
    schemas,
    fallback,
    around: checkIfGiven("around", options.around),
    wait: waitOf({ timeoutMs: options.timeoutMs }, dialect.timeoutMs ?? DEFAULT_TIMEOUT_MS),
    limits: peerLimits(options.limits),
    dialect,
    choseDialect: chosen !== undefined,
    controlMethods: factory.controlMethodsOf(dialect),
    extensions: factory,
    readsNullParams: chosen !== undefined && dialect.readsNullParams === true,
    readsVersion1: compat !== undefined,
    onForeignMessage: checkIfGiven("onForeignMessage", options.onForeignMessage),
    opensFirst,
  };
}

/** The functions of a dialect, which also names a `method` for each of the two. */
const DIALECT_FUNCTIONS = { cancel: ["params", "idOf"], progress: ["tokenIn", "withToken", "params", "read"] };

function checkDialect(dialect: Dialect): Dialect {
  const parts = (dialect ?? {}) as unknown as Record<string, Record<string, unknown> | undefined>;
  for (const [part, names] of Object.entries(DIALECT_FUNCTIONS)) {
    const given = parts[part] ?? {};
    if (typeof given["method"] !== "string") throw expected(`dialect.${part}.method`, "a string", given["method"]);
    for (const name of names) checkHandler(`dialect.${part}.${name}`, given[name]);
  }
  return dialect;
}

/** Throws a `TypeError` unless `value` is a function. */
export function checkHandler(name: string, value: unknown): (...args: any[]) => unknown {
  if (typeof value === "function") return value as (...args: any[]) => unknown;
  throw expected(name, "a function", value);
}

/** The same, of what may be left out. */
export function checkIfGiven<T>(name: string, value: T): T {
  if (value !== undefined) checkHandler(name, value);
  return value;
}

/** How long a call with these options waits. Throws a `TypeError` that names the option, the rule and the value. */
export function waitOf(options: CallOptions, defaultTimeoutMs: number): Wait {
  checkKnown("options", options, CALL_OPTIONS);
  const { timeoutMs = defaultTimeoutMs, maxTotalTimeoutMs = Infinity, signal, onProgress } = options;
  if (signal !== undefined && !isSignal(signal)) throw expected("signal", "an AbortSignal", signal);
  return {
    timeoutMs: checkTimeout("timeoutMs", timeoutMs),
    maxTotalTimeoutMs: checkTimeout("maxTotalTimeoutMs", maxTotalTimeoutMs),
    signal,
    onProgress: checkIfGiven("onProgress", onProgress),
    resetTimeoutOnProgress: options.resetTimeoutOnProgress === true,
  };
}

/** Whether `value` is an AbortSignal; by its shape: another realm's is no instance of this one's. */
export function isSignal(value: unknown): value is AbortSignal {
  const { aborted, addEventListener } = (value ?? {}) as Partial<AbortSignal>;
  return typeof aborted === "boolean" && typeof addEventListener === "function";
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
