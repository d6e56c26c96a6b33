/** `open` and `connect` for a standard WebSocket: make a peer that connects. `node.ts` does the same over `ws`. */
import { Credentials, type Attempt, type Supplied } from "./client/credentials.js";
import { openStandard, type Open } from "./client/open.js";
import { Normal } from "./message/close-codes.js";
import { DEFAULT_DELAYS, type DelayRange } from "./client/backoff.js";
import { ClientDriver, type ClientPlan, type OnOpen } from "./client/driver.js";
import type { ContractOptions } from "./contract/checks.js";
import type { AnyMethods, Contract } from "./contract/contract.js";
import { expected } from "./message/errors.js";
import { checkHeartbeat, type HeartbeatOptions } from "./socket/heartbeat.js";
import { makeConfig, PEER_OPTIONS } from "./peer/config.js";
import {
  any,
  anyFunction,
  anySignal,
  checkOptions,
  finite,
  oneOf,
  optional,
  positive,
  type Checked,
} from "./message/options.js";
import { onAbort } from "./base/tell.js";
import { NegotiatedLink } from "./session/link.js";
import { endpointLimits } from "./session/sizes.js";
import type { Caller } from "./peer/caller.js";
import { createPeer, endPeer, startPeer, type AnyPeer, type Context, type Options, type Peer } from "./peer/peer.js";

/** The options by which a client connects to a server that serves `S`, and reconnects. */
export interface ConnectOptions<S extends Contract<S> = any> extends Pick<ContractOptions<any, S>, "remote"> {
  /**
   * How long one attempt may take, `onOpen` included, in milliseconds. Then the attempt fails: `connect` rejects with `ConnectError`,
   * or the client tries again. Default 10,000; `Infinity` waits for ever.
   */
  openTimeoutMs?: number | undefined;
  /**
   * Aborting it ends the peer with 1000, at any time: `peer.opened` and all pending calls reject, with `signal.reason` as the reason
   * or the cause. A signal that is already aborted opens nothing. `connect` rejects with `signal.reason`, and ignores the signal
   * once it has resolved, so that `AbortSignal.timeout(..)` limits the opening only. Default: none.
   */
  signal?: AbortSignal | undefined;
  /** Default `"packed"`: offers `reciproc.v1`, and uses plain frames if the server does not accept it. `"plain"` offers nothing. */
  link?: "packed" | "plain" | undefined;
  /**
   * Whether and when the client reconnects when its socket is lost. By default, it does if the server keeps a session, which is then
   * resumed, or if there is an `onOpen`. With `true` or an object, it always does, and with `false` never. It does not after the server closed with
   * 1000 or 44xx, or refused it with 401 or 403. After a 401, it makes one more attempt if `auth`, `url` or `headers` is a
   * function, which may then return fresh credentials.
   */
  reconnect?: boolean | ReconnectOptions | undefined;
  /**
   * Runs on the first connection, and on each new one after a loss, before any other call or notification is sent. Call by its
   * parameter, not by the peer, whose calls are queued meanwhile. If it fails on the first connection, `connect` rejects. If it
   * fails later, or with `reconnect: { initial: true }`, the peer emits `error`, and the client tries another connection. It fails
   * if it does not end within `openTimeoutMs`.
   */
  onOpen?: ((server: Caller<S>) => unknown) | undefined;
  /**
   * Credentials for a server whose `authenticate` takes them as its second argument: a value with a JSON form, or a function that
   * returns or promises one, and is called for each connection attempt and by `peer.reauthenticate()`. Sent in the client's hello,
   * never in a URL, and only to a server that speaks `reciproc.v1` and asks for it. The server closes the connection with 1009 if its frame is longer than 16 KiB. If the function throws or
   * rejects, the attempt fails: `connect` rejects, or the peer emits `error` and the client makes a further attempt. Default: none.
   */
  auth?: string | number | boolean | object | null | ((attempt: Attempt) => unknown) | undefined;
  /**
   * Pings a server that has been silent for `intervalMs`, and gives the socket up if the silence lasts `deadAfterMs`. Default
   * 25,000 and 45,000 ms. `false` sends no pings. A browser can send pings only over `reciproc.v1`.
   */
  heartbeat?: HeartbeatOptions | false | undefined;
}

