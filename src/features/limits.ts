/** `limits`: a wrapper that bounds the incoming calls of each method: their rates, how many run at once, and how long a handler takes. */
import { clearDeadline, setDeadline } from "../base/deadlines.js";
import { onAbort } from "../base/tell.js";
import type { AnyMethods, CallRate, MethodLimits, MethodMeta } from "../contract/contract.js";
import * as ErrorCode from "../message/codes.js";
import { isAbort, RpcError } from "../message/errors.js";
import type { Id } from "../message/message.js";
import { checkOptions, finite, must, optional, positive, tableOf, type Checked } from "../message/options.js";
import type { Connection } from "../peer/connection.js";
import { IncomingCall } from "../peer/incoming-call.js";
import { callOf, discard } from "../peer/incoming-calls.js";
import type { Context } from "../peer/peer.js";

/** Beyond it, the principal that called longest ago is forgotten, and counts from 0 again. */
const MOST_PRINCIPALS = 10_000;
/** When a call may be tried again that was refused by `maxRunning`: it is not known when a handler ends. */
const RETRY_MS = 1_000;
/** A shorter wait is a rounding error of a sum of times. */
const ROUNDING_MS = 0.001;

const aCount = must<number>("a whole number from 1", (value) => Number.isSafeInteger(value) && value > 0);
const RATE = { calls: aCount, perMs: finite };
const aRate = (value: unknown, name: string): CallRate => checkOptions(name, value as object, RATE);
const LIMITS = {
  peerRate: optional(aRate),
  principalRate: optional(aRate),
  maxRunning: optional(aCount, Infinity),
  timeoutMs: optional(positive, Infinity),
};

/** An incoming or outgoing call, as every `around` gets it. */
interface AnyCall {
  readonly direction: "incoming" | "outgoing";
  readonly method: string;
  readonly id: Id | undefined;
  readonly meta: MethodMeta | undefined;
  readonly context: object | undefined;
}

type Next = () => Promise<unknown>;

/**
 * Returns an `around` that applies the limits of methods to incoming calls. The limits of a method are in `table`, or else in the
 * `meta.limits` of its entry in the contract, which are read at its first call. A method without limits is not limited. Counts belong to the
 * returned function, so servers with different contracts need one each.
 *
 * A request beyond a rate or `maxRunning` does not run, and is answered with -32012 and `data: { retryMs }`. A notification beyond
 * them is dropped. `stats()` counts both, in `refusedRate` or `refusedBusy`. What is refused counts towards no limit. Each member of
 * a batch is a call. A handler that takes longer than `timeoutMs` is answered with -32013. Then its `context.signal` aborts, what it
 * returns later is dropped, and `error` is emitted.
 *
 * Throws a `TypeError` for bad limits. Bad `meta.limits`, and a `principalRate` for a peer without a principal, fail each call with
 * -32603, and are emitted as `error`.
 */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- a caller gives the contract that has the methods.
export function limits<T = AnyMethods>(
  table: { readonly [K in keyof T]?: MethodLimits | undefined } = {},
): (call: AnyCall, next: Next) => Promise<unknown> | undefined {
  const all = tableOf(table, "limits", makeLimiter);
  return (call, next) => {
    if (call.direction === "outgoing") return next();
    const { method, meta } = call;
    let limiter = all.get(method);
    if (limiter === undefined && meta?.limits !== undefined)
      all.set(method, (limiter = makeLimiter(meta.limits, `contract.${method}.meta.limits`)));
    return limiter === undefined ? next() : limiter.run(call, next);
  };
}

function makeLimiter(given: unknown, name: string): Limiter {
  return new Limiter(checkOptions(name, given as object, LIMITS));
}

/** Applies the limits of one method. */
class Limiter {
  readonly #buckets: Buckets[] = [];
  readonly #maxRunning: number;
  readonly #timeoutMs: number;
  /** How many handlers run. */
  #running = 0;

  constructor({ peerRate, principalRate, maxRunning, timeoutMs }: Checked<typeof LIMITS>) {
    if (peerRate)
      this.#buckets.push(new Buckets(peerRate, new WeakMap(), ({ incoming }) => incoming.counter.connection.peer));
    if (principalRate) this.#buckets.push(new Buckets(principalRate, new PrincipalTimes(), principalOf));
    this.#maxRunning = maxRunning;
    this.#timeoutMs = timeoutMs;
  }

