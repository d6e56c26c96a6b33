/**
 * The calls that this side makes: encodes them, registers them and sends them or queues them. A registered call settles only through
 * `#take`, at a response, a timeout, an abort or the end of the connection: the first takes it, and the others find nothing. A call that
 * cannot be encoded is not registered, and rejects in `request`.
 */
import { encodeNotification, encodeRequest, exceeds, sentForm, utf8Bytes, type MessageText } from "../message/codec.js";
import type { AnyAround } from "../contract/checks.js";
import type { Connection, End } from "./connection.js";
import type { CallOptions, LiveOptions } from "../contract/contract.js";
import { isExempt } from "./dialect.js";
import { clearDeadline, setDeadline } from "../base/deadlines.js";
import { ConnectionLostError, failed, receivedError, RpcError, TooLargeError } from "../message/errors.js";
import type { Slot } from "./incoming-call.js";
import { brokenResponse, isLoneId, type ErrorMessage, type Kind, type Unchecked } from "../message/message.js";
import type { Sink } from "./flow.js";
import { callsOf, CallTable, OptionalCancel, OutgoingCall, settingsOf } from "./outgoing-call.js";
import { observed, promised } from "../base/promises.js";
import { onAbort } from "../base/tell.js";
import type { SendHandle } from "../message/transport.js";

/** The outgoing calls of one connection. */
export class OutgoingCalls {
  /** Why the other side can be answered, but not called: its message came by HTTP POST. `undefined` if it can be called. */
  whyNoCalls: Pick<End, "reason"> | undefined = undefined;
  readonly #connection: Connection;
  /** Made with the first call: most peers of a server never call. */
  #table: CallTable | undefined;
  #lastId = 0;

  /** `previous`: the calls of the connection that this one follows. */
  constructor(connection: Connection, previous?: OutgoingCalls) {
    this.#connection = connection;
    // Ids never repeat within a peer.
    if (previous !== undefined) this.#lastId = previous.#lastId;
  }

  /** Why no call can be made; `undefined` while calls can be made. */
  get ended(): Pick<End, "reason"> | undefined {
    return this.whyNoCalls ?? this.#connection.ended;
  }

  /** Takes the messages of these calls. */
  get sink(): Sink {
    return this.#connection.flow.sink;
  }

  /** How many calls are pending. */
  get size(): number {
    return this.#table?.size ?? 0;
  }

  /**
   * Calls a method, and promises its result. With `sink`, the call is sent through it. With `id`, which must be a new one, the
   * call bypasses `around`. Never throws.
   */
  request(method: string, params: unknown, options?: CallOptions, sink?: Sink, id?: number): Promise<unknown> {
    const connection = this.#connection;
    const { around, settings: defaults, checks } = connection.config;
    if (around !== undefined && id === undefined) return this.#requestAround(around, method, params, options, sink);
    let resolve!: OutgoingCall["resolve"];
    const settled = new Promise((settle) => (resolve = settle));
    // A response resolves `settled`. The caller gets `result`, which also waits for the check by the schema.
    const result = (checks?.checkReceived("result", method, settled) as Promise<unknown> | undefined) ?? settled;
    let call: OutgoingCall | undefined;
    let text: MessageText;
    try {
      const settings = options === undefined ? defaults : settingsOf(options, defaults);
      // Ids are integers from 1: some implementations take an id of 0 for none.
      call = new OutgoingCall(this, id ?? ++this.#lastId, method, settings, resolve);
      if (settings.signal?.aborted) throw settings.signal.reason;
      // Until a peer is open for the first time, its calls are made again without the option too.
      const retry = options?.retry ?? (connection.wasNeverOpen || defaults.retry);
      if (retry && sink === undefined) call.again = { params };
      text = this.#encode(call, params);
      if (this.ended !== undefined) throw new ConnectionLostError(method, "not-sent", this.ended.reason);
    } catch (error) {
      call?.onSettled?.();
      resolve(failed(error, method));
      return result;
    }
    // Registered before it is sent: an in-memory peer may answer inside send().
    (this.#table ??= new CallTable()).add(call);
    const { timeoutMs, signal, maxTotalTimeoutMs } = call.settings;
    setDeadline(call, timeoutMs);
    if (signal !== undefined || maxTotalTimeoutMs !== Infinity) this.#watch(call);
    connection.counts.requestsSent++;
    if (!(sink ?? connection.flow.sink).send(text, call)) this.refused(text, call);
    return result;
  }

  #encode(call: OutgoingCall, params: unknown): MessageText {
    const connection = this.#connection;
    const given = call.settings.onProgress === undefined ? params : connection.parts.get("progress").ask(call, params);
    return connection.madeParts?.first("encode", call, given) ?? encodeRequest(call.id, call.method, given as object);
  }

  #requestAround(
    around: AnyAround,
    method: string,
    params: unknown,
    options: CallOptions | undefined,
    sink: Sink | undefined,
  ): Promise<unknown> {
    let unused: number | undefined = ++this.#lastId;
    const { peer } = this.#connection;
    const record = { direction: "outgoing", peer, method, id: unused, params, context: undefined };
    const next = (): Promise<unknown> => {
      // A second `next()` is another call: under one id, only one of them could settle.
      const id = unused ?? ++this.#lastId;
      unused = undefined;
      return observed(this.request(method, record.params, options, sink, id));
    };
    // `observed` hides the awaiting functions from the stack of V8, so `failed` captures it again.
    return promised(() => around(record, next)).catch((error) => failed(error, method));
  }

