/** Calls to a peer of another node. Each settles once, with a true outcome. */
import { bytes } from "../message/bytes.js";
import { encodeNotification, messageJson, plainText, utf8Bytes } from "../message/codec.js";
import { settingsOf, type CallSettings } from "../peer/outgoing-call.js";
import type { CallOptions } from "../contract/contract.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import {
  ConnectionLostError,
  expected,
  ProtocolError,
  mistake,
  receivedError,
  RpcError,
  TimeoutError,
  TooLargeError,
  type Outcome,
} from "../message/errors.js";
import { isObject } from "../message/message.js";
import { runReporting, onAbort } from "../base/tell.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";
import { EngineError, type NodeName } from "../topics/engine.js";
import { frameOf, isNodeName, Kind, type ReadFrame } from "./frames.js";
import type { FleetNode } from "./node.js";
import { NO_PEER } from "../topics/own-peers.js";
import { notificationIn, parsed } from "../topics/publication.js";
import type { PeerCalls } from "../topics/remote.js";
import { FIRST_MS } from "./repeats.js";

/** The rule of `timeoutMs`, which completes "Expected .. to be ..". */
const TIMEOUT_RULE = "finite, because the broker may lose the answer of a peer of another node";
/** The part of a timeout that the node of the peer gets, so that its verdict can arrive in time. */
const SHARE = 0.95;
/** How long `close` of a peer elsewhere may take. A peer closes within 5 s. */
const CLOSE_MS = 10_000;

/** A call to another node, until it is settled. */
interface RemoteCall extends Expiring {
  readonly number: number;
  readonly node: NodeName;
  readonly method: string;
  readonly settings: CallSettings;
  readonly resolve: (result: unknown) => void;
  readonly reject: (reason: unknown) => void;
  isWritten: boolean;
  readonly whenSettled: (() => void)[];
}

/** The calls of one node to others, and of others to its peers. */
export class Calls implements PeerCalls {
  readonly #node: FleetNode;
  readonly #calls = new Map<number, RemoteCall>();
  #lastNumber = 0;
  /** What aborts the calls from other nodes that run here, by node and number. */
  readonly #running = new Map<string, AbortController>();

  constructor(node: FleetNode) {
    this.#node = node;
  }

  async request(id: string, method: string, params: unknown, options: CallOptions = {}): Promise<unknown> {
    const node = this.#node;
    const settings = settingsOf(options, node.host.settings);
    // Also for a peer of this node, so that it does not depend on the node of the peer.
    if (settings.timeoutMs === Infinity) throw expected("timeoutMs", TIMEOUT_RULE, Infinity);
    const to = node.addressOf(id);
    if (to.node === node.id) return node.own.request(id, method, params, options);
    const flags = `${settings.onProgress === undefined ? "" : "p"}${settings.resetTimeoutOnProgress ? "r" : ""}`;
    const timeoutMs = Math.max(1, Math.floor(settings.timeoutMs * SHARE));
    const body = plainText(encodeNotification(method, params as object));
    return this.#call(to.node, method, settings, Kind.Call, [to.localId, timeoutMs, flags], body);
  }

  notify(id: string, method: string, params: unknown): void {
    const node = this.#node;
    const to = node.addressOf(id);
    if (to.node === node.id) return node.own.notify(id, method, params);
    const body = plainText(encodeNotification(method, params as object));
    if (isNodeName(to.node)) node.broker.send(`n:${to.node}`, frameOf(Kind.One, [node.id, to.localId], body));
  }

  async close(id: string, code: number, reason: string): Promise<void> {
    const node = this.#node;
    const to = node.addressOf(id);
    if (to.node === node.id) return node.own.close(id, code, reason);
    const settings = settingsOf({ timeoutMs: CLOSE_MS }, node.host.settings);
    await this.#call(to.node, "close", settings, Kind.Close, [to.localId, code], JSON.stringify(reason));
  }