/** When a client reconnects: at once, and then after random delays that grow from `minDelayMs` to `maxDelayMs`. */
export interface ReconnectOptions {
  /** Whether `connect` also retries until the first connection is open and its `onOpen` done. Default false. */
  initial?: boolean | undefined;
  /**
   * The first attempt after a loss has no delay. The second has one from `minDelayMs` to twice that, in milliseconds. Both double with
   * each further attempt, until the longer one is `maxDelayMs`. Default 250.
   */
  minDelayMs?: number | undefined;
  /** The longest delay, in milliseconds, at least twice `minDelayMs`, and finite. Default 5,000, or twice `minDelayMs` if that is more. */
  maxDelayMs?: number | undefined;
}

type Reconnecting = Pick<ClientPlan, "reconnects" | "retriesFirst" | keyof DelayRange>;

const DEFAULT_RECONNECTING: Reconnecting = { reconnects: undefined, retriesFirst: false, ...DEFAULT_DELAYS };

/** Checks `reconnect`. `reconnects` is `undefined` if that depends on the server and on `onOpen`. */
function checkReconnect(reconnect: unknown, name: string): Reconnecting {
  if (reconnect === undefined) return DEFAULT_RECONNECTING;
  if (typeof reconnect === "boolean") return { ...DEFAULT_RECONNECTING, reconnects: reconnect };
  if (typeof reconnect !== "object") throw expected(name, "a boolean or an object", reconnect);
  const {
    initial,
    minDelayMs,
    maxDelayMs = Math.max(DEFAULT_DELAYS.maxDelayMs, 2 * minDelayMs),
  } = checkOptions(name, reconnect as object, RECONNECT_OPTIONS);
  if (maxDelayMs < 2 * minDelayMs)
    throw expected(`${name}.maxDelayMs`, `at least twice \`${name}.minDelayMs\`, ${minDelayMs}`, maxDelayMs);
  return { reconnects: true, retriesFirst: initial, minDelayMs, maxDelayMs };
}

const RECONNECT_OPTIONS = {
  initial: optional(oneOf(true, false), false),
  minDelayMs: optional(finite, DEFAULT_DELAYS.minDelayMs),
  // The default depends on `minDelayMs`.
  maxDelayMs: optional(finite),
};

/** The options of `connect`. */
export const CONNECT_OPTIONS = {
  ...PEER_OPTIONS,
  openTimeoutMs: optional(positive, 10_000),
  signal: optional(anySignal),
  link: optional(oneOf("packed", "plain"), "packed"),
  reconnect: checkReconnect,
  onOpen: optional<OnOpen>(anyFunction),
  auth: any,
  heartbeat: (value: unknown) => checkHeartbeat(value as HeartbeatOptions | false | undefined),
};

/** The arguments after the URL. The options may be left out only if none is required. Their contracts of schemas infer `C` and `S`. */
export type OpenArguments<C, S, O> = {} extends C
  ? [options?: O & ContractOptions<C, S>]
  : [options: O & ContractOptions<C, S>];

/**
 * Makes a peer that connects to a server that serves `S` and may call back by `C`. Returns the peer at once, in state
 * `"connecting"`. `peer.opened` resolves when the connection is open and `onOpen` is done, and rejects if the peer closes before.
 *
 * Calls and notifications are queued until then, at most half of `limits.maxUnsentBytes`, and timeouts and signals of calls run
 * meanwhile. If the peer closes before it is open, its calls reject with `ConnectionLostError` of outcome `"not-sent"`. With
 * `reconnect: { initial: true }`, the peer connects until a connection and its `onOpen` succeed or the server refuses it, and emits
 * `attempt` before each retry.
 *
 * `url` may be a function that returns or promises the URL, and is called for each connection attempt.
 *
 * Uses the runtime's own WebSocket. Throws a `TypeError` for a bad option, which names the option, the rule and the value.
 */