  /** Calls a method past `around`, and by default past the opening queue. */
  requestDirectly(
    method: string,
    params: unknown,
    options: CallOptions | undefined,
    sink: Sink = this.#connection.flow,
  ): Promise<unknown> {
    return this.request(method, params, options, sink, ++this.#lastId);
  }

  /** Watches the signal and the total timeout of a call. */
  #watch(call: OutgoingCall): void {
    const { maxTotalTimeoutMs, signal } = call.settings;
    if (maxTotalTimeoutMs !== Infinity) {
      const total = { deadline: 0, expire: () => call.timeOut(maxTotalTimeoutMs) };
      setDeadline(total, maxTotalTimeoutMs);
      call.whenSettled(() => clearDeadline(total));
    }
    if (signal === undefined) return;
    call.whenSettled(onAbort(signal, () => call.calls.giveUp(call, signal.reason)));
  }

  /** Notifies. Returns whether the message was taken. Throws a `TypeError` for bad options, and for a message that cannot be encoded. */
  notify(method: string, params: unknown, sink?: Sink, options?: LiveOptions): boolean {
    // Encoded also if `around` may change it: what cannot be encoded is the mistake of the caller, and thrown at the caller.
    const text = encodeNotification(method, params as object);
    const { counts, config } = this.#connection;
    const live = options && this.#connection.parts.get("live").check(method, options);
    if (live?.maySend() === false) return false;
    counts.notificationsSent++;
    if (config.around === undefined) return this.#deliverNotification(text, sink, live?.handle);
    return this.#notifyAround(config.around, method, params, sink, live);
  }

