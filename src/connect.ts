/** `connect` for a standard WebSocket: opens a connection, and makes a peer of it. `node.ts` does the same over `ws`. */
import { dial, openStandard, webSocketUrl, type Admitted, type Open } from "./client/open.js";
import { Normal } from "./close-codes.js";
import { Backoff } from "./client/backoff.js";
import { ClientDriver, greet, isFinal, type ClientPlan, type OnOpen } from "./client/driver.js";
import { watchPage } from "./client/watch.js";
import type { AnyMethods, Contract } from "./core/contract.js";
import { expected } from "./core/errors.js";
import { checkHeartbeat, type HeartbeatOptions } from "./link/heartbeat.js";
import { PEER_OPTIONS } from "./core/config.js";
import { defaultHooks } from "./core/hooks.js";
import { anyFunction, anySignal, checkOptions, must, optional, positive, type Checked } from "./core/options.js";
import { plain } from "./link/plain.js";
import { RESUME_OFFER } from "./session/frames.js";
import { PROTOCOL } from "./session/link.js";
import { endpointLimits } from "./session/sizes.js";
import type { Caller } from "./peer/caller.js";
import { configFrom } from "./peer/config.js";
import { createPeer, startPeer, type AnyPeer, type Context, type Options, type Peer } from "./peer/peer.js";

/** The options by which a client connects to a server that serves `S`, and reconnects. */
export interface ConnectOptions<S extends Contract<S> = any> {
  /** How long the connection may take to open, in milliseconds; then `connect` rejects with `ConnectError`. Default 10,000; `Infinity` waits for ever. */
  openTimeoutMs?: number | undefined;
  /**
   * Aborting it before `connect` has resolved rejects with `signal.reason`, ends the attempt or `onOpen` that is under way, and
   * stops the attempts of `reconnect: { initial: true }`. One that is already aborted opens nothing. Once `connect` has
   * resolved, it has no effect: close the peer instead. Default: none.
   */
  signal?: AbortSignal | undefined;
  /** Default `"packed"`: offers `reciproc.v1`, and uses plain frames if the server does not accept it. `"plain"` offers nothing. */
  link?: "packed" | "plain" | undefined;
  /**
   * Whether the client reconnects when its socket is lost: at once, and then with growing delays (0.1 to 20 s). By default, it
   * does if the server keeps a session, which is then resumed, or if there is an `onOpen`. With `true`, it always does, and with
   * `false` never. With `{ initial: true }`, `connect` also retries until the first connection is open. The client does not
   * reconnect after the server closed with 1000 or 44xx, or refused it with 401 or 403.
   */
  reconnect?: boolean | { initial?: boolean | undefined } | undefined;
  /**
   * Runs on the first connection, and on each new one after a loss, before any other call or notification is sent. Call by its
   * parameter, not by the peer, whose calls are queued meanwhile. If it fails on the first connection, `connect` rejects. If it
   * fails later, the peer emits `error`, and the client tries another connection.
   */
  onOpen?: ((server: Caller<S>) => unknown) | undefined;
  /**
   * Pings a server that has been silent for `intervalMs`, and gives the socket up if the silence lasts `deadAfterMs`. Default
   * 25,000 and 45,000 ms. `false` sends no pings. A browser can send pings only over `reciproc.v1`.
   */
  heartbeat?: HeartbeatOptions | false | undefined;
}

/**
 * Checks `reconnect`. `reconnects` is `undefined` if that depends on the server and on `onOpen`. `retriesFirst`: whether the
 * client also retries until its first connection is open.
 */
function checkReconnect(reconnect: unknown, name: string): { reconnects: boolean | undefined; retriesFirst: boolean } {
  if (typeof reconnect === "object") {
    const { initial } = checkOptions(name, reconnect as object, RECONNECT_OPTIONS);
    return { reconnects: true, retriesFirst: initial };
  }
  if (reconnect !== undefined && typeof reconnect !== "boolean")
    throw expected(name, "a boolean or `{ initial }`", reconnect);
  return { reconnects: reconnect, retriesFirst: false };
}

const isBoolean = (value: unknown): boolean => typeof value === "boolean";
const RECONNECT_OPTIONS = { initial: optional(must<boolean>("a boolean", isBoolean), false) };

/** The options of `connect`. */
export const CONNECT_OPTIONS = {
  ...PEER_OPTIONS,
  openTimeoutMs: optional(positive, 10_000),
  signal: optional(anySignal),
  link: optional(
    must('"packed" or "plain"', (value) => value === "packed" || value === "plain"),
    "packed",
  ),
  reconnect: checkReconnect,
  onOpen: optional<OnOpen>(anyFunction),
  heartbeat: (value: unknown) => checkHeartbeat(value as HeartbeatOptions | false | undefined),
};

/**
 * Connects to a server that serves `S` and may call back by `C`. Resolves when the connection is open and `onOpen` is done.
 * Without `onOpen`, the server's first messages are dispatched only after that, so listeners that are added directly after
 * `await connect(..)` miss nothing. With `onOpen`, they are dispatched from the tick after `onOpen` was called.
 *
 * Uses the runtime's own WebSocket. Rejects with `ConnectError` if the connection cannot be opened, with the reason of
 * `signal` if that aborts, and with a `TypeError` for a bad option, which names the option, the rule and the value.
 */