export function open<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods>(
  url: Supplied<string | URL>,
  ...options: OpenArguments<C, S, Options<NoInfer<C>, Context<C, S>> & ConnectOptions<NoInfer<S>>>
): Peer<C, S> {
  return openPeer<C, S>(url, checkOptions("options", options[0], CONNECT_OPTIONS), openStandard, NegotiatedLink).peer;
}

/**
 * Does what `open` does, and resolves with the peer when it is open. Without `onOpen`, the server's first messages are dispatched
 * only after that, so listeners that are added directly after `await connect(..)` miss nothing. With `onOpen`, they are dispatched
 * from the tick after `onOpen` was called.
 *
 * Uses the runtime's own WebSocket. Rejects with `ConnectError` if the connection cannot be opened, with the reason of
 * `signal` if that aborts, and with a `TypeError` for a bad option, which names the option, the rule and the value.
 */
export async function connect<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods>(
  url: Supplied<string | URL>,
  ...options: OpenArguments<C, S, Options<NoInfer<C>, Context<C, S>> & ConnectOptions<NoInfer<S>>>
): Promise<Peer<C, S>> {
  return whenOpen(
    openPeer<C, S>(url, checkOptions("options", options[0], CONNECT_OPTIONS), openStandard, NegotiatedLink),
  );
}

/** A peer that connects, and what stops its `signal` from ending it. */
interface OpeningPeer<P extends AnyPeer> {
  readonly peer: P;
  readonly signal: AbortSignal | undefined;
  readonly ignoreSignal: () => void;
}

/**
 * Makes a peer that connects. The functions `open` and `connect` of both entries call it with checked options. Those of Node also
 * give `headers`. `Link`: the class of a link over the sockets of `openSocket`. `share`: returns the plan of earlier clients with equal
 * options, if there are any, because a plan and its config live as long as the peer.
 */
export function openPeer<C extends Contract<C>, S extends Contract<S>>(
  url: Supplied<string | URL>,
  options: Checked<typeof CONNECT_OPTIONS> & { headers?: unknown },
  openSocket: Open,
  Link: typeof NegotiatedLink,
  share = (made: ClientPlan): ClientPlan => made,
): OpeningPeer<Peer<C, S>> {
  const { signal, onOpen, openTimeoutMs, heartbeat, dialect, headers, auth, link } = options;
  const config = makeConfig(options, undefined, onOpen !== undefined);
  const plan = share({
    config,
    onOpen,
    openTimeoutMs,
    heartbeat,
    dialect,
    offersV1: link === "packed",
    open: openSocket,
    Link,
    limits: endpointLimits(config.limits, config.bytes),
    // A literal that begins with a spread has a hidden class of its own, and takes ten times as long.
    ...options.reconnect,
  });
  const driver = new ClientDriver(plan, new Credentials(url, headers, auth));
  const peer = createPeer<C, S>(driver.link, plan.config);
  startPeer(peer);
  const ignoreSignal = signal === undefined ? () => {} : endOnAbort(peer, signal);
  driver.run(peer);
  return { peer, signal, ignoreSignal };
}

/** Ends `peer` when `signal` aborts, or at once. Returns a function that removes the listener. */
function endOnAbort(peer: AnyPeer, signal: AbortSignal): () => void {
  const abort = (): void => endPeer(peer, { code: Normal, reason: "aborted", error: signal.reason as Error });
  const ignore = onAbort(signal, abort);
  if (signal.aborted) abort();
  void peer.closed.then(ignore);
  return ignore;
}

/** Resolves with the peer when it is open. From then on, its signal has no effect. */
export async function whenOpen<P extends AnyPeer>({ peer, signal, ignoreSignal }: OpeningPeer<P>): Promise<P> {
  try {
    await peer.opened;
    // The signal may have aborted after the peer was open.
    if (signal?.aborted) throw signal.reason;
    return peer;
  } finally {
    ignoreSignal();
  }
}