  #call(
    node: NodeName,
    method: string,
    settings: CallSettings,
    kind: string,
    fields: (string | number)[],
    body: string,
  ): Promise<unknown> {
    const { broker, id: from, nodes } = this.#node;
    return new Promise((resolve, reject) => {
      if (settings.signal?.aborted) throw settings.signal.reason;
      if (this.#node.isClosed) throw new ConnectionLostError(method, "not-sent", CLOSED);
      if (!isNodeName(node)) throw new ConnectionLostError(method, "not-sent", NO_NODE);
      const number = ++this.#lastNumber;
      const frame = frameOf(kind, [number, from, ...fields], body);
      const expire = (): void => this.#timeOut(call, settings.timeoutMs);
      const state = { deadline: 0, expire, isWritten: false, whenSettled: [] };
      const call: RemoteCall = { ...state, number, node, method, settings, resolve, reject };
      this.#calls.set(number, call);
      setDeadline(call, settings.timeoutMs);
      this.#watch(call);
      const size = utf8Bytes(frame);
      const send = async (): Promise<number | undefined> => {
        const { maxFrameBytes } = broker;
        if (size > maxFrameBytes) throw new TooLargeError(method, size, maxFrameBytes);
        if (!nodes.expects(node, performance.now())) throw new ConnectionLostError(method, "not-sent", NO_NODE);
        call.isWritten = true;
        return broker.connection.send(`n:${node}`, frame);
      };
      // Otherwise a call that is settled would count among those that wait for the connection.
      if (!broker.isUp) call.whenSettled.push(() => broker.cancel(send));
      broker.run(size, settings.timeoutMs, send).then(
        (count) => {
          // Otherwise the call settles by its answer, its timeout, or the silence of the node.
          if (count === 0 && broker.facts!.undercounts !== true)
            this.#settle(number)?.reject(new ConnectionLostError(method, "not-sent", NO_NODE));
        },
        (error: unknown) => {
          if (!(error instanceof EngineError)) this.#settle(number)?.reject(error);
          else if (error.outcome === "not-sent")
            this.#settle(number)?.reject(new ConnectionLostError(method, "not-sent", error));
          // Otherwise the frame may have arrived, and the answer may come.
        },
      );
    });
  }

  #watch(call: RemoteCall): void {
    const { signal, maxTotalTimeoutMs } = call.settings;
    if (maxTotalTimeoutMs !== Infinity) {
      const total = { deadline: 0, expire: () => this.#timeOut(call, maxTotalTimeoutMs) };
      setDeadline(total, maxTotalTimeoutMs);
      call.whenSettled.push(() => clearDeadline(total));
    }
    if (signal === undefined) return;
    call.whenSettled.push(onAbort(signal, () => this.#giveUp(call, signal.reason)));
  }

  #timeOut(call: RemoteCall, afterMs: number): void {
    const { method, isWritten } = call;
    this.#giveUp(
      call,
      isWritten
        ? new TimeoutError(method, afterMs, "unknown")
        : new ConnectionLostError(method, "not-sent", new Error("there was no connection to the broker in time")),
    );
  }

  /** Rejects a call whose caller no longer waits, and cancels it on the node of the peer. */
  #giveUp(call: RemoteCall, reason: unknown): void {
    if (this.#settle(call.number) === undefined) return;
    call.reject(reason);
    const { broker, id } = this.#node;
    if (call.isWritten) broker.send(`n:${call.node}`, frameOf(Kind.Cancel, [call.number, id]));
  }

  #settle(number: number): RemoteCall | undefined {
    const call = this.#calls.get(number);
    if (call === undefined) return undefined;
    this.#calls.delete(number);
    clearDeadline(call);
    for (const settled of call.whenSettled) settled();
    return call;
  }

  /** Rejects the calls to a node that has ended. */
  lost(node: NodeName): void {
    for (const call of this.#calls.values()) {
      if (call.node !== node || !call.isWritten) continue;
      this.#settle(call.number)?.reject(new ConnectionLostError(call.method, "unknown", NO_NODE));
    }
  }

  /** Takes a frame of a call. Returns false for an unknown one. */
  received(frame: ReadFrame): boolean {
    const { kind, fields, body } = frame;
    const [numberField, from = "", third = "", fourth = "", fifth = ""] = fields;
    const number = Number(numberField);
    if (!Number.isSafeInteger(number) || from === "") return false;
    if (kind === Kind.Answer) this.#answered(number, from, third, fourth, body);
    else if (kind === Kind.Progress) this.#progressed(number, from, body);
    else if (kind === Kind.Cancel) this.#running.get(`${from}/${number}`)?.abort(new Error("the caller cancelled"));
    else if (kind === Kind.Call) this.#serve(number, from, third, Number(fourth), fifth, body);
    else if (kind === Kind.Close) {
      const close = (peer: AnyPeer): Promise<unknown> => peer.close(Number(fourth), textIn(parsed(body)));
      void this.#answerWith(number, from, third, () => CLOSE_MS, close);
    } else return false;
    return true;
  }

  #answered(number: number, from: NodeName, verdict: string, outcome: string, body: string): void {
    const value = parsed(body);
    if (value === undefined) return void this.#node.counts.foreign++;
    // A call is settled once: an answer that comes again finds nothing. Only the node that was called can answer.
    if (this.#calls.get(number)?.node !== from) return;
    const call = this.#settle(number)!;
    if (verdict === "ok") call.resolve(value);
    else call.reject(errorOf(call, verdict, outcome === "not-sent" ? "not-sent" : "unknown", value));
  }

  #progressed(number: number, from: NodeName, body: string): void {
    const call = this.#calls.get(number);
    if (call?.node !== from) return;
    if (call.settings.resetTimeoutOnProgress) setDeadline(call, call.settings.timeoutMs);
    runReporting(
      () => call.settings.onProgress?.(parsed(body)),
      (error) => this.#node.host.report(error),
    );
  }

  #serve(number: number, from: NodeName, localId: string, timeoutMs: number, flags: string, body: string): void {
    const message = notificationIn(body);
    const key = `${from}/${number}`;
    const isTimed = timeoutMs > 0 && timeoutMs < Infinity;
    if (message === undefined || !isTimed || this.#running.has(key)) return void this.#node.counts.foreign++;
    const controller = new AbortController();
    const { broker, id } = this.#node;
    let startedAt = performance.now();
    const onProgress = (value: unknown): void => {
      if (flags.includes("r")) startedAt = performance.now();
      broker.send(`n:${from}`, frameOf(Kind.Progress, [number, id], encoded(value)));
    };
    const request = (peer: AnyPeer): Promise<unknown> => {
      this.#running.set(key, controller);
      const settled = connectionOf(peer).outgoing.request(message.method, message.params, {
        timeoutMs,
        signal: controller.signal,
        ...(flags.includes("p") && { onProgress }),
        resetTimeoutOnProgress: flags.includes("r"),
      });
      return settled.finally(() => this.#running.delete(key));
    };
    const leftMs = (): number => Math.max(timeoutMs / SHARE - (performance.now() - startedAt), FIRST_MS);
    void this.#answerWith(number, from, localId, leftMs, request);
  }

  /** Answers with what a peer of this node does. `forMs`: as of `#answer`. */
  async #answerWith(
    number: number,
    from: NodeName,
    localId: string,
    forMs: () => number,
    run: (peer: AnyPeer) => Promise<unknown>,
  ): Promise<void> {
    const peer = this.#node.peerAt(localId);
    let verdict: Verdict = ["lost", "not-sent", "null"];
    try {
      // Only a hook of this node can return a result without a JSON form.
      if (peer !== undefined) verdict = ["ok", "", encoded(await run(peer))];
    } catch (error) {
      verdict = verdictOf(error);
    }
    this.#answer(from, number, verdict, forMs());
  }

  /** Sends an answer, again until a node receives it or `forMs` have passed. */
  #answer(to: NodeName, number: number, [verdict, outcome, body]: Verdict, forMs: number): void {
    const { broker, id: node, answers } = this.#node;
    const { maxFrameBytes } = broker;
    let frame = frameOf(Kind.Answer, [number, node, verdict, outcome], body);
    const size = utf8Bytes(frame);
    if (size > maxFrameBytes) {
      // The result cannot cross: the caller learns why.
      const large = JSON.stringify({ bytes: size, maxMessageBytes: maxFrameBytes });
      frame = frameOf(Kind.Answer, [number, node, "large", "unknown"], large);
    }
    void answers.send(
      `n:${to}`,
      () => frame,
      forMs,
      (count = 1) => count > 0,
    );
  }

  /** Rejects all calls, and cancels them on the nodes of the peers. */
  end(): void {
    for (const call of this.#calls.values())
      this.#giveUp(call, new ConnectionLostError(call.method, call.isWritten ? "unknown" : "not-sent", CLOSED));
  }
}

