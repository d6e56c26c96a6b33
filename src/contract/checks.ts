/** `contract`: the types of a contract, and the checks of its values at run time, from one table of schemas. */
import type { CheckedMethod, MethodMeta, Stream } from "./contract.js";
import { expected, ProtocolError, shownAt } from "../message/errors.js";
import { any, checkKnown, checkOptions, must, optional, tableOf } from "../message/options.js";
import { isStreamed, isThenable, synchronous } from "../base/promises.js";
import {
  describeIssue,
  isSchema,
  paramsCheck,
  plain,
  type ParamsCheck,
  type SchemaOptions,
  type SchemaIssue,
  type SchemaResult,
  type StandardSchema,
} from "./schema.js";

/** What one method of a contract takes and returns. Without `result` and `stream`, it may be notified. */
export interface ContractEntry {
  /** The params: an array or an object. The handler gets what the schema returns. Default: the method takes none. */
  readonly params?: StandardSchema<unknown, object | undefined> | undefined;
  /** The result as the handler returns it. Describe JSON: the calling side checks what arrives. */
  readonly result?: StandardSchema | undefined;
  /** The values of the stream that is the result, in place of `result`. Its schema must be synchronous. */
  readonly stream?: StandardSchema | undefined;
  /** The values that the handler reports as progress. Its schema must be synchronous. */
  readonly progress?: StandardSchema | undefined;
  /** What wrappers of calls get as `call.meta`, such as a role; for its type, see `AppTypes`. A page that imports the contract contains it. */
  readonly meta?: MethodMeta | undefined;
}

declare const methods: unique symbol;

/** A contract made by `contract()`, for the options `contract` and `remote`. `M` has the types of its methods. */
export interface SchemaContract<M = any> {
  /** Exists at compile time only. */
  readonly [methods]: M;
  /** @internal */
  readonly table: ContractTable;
  /** `fit` below. The core gets it from here, so that a page without contracts does not load this module. @internal */
  readonly fit: (options: FitOptions) => Fit;
}

/** The methods of a contract: `type Api = ContractOf<typeof api>`, for `Peer<Api>` and type arguments. */
export type ContractOf<C extends SchemaContract> = C extends SchemaContract<infer M> ? M : never;

/** The options by which a peer serves contract `L` and calls contract `R`, if `contract()` made them. */
export interface ContractOptions<L, R> {
  /**
   * The contract that this side serves. Checks the params of each call, as `schemas` does, so the two exclude each other. Throws a
   * `TypeError` if an entry has no handler and there is no `fallback`, and if a handler has no entry.
   */
  contract?: SchemaContract<L> | undefined;
  /** The contract that the other side serves. Without `check: "both"`, it gives only the types. */
  remote?: SchemaContract<R> | undefined;
  /**
   * `"both"` checks params and results. Results are also progress values and the values of streams: those of this side's
   * handlers are checked before they are sent, and those of its calls when they arrive. If a value to send does not fit, the caller
   * gets -32603, and `error` is emitted. If a result or a value of a stream that arrived does not fit, the call
   * or the stream rejects with `ProtocolError`. If a progress value that arrived does not fit, only `error` is emitted. A checked
   * value is passed on as it is: what the schema returns is not used. Default: only params are checked.
   * Without `contract` and `remote`, it has no effect.
   */
  check?: "both" | undefined;
}

/** A value that a contract can describe, besides params. */
export type CheckedPart = "result" | "progress" | "stream";

/** Returns `value`, a promise of which may also be the result. Throws or rejects if it does not fit the contract. */
export type ValueCheck = (part: CheckedPart, method: string, value: unknown) => unknown;

/** The checks of a peer's values, besides params. */
export interface ValueChecks {
  /** Checks a value before it is sent. */
  readonly checkSent: ValueCheck;
  /** Checks a value that arrived. */
  readonly checkReceived: ValueCheck;
}