export async function connect<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods>(
  url: string | URL,
  ...options: NoInfer<
    {} extends Options<C, Context<C, S>>
      ? [options?: Options<C, Context<C, S>> & ConnectOptions<S>]
      : [options: Options<C, Context<C, S>> & ConnectOptions<S>]
  >
): Promise<Peer<C, S>> {
  return openPeer<C, S>(url, checkOptions("options", options[0], CONNECT_OPTIONS), openStandard);
}

/** Opens a connection, and makes the peer. Both `connect` functions call it with checked options. */
export async function openPeer<C extends Contract<C>, S extends Contract<S>>(
  url: string | URL,
  options: Checked<typeof CONNECT_OPTIONS>,
  open: Open,
): Promise<Peer<C, S>> {
  const { openTimeoutMs, signal, link, onOpen, heartbeat } = options;
  const { reconnects, retriesFirst } = options.reconnect;
  const config = configFrom(options, onOpen !== undefined);
  const target = webSocketUrl(url);
  const { maxMessageBytes } = config.limits;
  const { subprotocol } = config.choseDialect ? config.dialect : {};
  const connectTo: ClientPlan["connect"] = (isResumable, isKnown, abortedBy) => {
    const own = link === "plain" ? [] : isResumable ? [PROTOCOL, RESUME_OFFER] : [PROTOCOL];
    const offer = subprotocol === undefined ? own : [...own, subprotocol];
    return dial({ url: target, offer, timeoutMs: openTimeoutMs, isKnown, signal: abortedBy, open, maxMessageBytes });
  };
  const admitted = await openFirst(connectTo, retriesFirst, signal);
  let driver: ClientDriver | undefined;
  if ((reconnects ?? onOpen !== undefined) || admitted.protocol === PROTOCOL) {
    const limits = endpointLimits(config.limits, config.bytes);
    driver = new ClientDriver({ onOpen, reconnects, heartbeat, openTimeoutMs, connect: connectTo, limits }, admitted);
    driver.open();
  } else if (heartbeat !== undefined) admitted.socket.watch?.(heartbeat);
  // Without a driver, the peer ends with its socket.
  const peer = createPeer<C, S>(driver?.link ?? plain(admitted.socket), config, defaultHooks());
  driver?.run(peer);
  // Listeners that the application adds right after `await connect()` must miss nothing.
  nextTurn(() => startPeer(peer));
  if (onOpen !== undefined) await greetFirst(peer, onOpen, signal);
  return peer;
}

/**
 * Makes one connection attempt, or attempts until one succeeds if `retriesFirst`. Rejects with a `ConnectError`, or with the
 * reason of `signal` as soon as that aborts.
 */
async function openFirst(
  connectTo: ClientPlan["connect"],
  retriesFirst: boolean,
  signal: AbortSignal | undefined,
): Promise<Admitted> {
  const backoff = new Backoff();
  backoff.nextDelayMs();
  for (;;) {
    throwIfAborted(signal);
    try {
      const admitted = await connectTo(false, false, signal);
      // The signal may have aborted after the attempt succeeded.
      if (signal?.aborted) admitted.socket.discard(Normal, "aborted");
      throwIfAborted(signal);
      return admitted;
    } catch (error) {
      throwIfAborted(signal);
      if (!retriesFirst || isFinal(error)) throw error;
    }
    await wakeOrWait(backoff.nextDelayMs(), signal);
  }
}

/** Waits for `ms`, or until `signal` aborts, the network is back, or the page is shown again. */
function wakeOrWait(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const ended = (): void => {
      clearTimeout(timer);
      ignoreWake();
      ignoreAbort();
      resolve();
    };
    const timer = setTimeout(ended, ms);
    const ignoreWake = watchPage(ended);
    const ignoreAbort = onAbort(signal, ended);
  });
}

function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw signal.reason;
}

/** Calls `aborted` once when `signal` aborts. Returns a function that removes the listener. */
function onAbort(signal: AbortSignal | undefined, aborted: () => void): () => void {
  signal?.addEventListener("abort", aborted, { once: true });
  return () => signal?.removeEventListener("abort", aborted);
}

/** Runs `onOpen` on the first connection. Closes the peer if that fails, or if `signal` aborts first. */
async function greetFirst(peer: AnyPeer, onOpen: OnOpen, signal: AbortSignal | undefined): Promise<void> {
  try {
    throwIfAborted(signal);
    await new Promise<void>((resolve, reject) => {
      const ignoreAbort = onAbort(signal, () => reject(signal!.reason));
      greet(peer, onOpen).finally(ignoreAbort).then(resolve, reject);
    });
  } catch (error) {
    void peer.close(1000, signal?.aborted ? "`connect` was aborted" : "`onOpen` failed");
    throw error;
  }
}

/** Runs a task in the next tick. A timer of 0 ms takes at least one millisecond. `setImmediate` of Node is faster. */
function nextTurn(task: () => void): void {
  const { setImmediate = setTimeout } = globalThis as { setImmediate?: (task: () => void) => unknown };
  setImmediate(task);
}
