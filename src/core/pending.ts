/**
 * The calls this side made and has no answer to yet: the one place where a call's promise settles. An answer, a timeout,
 * an abort and the end of the connection all come through `#take`, so whichever is first wins and the rest find nothing.
 */
import { clearDeadline, setDeadline, type Expiring } from "./deadlines.js";
import { ConnectionLostError, ProtocolError, RpcError, TimeoutError } from "./errors.js";
import { brokenResponse, type ErrorMessage, type Kind, type Unchecked } from "./message.js";

/** One call that waits for its answer. */
export class PendingCall implements Expiring {
  deadline = 0;
  /** False until the transport has taken it: until then, losing the connection means `"not-sent"`. */
  sent = false;
  batch: BatchCalls | undefined;
  onAbort: (() => void) | undefined;
  readonly calls: PendingCalls;
  readonly id: number;
  readonly method: string;
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly resolve: (result: unknown) => void;
  readonly reject: (reason: unknown) => void;

  constructor(
    calls: PendingCalls,
    id: number,
    method: string,
    wait: { timeoutMs: number; signal: AbortSignal | undefined },
    resolve: (result: unknown) => void,
    reject: (reason: unknown) => void,
  ) {
    this.calls = calls;
    this.id = id;
    this.method = method;
    this.timeoutMs = wait.timeoutMs;
    this.signal = wait.signal;
    this.resolve = resolve;
    this.reject = reject;
  }

  expire(): void {
    this.calls.fail(this.id, new TimeoutError(this.method, this.timeoutMs));
  }
}

/** The calls of one batch that still wait. Its reply is one array, so what that array leaves out will never come (section 6). */
export type BatchCalls = Set<PendingCall>;

/** All calls of one peer that wait for their answer. */
export class PendingCalls {
  readonly #calls = new Map<number, PendingCall>();
  readonly #batches = new Set<BatchCalls>();
  #lastId = 0;

  /** Ids are integers from 1: an id of 0 is taken for none by some (FIELD: MCP ignores its cancel), and they never repeat within a peer. */
  nextId(): number {
    return ++this.#lastId;
  }

  get size(): number {
    return this.#calls.size;
  }

  get openBatches(): number {
    return this.#batches.size;
  }

  /** Registers a call; it settles through this object alone. */
  add(call: PendingCall): void {
    this.#calls.set(call.id, call);
    setDeadline(call, call.timeoutMs);
    const { signal } = call;
    if (signal === undefined) return;
    call.onAbort = () => this.fail(call.id, signal.reason);
    signal.addEventListener("abort", call.onAbort);
  }

  /** Whether the call still waits. */
  has(id: number): boolean {
    return this.#calls.has(id);
  }

  /** Notes that these calls left in one batch. */
  openBatch(calls: BatchCalls): void {
    for (const call of calls) call.batch = calls;
    this.#batches.add(calls);
  }

  /** Settles the call that a response names. False when there is none: late, repeated or never made. */
  answer(kind: Kind, response: Unchecked): PendingCall | undefined {
    const call = this.#take(response.id);
    if (call === undefined) return undefined;
    if (kind === "broken") call.reject(brokenResponse(response));
    else if (response.result !== undefined) call.resolve(response.result);
    else call.reject(remoteError(call, response as ErrorMessage));
    return call;
  }

  /** A batch's reply has come: the calls it left out will not be answered. */
  endBatch(batch: BatchCalls, reply: unknown): void {
    for (const call of batch) {
      this.fail(call.id, new ProtocolError(`the batch's reply holds no answer to "${call.method}"`, reply));
    }
  }

  /**
   * A batch that is refused whole is answered by one error with id null. Every id sent from here can be read, so it is about
   * a batch (section 5); which one can only be known while a single batch waits.
   */
  refuseBatch(response: ErrorMessage): boolean {
    const [batch] = this.#batches;
    if (this.#batches.size !== 1) return false;
    for (const call of batch!) this.fail(call.id, remoteError(call, response));
    return true;
  }

  /** Rejects one call, if it still waits. */
  fail(id: number, reason: unknown): void {
    this.#take(id)?.reject(reason);
  }

  /** Rejects every call: the connection is over. */
  failAll(cause: unknown): void {
    for (const call of this.#calls.values()) {
      this.fail(call.id, new ConnectionLostError(call.method, call.sent ? "unknown" : "not-sent", cause));
    }
  }

  /** The only way out of the table. The id is a peer's word: a Map's key, so `"1"` is not `1`. */
  #take(id: unknown): PendingCall | undefined {
    const call = this.#calls.get(id as number);
    if (call === undefined) return undefined;
    this.#calls.delete(call.id);
    clearDeadline(call, call.timeoutMs);
    if (call.onAbort !== undefined) call.signal!.removeEventListener("abort", call.onAbort);
    if (call.batch?.delete(call) && call.batch.size === 0) this.#batches.delete(call.batch);
    return call;
  }
}

function remoteError({ method }: PendingCall, { error }: ErrorMessage): RpcError {
  const { code, message, data } = error;
  return Object.assign(new RpcError(code, message, data), { method });
}