/** One entry after checking. */
type Entry = Record<"params" | CheckedPart, StandardSchema | undefined> & { meta: MethodMeta | undefined };

/** The entries of a contract, by method. */
type ContractTable = ReadonlyMap<string, Entry>;

/** `around` as the core sees it. `Call` of `peer.ts` is the type of `call`. */
export type AnyAround = (call: any, next: () => Promise<unknown>) => unknown;

/** What a peer checks. */
export interface Fit {
  readonly checkParams?: ParamsCheck | undefined;
  readonly checks?: ValueChecks | undefined;
  /** The `around` of the options, whose calls have the `meta` of their methods. */
  readonly around: AnyAround | undefined;
}

/** The options of a peer that concern its contracts. */
interface FitOptions extends SchemaOptions {
  readonly contract: SchemaContract | undefined;
  readonly remote: SchemaContract | undefined;
  readonly check: "both" | undefined;
  readonly around: AnyAround | undefined;
}

type Types<S> = S extends { readonly "~standard": { readonly types?: infer T } } ? NonNullable<T> : never;
type Validated<S> = S extends StandardSchema<infer O> ? O : never;
type InputOf<S> = Types<S> extends { readonly input: infer I } ? I : Validated<S>;
type OutputOf<S> = Types<S> extends { readonly output: infer O } ? O : Validated<S>;

type EntryArgs<E> = E extends { readonly params: infer S extends StandardSchema }
  ? undefined extends InputOf<S>
    ? [params?: InputOf<S>]
    : [params: InputOf<S>]
  : [];
type EntryParams<E> = E extends { readonly params: infer S extends StandardSchema } ? OutputOf<S> : undefined;
type EntryResult<E> = E extends { readonly stream: infer S extends StandardSchema }
  ? Stream<InputOf<S>>
  : E extends { readonly result: infer S extends StandardSchema }
    ? InputOf<S>
    : void;
type EntryProgress<E> = E extends { readonly progress: infer S extends StandardSchema } ? InputOf<S> : unknown;

/** The methods that the entries `E` describe. */
export type MethodsOf<E> = {
  [K in keyof E]: CheckedMethod<EntryArgs<E[K]>, EntryParams<E[K]>, EntryResult<E[K]>, EntryProgress<E[K]>>;
};

type Only<Known, T> = { [P in Exclude<keyof T, keyof Known>]: never };

/** A misspelt part of an entry or of its `meta` would be without effect. */
type Strict<E> = {
  [K in keyof E]: Only<ContractEntry, E[K]> &
    (E[K] extends { readonly meta: infer M } ? { readonly meta: Only<MethodMeta, M> } : unknown);
};

/** Made in a function: a call at the top of a module would stay in a page that does not use it. */
function checkEntry(entry: unknown, name: string): Entry {
  const aSchema = optional(must<StandardSchema>("a Standard Schema", isSchema));
  const table = { params: aSchema, result: aSchema, stream: aSchema, progress: aSchema, meta: any };
  const parts = checkOptions(name, entry as object, table);
  if (parts.result === undefined || parts.stream === undefined) return parts;
  throw new TypeError(`\`${name}\` must not have both \`result\` and \`stream\``);
}

/** How errors name each part. */
const NAMES = { result: "The result", progress: "A progress value", stream: "A value of the stream" };

/**
 * Makes a contract of Standard Schemas (zod, valibot, arktype), for both sides: one passes it as `contract`, the other as
 * `remote`. The caller's params have the type of the schema's input, and the handler's that of its output. Throws a `TypeError`
 * for an entry that is not of schemas and `meta`.
 *
 * ```ts
 * const api = contract({ add: { params: z.tuple([z.number(), z.number()]), result: z.number() } });
 * const server = await serve({ port, contract: api, methods: { add: ([a, b]) => a + b } });
 * const peer = await connect(server.url, { remote: api });
 * ```
 */