const CLOSED = new Error("this node is closed");
const NO_NODE = new Error("the node of the peer does not live");

/** Encodes a value that came from a peer. Bytes are base64 in it. */
function encoded(value: unknown): string {
  const json = messageJson(value, (_key, one) =>
    one instanceof Uint8Array ? JSON.stringify(bytes(one)).slice(1, -1) : one,
  );
  return json ?? "null";
}

/** Returns the text that another node has sent; empty for any other value. Converting an object may throw. */
function textIn(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Returns the number that another node has sent; `NaN` for any other value. */
function numberIn(value: unknown): number {
  return typeof value === "number" ? value : NaN;
}

/** How a call ended, as it is sent. */
type Verdict = [verdict: string, outcome: string, body: string];

/** Returns how the error of a call is sent. Never throws: a hook may have thrown anything. */
function verdictOf(error: unknown): Verdict {
  try {
    return describe(error);
  } catch {
    return ["failed", "", JSON.stringify("the call failed with an error that cannot be converted to text")];
  }
}

function describe(error: unknown): Verdict {
  if (error instanceof RpcError) {
    const { code, message, data } = error;
    return ["error", "", encoded({ code, message, data })];
  }
  if (error instanceof TimeoutError) return ["timeout", error.outcome, "null"];
  if (error instanceof ConnectionLostError) return ["lost", error.outcome, "null"];
  if (error instanceof TooLargeError) {
    const { bytes: size, maxMessageBytes } = error;
    return ["large", "not-sent", JSON.stringify({ bytes: size, maxMessageBytes })];
  }
  if (error instanceof ProtocolError) return ["protocol", "", encoded({ message: error.message, raw: error.raw })];
  const isType = error instanceof TypeError;
  return [isType ? "type" : "failed", "", JSON.stringify(error instanceof Error ? error.message : String(error))];
}

function errorOf({ method, settings }: RemoteCall, verdict: string, outcome: Outcome, value: unknown): unknown {
  const fields: Record<string, any> = isObject(value) ? value : {};
  const { code, message, data, raw, bytes: size, maxMessageBytes } = fields;
  if (verdict === "error" && Number.isInteger(code) && typeof message === "string")
    return receivedError(method, code as number, message, data);
  if (verdict === "timeout") return new TimeoutError(method, settings.timeoutMs, outcome);
  if (verdict === "large") return new TooLargeError(method, numberIn(size), numberIn(maxMessageBytes));
  if (verdict === "protocol") return new ProtocolError(textIn(message), raw);
  if (verdict === "type") return mistake(textIn(value));
  if (verdict === "failed") return Object.assign(new Error(textIn(value)), { method });
  return new ConnectionLostError(method, outcome, NO_PEER);
}