  #notifyAround(
    around: AnyAround,
    method: string,
    params: unknown,
    sink: Sink | undefined,
    live: { handle: SendHandle | undefined; maySend(): boolean } | undefined,
  ): boolean {
    const { peer } = this.#connection;
    const record = { direction: "outgoing", peer, method, id: undefined, params, context: undefined };
    let isTaken = this.ended === undefined;
    const deliver = (): void => {
      // The peer may have become slow while `around` waited. Encoded again: `around` may have changed the params in place.
      isTaken =
        live?.maySend() !== false &&
        this.#deliverNotification(encodeNotification(method, record.params as object), sink, live?.handle);
    };
    promised(() => around(record, () => promised(deliver))).catch((error: unknown) =>
      this.#connection.report(error, { method, id: undefined }),
    );
    return isTaken;
  }

  #deliverNotification(text: MessageText, sink: Sink | undefined, handle: SendHandle | undefined): boolean {
    const isTaken = (sink ?? this.sink).send(text, handle);
    if (!isTaken) this.refused(text);
    return isTaken;
  }

  /**
   * Handles a message that the link has refused. A call with `retry` stays pending for the next connection, if the message is not too
   * long and few are kept. Other calls reject. A notification that is too long is reported, and not thrown: the other side chooses
   * that length, and must not make a loop over many peers fail.
   */
  refused(text: MessageText, handle?: SendHandle): void {
    const connection = this.#connection;
    const { maxMessageBytes = Infinity, takesBytes } = connection.transport;
    // The other side limits the form that it gets: base64 is a third longer than bytes.
    const sent = sentForm(text, takesBytes);
    const bytes = this.ended === undefined && exceeds(sent, maxMessageBytes) ? utf8Bytes(sent) : undefined;
    const calls = callsOf(handle);
    if (calls.length === 0) {
      if (bytes !== undefined) {
        const method = methodOf(text);
        connection.report(new TooLargeError(method, bytes, maxMessageBytes), { method, id: undefined });
      }
      return;
    }
    // There is no room: the opening queue is full, or the connection is about to end.
    const mayWait = handle?.hasRetry === true && bytes === undefined && this.ended === undefined;
    if (mayWait && connection.flow.keepRefused(text)) return;
    const cause =
      this.ended?.reason ?? new Error(connection.flow.isSuspended ? "the queue is full" : "the connection is closing");
    for (const call of calls) {
      const { id, method, mayHaveRun } = call;
      const error =
        bytes === undefined
          ? new ConnectionLostError(method, mayHaveRun ? "unknown" : "not-sent", cause)
          : new TooLargeError(method, bytes, maxMessageBytes);
      // The flow has calls of the parts of the connection too.
      call.calls.fail(id, error);
    }
  }

  /** Moves a call of the previous connection to this one, and sends it again. Returns false if it cannot be encoded again. */
  #adopt(call: OutgoingCall, previous: OutgoingCalls): boolean {
    let text: MessageText;
    try {
      text = this.#encode(call, call.again!.params);
    } catch {
      return false;
    }
    // A `toJSON` may have closed the peer, or aborted the call. A call is in one table at a time.
    if (this.ended !== undefined || previous.#table!.remove(call.id) === undefined) return false;
    call.calls = this;
    if (call.sent) call.again = { ...call.again!, wasSent: true };
    call.sent = false;
    (this.#table ??= new CallTable()).add(call);
    if (!this.sink.send(text, call)) this.refused(text, call);
    return true;
  }

  /** Returns the pending call of that id. */
  get(id: unknown): OutgoingCall | undefined {
    return this.#table?.get(id);
  }

  /**
   * Returns true if a broken response is treated as a response. An object with only an id is one if a call has that id. Otherwise it is a
   * request without a method, and is answered, because its sender expects a response.
   */
  isMeantAsResponse(value: Unchecked): boolean {
    return !isLoneId(value) || this.get(value.id) !== undefined;
  }

  /**
   * Settles the call that a response names by its id. `request` has attached the check of the result by its schema. A response is never
   * answered, because two peers would loop. `slot` says whether it came in a batch.
   */
  settle(kind: Kind, response: Unchecked, slot: Slot): void {
    const call = this.#take(response.id);
    if (call === undefined) this.#receiveUnmatched(kind, response, slot);
    else if (kind === "broken") call.reject(brokenResponse(response));
    else if (response.result !== undefined) call.resolve(response.result);
    else {
      const { code, message, data } = (response as ErrorMessage).error;
      call.reject(receivedError(call.method, code, message, data));
    }
  }

  /**
   * Counts a response that names no pending call: it is late, repeated or unsolicited. Some servers answer notifications too,
   * so it is no reason to close.
   *
   * An error with id null means that the other side could not read a message (JSON-RPC 2.0, section 5). If this side has
   * sent errors with id null, the received one may answer one of those (M-61). Otherwise, a pending batch may reject with it (M-58).
   */
  #receiveUnmatched(kind: Kind, response: Unchecked, slot: Slot): void {
    const connection = this.#connection;
    connection.counts.unmatched++;
    if (kind !== "response" || response.id !== null || response.result !== undefined) return;
    if (connection.incoming.namelessErrors > 0) connection.incoming.namelessErrors--;
    else if (connection.madeParts?.first("receiveUnknown", response, slot)) return;
    const { code, message, data } = (response as ErrorMessage).error;
    connection.reportToListeners(() => new RpcError(code, message, data));
  }

  /** Rejects one call, if it is still pending. */
  fail(id: number, reason: unknown): void {
    this.#take(id)?.reject(reason);
  }

  /** Rejects a pending call whose caller has given up. Cancels its message if that is queued, else cancels the call on the other side. */
  giveUp(call: OutgoingCall, reason: unknown): void {
    if (this.#take(call.id) === undefined) return;
    call.reject(reason);
    if (call.canCancelMessage) this.#connection.flow.cancel(call);
    else this.#cancel(call, reason);
  }

  /** Cancels a call that was sent, or is in a batch. */
  #cancel(call: OutgoingCall, reason: unknown): void {
    const connection = this.#connection;
    const { flow, config, speaksDialect } = connection;
    const { cancel } = config.dialect;
    const mayCancel = speaksDialect || call.mustCancel;
    // While it is not known whether the other side takes cancels, an optional one is queued.
    if (!mayCancel && (call.sent || flow.openingQueue === undefined)) return;
    if (isExempt(config.dialect, call.method)) return;
    try {
      const text = encodeNotification(cancel.method, cancel.params(call.id, reason));
      const handle = mayCancel ? undefined : new OptionalCancel();
      // If the call is in a batch that is still queued, the cancel is queued after it.
      if (!(call.sent ? flow : flow.sink).send(text, handle)) this.refused(text);
    } catch (error) {
      connection.report(error, { method: call.method, id: call.id });
    }
  }

  /**
   * Rejects every call: the connection has ended. Calls that are made again continue in `next`: those that were not sent, and with
   * `retry: "always"` also those that were. So do queued notifications of a peer that was never open, in order with its calls.
   */
  rejectAll(end: End, next?: OutgoingCalls): void {
    const { flow, wasNeverOpen } = this.#connection;
    const rejectOrMove = (call: OutgoingCall): void => {
      // Closing a connection sends what is queued, but not a call that is rejected as not sent.
      if (!call.sent) flow.cancel(call.handle);
      const isRepeated = call.again !== undefined && (!call.sent || call.settings.retry === "always");
      if (isRepeated && next !== undefined && next.#adopt(call, this)) return;
      this.fail(call.id, new ConnectionLostError(call.method, call.mayHaveRun ? "unknown" : "not-sent", end.reason));
    };
    if (wasNeverOpen)
      for (const [handle, text] of flow.openingQueue ?? []) {
        const calls = callsOf(handle);
        calls.forEach(rejectOrMove);
        if (calls.length === 0) next?.sink.send(text, handle);
      }
    this.#table?.toArray().forEach(rejectOrMove);
  }

  /**
   * Removes the pending call of that id, for the function that settles it. The other side chooses the id, so it may be any value. Only
   * `#adopt` removes calls by itself, and these stay pending.
   */
  #take(id: unknown): OutgoingCall | undefined {
    const call = this.#table?.remove(id);
    if (call === undefined) return undefined;
    clearDeadline(call);
    call.onSettled?.();
    return call;
  }
}

/** Returns the method of an encoded message; the first, of several. */
function methodOf(text: MessageText): string {
  const [message] = [JSON.parse(typeof text === "string" ? text : text.json) as unknown].flat();
  return (message as { method: string }).method;
}