export function contract<const E extends Readonly<Record<string, ContractEntry>>>(
  entries: E & Strict<E>,
): SchemaContract<MethodsOf<E>> {
  const table = tableOf(entries, "contract", checkEntry);
  return { table, fit } as unknown as SchemaContract<MethodsOf<E>>;
}

/** Returns what a peer with these options checks. Throws a `TypeError` if the options do not fit the contract. */
function fit(options: FitOptions): Fit {
  const { contract: own, remote, check, around } = options;
  return {
    checkParams: own && checkOfParams(own.table, options),
    checks: check && { checkSent: checkOf(own?.table, false), checkReceived: checkOf(remote?.table, true) },
    around:
      around &&
      ((call, next) => {
        // Only an incoming call has a context.
        call.meta = (call.context ? own : remote)?.table.get(call.method)?.meta;
        return around(call, next);
      }),
  };
}

/** Returns the check of the params of the methods that are served. Throws a `TypeError` if the options do not fit the contract. */
function checkOfParams(own: ContractTable, { methods: handlers, schemas, fallback }: FitOptions): ParamsCheck {
  if (schemas !== undefined) throw new TypeError("`schemas` must not be given beside `contract`");
  checkKnown("methods", Object.fromEntries(handlers), Object.fromEntries(own));
  for (const name of fallback === undefined ? own.keys() : []) {
    if (!handlers.has(name)) throw expected(`methods.${name}`, "a function, as `contract` has that name", undefined);
  }
  return paramsCheck(new Map(Array.from(own, ([name, { params = NO_PARAMS }]) => [name, params])));
}

/** Returns the check of the values that are sent, or that are received. */
function checkOf(table: ContractTable | undefined, isReceived: boolean): ValueCheck {
  return (part, method, value) => {
    const entry = table?.get(method);
    const schema = entry?.[part] ?? (part === "result" && !isReceived && entry?.stream ? STREAM : undefined);
    if (schema === undefined) return value;
    const checkValue = (given: unknown): unknown => {
      // `undefined` arrives as null.
      const candidates = isReceived && given === null ? [null, undefined] : [given];
      return validateAny(schema, given, candidates, (issue) => {
        const what = `${NAMES[part]} of "${method}" does not fit its schema`;
        const message = describeIssue(what, issue && plain(issue));
        return isReceived ? shownAt(new ProtocolError(message, given), method, checkValue) : new TypeError(message);
      });
    };
    if (part === "result") return isThenable(value) ? Promise.resolve(value).then(checkValue) : checkValue(value);
    return synchronous(checkValue(value), `The schema of \`${part}\` of "${method}"`);
  };
}

/**
 * Returns `value` if the schema accepts one of `candidates`, or a promise of it if the schema is asynchronous. Otherwise throws
 * or rejects with the failure for the first issue of the first candidate.
 */
function validateAny(
  schema: StandardSchema,
  value: unknown,
  [candidate, ...others]: readonly unknown[],
  failureFor: (issue: SchemaIssue | undefined) => unknown,
): unknown {
  const readResult = ({ issues }: SchemaResult<unknown>): unknown => {
    if (issues === undefined) return value;
    if (others.length === 0) throw failureFor(issues[0]);
    return validateAny(schema, value, others, () => failureFor(issues[0]));
  };
  const result = schema["~standard"].validate(candidate);
  return isThenable(result) ? Promise.resolve(result).then(readResult) : readResult(result);
}

/** The params of a method that takes none: its handler gets `undefined`, whatever arrives. */
const NO_PARAMS: StandardSchema = { "~standard": { validate: () => ({ value: undefined }) } };

/** A result that is a stream: what is served as one, or what `peer.offer` returns. */
const STREAM: StandardSchema = {
  "~standard": {
    validate(value) {
      const isStream = isStreamed(value) || typeof (value as { toJSON?: unknown } | null)?.toJSON === "function";
      return isStream ? { value } : { issues: [{ message: "expected an async iterable" }] };
    },
  },
};