  run(call: AnyCall, next: Next): Promise<unknown> | undefined {
    const { connection } = callOf(call.context)!;
    const now = performance.now();
    const tokens = this.#buckets.map((buckets) => buckets.token(connection, now));
    const waitMs = Math.max(0, ...tokens.map((token) => token.waitMs));
    if (waitMs > ROUNDING_MS) return refuse(call, connection, "refusedRate", waitMs);
    if (this.#running >= this.#maxRunning) return refuse(call, connection, "refusedBusy", RETRY_MS);
    for (const { take } of tokens) take();
    const run: Next = () => {
      this.#running++;
      const ending = next();
      const ended = (): void => void this.#running--;
      ending.then(ended, ended);
      return ending;
    };
    return this.#timeoutMs === Infinity ? run() : runInTime(call, run, this.#timeoutMs);
  }
}

/** Refuses a call. A notification has no answer, and an event for each would let its sender flood the log. */
function refuse(
  { id }: AnyCall,
  { counts }: Connection,
  count: "refusedRate" | "refusedBusy",
  waitMs: number,
): undefined {
  counts[count]++;
  if (id === undefined) return;
  throw new RpcError(ErrorCode.TooManyCalls, "Too many calls", { retryMs: Math.ceil(waitMs) });
}

/** When the bucket of each key is full again: the one number that a token bucket needs. A bucket that is full is not kept. */
interface Times {
  get(key: unknown): number | undefined;
  set(key: unknown, fullAt: number): unknown;
}

/** A token bucket for each key. */
class Buckets {
  readonly #rate: CallRate;
  readonly #times: Times;
  readonly #keyOf: (connection: Connection) => unknown;

  constructor(rate: CallRate, times: Times, keyOf: (connection: Connection) => unknown) {
    this.#rate = rate;
    this.#times = times;
    this.#keyOf = keyOf;
  }

  /** Returns how long a call must wait for a token, which is at most 0 if there is one, and the function that takes it. */
  token(connection: Connection, now: number): { waitMs: number; take: () => void } {
    const { calls, perMs } = this.#rate;
    const key = this.#keyOf(connection);
    const fullAt = Math.max(now, this.#times.get(key) ?? 0) + perMs / calls;
    return { waitMs: fullAt - now - perMs, take: () => void this.#times.set(key, fullAt) };
  }
}

/** The times of principals. The one that called last is at the end. */
class PrincipalTimes extends Map<unknown, number> {
  override set(key: unknown, fullAt: number): this {
    this.delete(key);
    super.set(key, fullAt);
    const now = performance.now();
    for (const [first, firstFullAt] of this) {
      if (firstFullAt > now && this.size <= MOST_PRINCIPALS) break;
      this.delete(first);
    }
    return this;
  }
}

/** Fails if the peer has no principal: without a key, its calls would have no limit. */
function principalOf({ config, peer }: Connection): string {
  const name = config.hooks.principalOf?.(peer);
  if (name === undefined)
    throw new TypeError("`principalRate` requires a peer with a principal: see the option `principal` of `serve`");
  return name;
}

/**
 * Runs a handler whose signal aborts after `timeoutMs` too. Promises its result, or rejects with -32013 then. The signal of the core
 * does not abort: it says that the caller no longer waits.
 */
function runInTime({ method, context }: AnyCall, run: Next, timeoutMs: number): Promise<unknown> {
  const { call, connection } = callOf(context)!;
  const { signal } = context as Context;
  if (signal.aborted) return run();
  const stop = new AbortController();
  // Another wrapper of the list may do so too.
  Object.defineProperty(context, "signal", { value: stop.signal, configurable: true });
  return new Promise((resolve, reject) => {
    const { incoming } = connection;
    let cause: DOMException | undefined;
    const deadline = {
      deadline: 0,
      expire() {
        cause = new DOMException(`"${method}" took longer than ${timeoutMs} ms`, "TimeoutError");
        stop.abort(cause);
        reject(new RpcError(ErrorCode.HandlerTimeout, "Handler timed out", { timeoutMs }, { cause }));
      },
    };
    setDeadline(deadline, timeoutMs);
    onAbort(signal, () => {
      clearDeadline(deadline);
      stop.abort(signal.reason);
    });
    run().then(
      (result) => {
        clearDeadline(deadline);
        // As the result of a notification: the call may not be answered yet, because another wrapper waits.
        if (cause !== undefined) discard(incoming, new IncomingCall(undefined, method, undefined, incoming), result);
        resolve(result);
      },
      (error: unknown) => {
        clearDeadline(deadline);
        if (cause !== undefined && !isAbort(error, cause)) incoming.reportFailure(call.id, method, error);
        reject(error);
      },
    );
  });
}
