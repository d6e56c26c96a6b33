/**
 * The calls this side made and has no answer to yet: the one place where a call's promise settles. An answer, a timeout,
 * an abort and the end of the connection all come through `#take`, so whichever is first wins and the rest find nothing.
 */
import { CallTable } from "./call-table.js";
import { clearDeadline, setDeadline, type Expiring } from "./deadlines.js";
import type { Linked } from "./list.js";
import { ConnectionLostError, ProtocolError, receivedError, TimeoutError, type RpcError } from "./errors.js";
import type { Ticket } from "./transport.js";
import { brokenResponse, type ErrorMessage, type Kind, type Unchecked } from "./message.js";

/** How long a call waits, and for what besides its answer. */
export interface Wait {
  readonly timeoutMs: number;
  readonly maxTotalTimeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((value: unknown) => void) | undefined;
  readonly resetTimeoutOnProgress: boolean;
}

/** One call that waits for its answer. */
export class PendingCall implements Expiring, Ticket {
  deadline = 0;
  before: Linked | undefined;
  after: Linked | undefined;
  /** The next in the same place of its table. */
  beside: PendingCall | undefined;
  /** False until it leaves: until then, losing the connection means `"not-sent"`. */
  sent = false;
  batch: BatchCalls | undefined;
  onAbort: (() => void) | undefined;
  /** Told when the call is settled, however. */
  onSettled: (() => void) | undefined;
  /** The end of `maxTotalTimeoutMs`, where there is one. */
  total: Expiring | undefined;
  readonly calls: PendingCalls;
  readonly id: number;
  readonly method: string;
  readonly wait: Wait;
  readonly resolve: (result: unknown) => void;
  readonly reject: (reason: unknown) => void;

  constructor(
    calls: PendingCalls,
    id: number,
    method: string,
    wait: Wait,
    resolve: (result: unknown) => void,
    reject: (reason: unknown) => void,
  ) {
    this.calls = calls;
    this.id = id;
    this.method = method;
    this.wait = wait;
    this.resolve = resolve;
    this.reject = reject;
  }

  expire(): void {
    this.timedOut(this.wait.timeoutMs);
  }

  /** Its caller waits no more, after so long. */
  timedOut(afterMs: number): void {
    this.calls.giveUp(this, new TimeoutError(this.method, afterMs, this.isUnsent ? "not-sent" : "unknown"));
  }

  /** Whether it has not left, and can be kept from it: in a batch it leaves with the others. */
  get isUnsent(): boolean {
    return !this.sent && this.batch === undefined;
  }
}

/**
 * The calls of one batch that still wait, and what the batch was sent with. Its reply is one array, so what that array leaves
 * out will never come (section 6).
 */
export type BatchCalls = Set<PendingCall> & Ticket;

/** What pending calls need of their connection. */
interface CallLine {
  /** A call that was sent: its caller no longer waits. */
  givenUp(call: PendingCall, reason: unknown): void;
  /** One that was not: it is not to be sent any more. */
  withdraw(call: PendingCall): void;
}

/** All calls of one connection that wait for their answer. */
export class PendingCalls {
  readonly #calls = new CallTable();
  #batches: Set<BatchCalls> | undefined;
  #lastId = 0;
  readonly #line: CallLine;

  /** `before`: the calls of a connection that this one goes on from; ids never repeat within a peer. */
  constructor(line: CallLine, before?: PendingCalls) {
    this.#line = line;
    if (before !== undefined) this.#lastId = before.#lastId;
  }

  /** Ids are integers from 1: an id of 0 is taken for none by some (FIELD: MCP ignores its cancel), and they never repeat within a peer. */
  nextId(): number {
    return ++this.#lastId;
  }

  get size(): number {
    return this.#calls.size;
  }

  get openBatches(): number {
    return this.#batches?.size ?? 0;
  }

  /** Registers a call; it settles through this object alone. */
  add(call: PendingCall): void {
    this.#calls.add(call);
    const { timeoutMs, maxTotalTimeoutMs, signal } = call.wait;
    setDeadline(call, timeoutMs);
    if (maxTotalTimeoutMs !== Infinity) {
      const expire = (): void => call.timedOut(maxTotalTimeoutMs);
      call.total = { deadline: 0, expire };
      setDeadline(call.total, maxTotalTimeoutMs);
    }
    if (signal === undefined) return;
    call.onAbort = () => this.giveUp(call, signal.reason);
    signal.addEventListener("abort", call.onAbort);
  }

  /** The call of that id, while it waits. */
  get(id: unknown): PendingCall | undefined {
    return this.#calls.get(id);
  }

  /** Notes that these calls left in one batch. */
  openBatch(calls: BatchCalls): void {
    for (const call of calls) call.batch = calls;
    (this.#batches ??= new Set()).add(calls);
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
    if (this.openBatches !== 1) return false;
    const [batch] = this.#batches!;
    for (const call of batch!) this.fail(call.id, remoteError(call, response));
    return true;
  }

  /** Rejects one call, if it still waits. */
  fail(id: number, reason: unknown): void {
    this.#take(id)?.reject(reason);
  }

  /** Rejects a call whose caller no longer waits, if it still waits, and sees to it that the other side hears of it. */
  giveUp(call: PendingCall, reason: unknown): void {
    if (this.#take(call.id) === undefined) return;
    call.reject(reason);
    if (call.isUnsent) this.#line.withdraw(call);
    else this.#line.givenUp(call, reason);
  }

  /** Something was heard of a call: where it asks for that, it waits anew. */
  restart(call: PendingCall): void {
    const { resetTimeoutOnProgress, timeoutMs } = call.wait;
    if (resetTimeoutOnProgress) setDeadline(call, timeoutMs);
  }

  /** Rejects every call: the connection is over. */
  failAll(cause: unknown): void {
    for (const call of this.#calls.toArray()) {
      this.fail(call.id, new ConnectionLostError(call.method, call.sent ? "unknown" : "not-sent", cause));
      // A close lets go what waits: not what its caller was just told is not sent.
      if (!call.sent) this.#line.withdraw(call);
    }
  }

  /** The only way out of the table. The id is a peer's word. */
  #take(id: unknown): PendingCall | undefined {
    const call = this.get(id);
    if (call === undefined) return undefined;
    this.#calls.delete(call);
    const { wait, batch } = call;
    clearDeadline(call);
    if (call.total !== undefined) clearDeadline(call.total);
    if (call.onAbort !== undefined) wait.signal!.removeEventListener("abort", call.onAbort);
    if (batch?.delete(call) && batch.size === 0) this.#batches!.delete(batch);
    call.onSettled?.();
    return call;
  }
}

function remoteError({ method }: PendingCall, { error: { code, message, data } }: ErrorMessage): RpcError {
  return receivedError(method, code, message, data);
}
