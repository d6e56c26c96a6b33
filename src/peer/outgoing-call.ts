/** One call that this side makes: its options, what is known of it while it is pending, and the table of those that are. */
import type { CallOptions } from "../contract/contract.js";
import type { Expiring } from "../base/deadlines.js";
import { failed, TimeoutError } from "../message/errors.js";
import type { Linked } from "../base/list.js";
import { anyFunction, anySignal, checkOptions, oneOf, optional, positive } from "../message/options.js";
import type { SendHandle } from "../message/transport.js";

export const anyRetry = optional(oneOf("not-sent", "always", false));

/** The options of one call. */
const CALL_OPTIONS = {
  timeoutMs: optional(positive),
  maxTotalTimeoutMs: optional(positive, Infinity),
  signal: optional(anySignal),
  onProgress: optional<(value: unknown) => void>(anyFunction),
  resetTimeoutOnProgress: (value: unknown) => value === true,
  retry: anyRetry,
};

/** The options of a call, with the defaults. */
export interface CallSettings {
  readonly timeoutMs: number;
  readonly maxTotalTimeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((value: unknown) => void) | undefined;
  readonly resetTimeoutOnProgress: boolean;
  /** Whether the call is made again on the next connection. */
  readonly retry: NonNullable<CallOptions["retry"]>;
}

/** Checks the options of a call. Throws a `TypeError` that names the option, the rule and the value. */
export function settingsOf(options: CallOptions, defaults: Pick<CallSettings, "timeoutMs" | "retry">): CallSettings {
  const settings = checkOptions("options", options, CALL_OPTIONS);
  settings.timeoutMs ??= defaults.timeoutMs;
  settings.retry ??= defaults.retry;
  return settings as CallSettings;
}

/** One pending call. It is the send handle of its message. */
export class OutgoingCall implements Expiring, SendHandle {
  deadline = 0;
  before: Linked | undefined = undefined;
  after: Linked | undefined = undefined;
  /** The next call in the same place of its `CallTable`. Only the table sets it. */
  nextInPlace: OutgoingCall | undefined = undefined;
  /** As `SendHandle.sent`, on the present connection. `mayHaveRun` counts earlier connections too. */
  sent = false;
  /** The send handle of its message: the call itself, unless the message holds several calls. */
  handle: SendHandle = this;
  /** Whether the other side must learn that the call is given up, whatever else it understands. A feature sets it. */
  mustCancel = false;
  /** The params, if the call may be made again on the next connection, and whether it was sent on an earlier one. */
  again: { readonly params: unknown; readonly wasSent?: true } | undefined = undefined;
  /** The calls of the connection that it is made on. `giveUp` rejects it if its caller waits no longer, and `fail` rejects it by its id. */
  declare calls: { giveUp(call: OutgoingCall, reason: unknown): void; fail(id: number, reason: unknown): void };
  declare readonly id: number;
  declare readonly method: string;
  declare readonly settings: CallSettings;
  declare readonly resolve: (result: unknown) => void;
  /** Called when the call is settled, however. */
  onSettled: (() => void) | undefined = undefined;

  constructor(
    calls: OutgoingCall["calls"],
    id: number,
    method: string,
    settings: CallSettings,
    resolve: (result: unknown) => void,
  ) {
    this.calls = calls;
    this.id = id;
    this.method = method;
    this.settings = settings;
    this.resolve = resolve;
  }

  get hasRetry(): boolean {
    return this.again !== undefined && this.settings.retry !== false;
  }

  /** Whether a loss of the connection leaves open whether it has run. */
  get mayHaveRun(): boolean {
    return this.sent || this.again?.wasSent === true;
  }

  /** Whether the message is queued, and has no other call. A batch in the queue is sent whole, so its calls may still run. */
  get canCancelMessage(): boolean {
    return !this.sent && this.handle === this;
  }

  /** Resolves the promise with one that rejects later, whose stack shows the caller: see `failed`. */
  reject(reason: unknown): void {
    this.resolve(failed(reason, this.method));
  }

  expire(): void {
    this.timeOut(this.settings.timeoutMs);
  }

  /** Rejects the call: its caller waits no longer than `afterMs`. */
  timeOut(afterMs: number): void {
    this.calls.giveUp(
      this,
      new TimeoutError(this.method, afterMs, this.canCancelMessage && !this.mayHaveRun ? "not-sent" : "unknown"),
    );
  }

  /** Also calls `listener` when the call is settled. */
  whenSettled(listener: () => void): void {
    const before = this.onSettled;
    this.onSettled = () => {
      before?.();
      listener();
    };
  }
}

/** The send handle of a message with several calls. */
export interface SharedHandle extends SendHandle {
  /** The pending calls. */
  readonly calls: Iterable<OutgoingCall>;
}

/** Returns the pending calls of a message. */
export function callsOf(handle: SendHandle | undefined): readonly OutgoingCall[] {
  return handle instanceof OutgoingCall ? [handle] : [...((handle as Partial<SharedHandle> | undefined)?.calls ?? [])];
}

/** The send handle of a cancel that is sent only if the other side understands it. */
export class OptionalCancel implements SendHandle {
  sent = false;
}

const FEWEST_PLACES = 16;
/** A table that a burst made larger is not kept. */
const MOST_KEPT = 256;

/**
 * Pending calls by id: a hash table with chaining. Ids count up, so few calls share a place. It is reallocated only if more calls are
 * pending than it has places, and after a burst. With a Map, which is reallocated as entries come and go, a call took 47 % more CPU.
 */
export class CallTable {
  size = 0;
  #places: (OutgoingCall | undefined)[] = places(FEWEST_PLACES);

  /** Returns the call of an id, which may be any value: `"1"` is not 1. */
  get(id: unknown): OutgoingCall | undefined {
    if (typeof id !== "number") return undefined;
    let call = this.#places[id & (this.#places.length - 1)];
    while (call !== undefined && call.id !== id) call = call.nextInPlace;
    return call;
  }

  /** Adds a call that is in no table. */
  add(call: OutgoingCall): void {
    if (this.size === this.#places.length) this.#grow();
    const place = call.id & (this.#places.length - 1);
    call.nextInPlace = this.#places[place];
    this.#places[place] = call;
    this.size++;
  }

  /** Removes the call of an id, which may be any value. Returns the call; `undefined` if there is none. */
  remove(id: unknown): OutgoingCall | undefined {
    if (typeof id !== "number") return undefined;
    const place = id & (this.#places.length - 1);
    let previous: OutgoingCall | undefined;
    let call = this.#places[place];
    while (call !== undefined && call.id !== id) {
      previous = call;
      call = call.nextInPlace;
    }
    if (call === undefined) return undefined;
    if (previous === undefined) this.#places[place] = call.nextInPlace;
    else previous.nextInPlace = call.nextInPlace;
    call.nextInPlace = undefined;
    if (--this.size === 0 && this.#places.length > MOST_KEPT) this.#places = places(FEWEST_PLACES);
    return call;
  }

  /** Returns all calls, in the order they were made. */
  toArray(): OutgoingCall[] {
    const calls: OutgoingCall[] = [];
    for (const first of this.#places)
      for (let call = first; call !== undefined; call = call.nextInPlace) calls.push(call);
    // oxlint-disable-next-line unicorn/no-array-sort -- made here, and `toSorted` is younger than some runtimes.
    return calls.sort((a, b) => a.id - b.id);
  }

  #grow(): void {
    const calls = this.toArray();
    this.#places = places(2 * this.size);
    this.size = 0;
    for (const call of calls) this.add(call);
  }
}

function places(length: number): undefined[] {
  return Array.from({ length }, () => undefined);
}
