/** `connect`: opens a connection and makes a peer of it. Here for a standard WebSocket; `node.ts` does the same over `ws`. */
import { dial, openStandard, webSocketUrl, type Admitted, type Open } from "./client/open.js";
import { Normal } from "./close-codes.js";
import { Backoff } from "./client/backoff.js";
import { ClientDriver, greet, isFinal, type ClientPlan, type OnOpen } from "./client/driver.js";
import { watchPage } from "./client/watch.js";
import type { AnyMethods, Contract } from "./core/contract.js";
import { expected } from "./core/errors.js";
import { checkHeartbeat, type HeartbeatOptions, type HeartbeatTimes } from "./link/heartbeat.js";
import { PEER_OPTIONS, type Config } from "./core/config.js";
import { defaultHooks } from "./core/hooks.js";
import { anyFunction, anySignal, checkOptions, must, optional, positive, type Checked } from "./core/options.js";
import { plain } from "./link/plain.js";
import { RESUME_OFFER } from "./session/frames.js";
import { PROTOCOL } from "./session/link.js";
import { endpointLimits } from "./session/sizes.js";
import type { Caller } from "./peer/caller.js";
import { configFrom } from "./peer/config.js";
import { createPeer, startPeer, type AnyPeer, type Context, type Options, type Peer } from "./peer/peer.js";

/** How to connect to a server that serves `S`, and what to do when the connection is lost. */
export interface ConnectOptions<S extends Contract<S> = any> {
  /** How long the connection may take to open, in milliseconds; then `connect` rejects with `ConnectError`. Default 10,000; `Infinity` waits for ever. */
  openTimeoutMs?: number | undefined;
  /**
   * Aborting it before `connect` has resolved rejects with `signal.reason`, ends the attempt or `onOpen` that is under way, and
   * stops the attempts of `reconnect: { initial: true }`. One that is already aborted opens nothing. Once `connect` has
   * resolved, it has no effect: close the peer instead. Default: none.
   */
  signal?: AbortSignal | undefined;
  /** `"plain"` asks for nothing of this package's own. Default `"packed"`: offers `reciproc.v1`, and is plain where the server does not know it. */
  link?: "packed" | "plain" | undefined;
  /**
   * Whether another socket is tried when one is lost, at once and then ever more slowly (0.1 to 20 s). Default: where the
   * server keeps a session, which then goes on as if nothing had been, and where `onOpen` says how to begin again. `true`
   * does it also elsewhere, `false` nowhere; `{ initial: true }` also while there was no connection yet: then `connect` waits.
   * A connection that the server closed with 1000 or 44xx, or refuses with 401 or 403, is not tried again.
   */
  reconnect?: boolean | { initial?: boolean | undefined } | undefined;
  /**
   * Says how to begin: runs on the first open and on each new connection whose predecessor was lost, before any other call
   * or notification leaves. Use what it is given, and not the peer, whose calls wait for it. When it fails, `connect` rejects;
   * later the peer emits `error`, and another connection is tried.
   */
  onOpen?: ((server: Caller<S>) => unknown) | undefined;
  /**
   * Asks a server that said nothing for `intervalMs` for a sign of life, and gives the socket up when none has come by
   * `deadAfterMs`. Default 25,000 and 45,000 ms; `false` never asks. A browser can ask only over `reciproc.v1`.
   */
  heartbeat?: HeartbeatOptions | false | undefined;
}

/** Whether another socket is tried wherever one is lost; `undefined` where that depends on the server and `onOpen`. */
function checkReconnect(reconnect: unknown, name: string): { reconnects: boolean | undefined; isPatient: boolean } {
  if (typeof reconnect === "object") {
    const { initial } = checkOptions(name, reconnect as object, RECONNECT_OPTIONS);
    return { reconnects: true, isPatient: initial };
  }
  if (reconnect !== undefined && typeof reconnect !== "boolean")
    throw expected(name, "a boolean, or an object with `initial`", reconnect);
  return { reconnects: reconnect, isPatient: false };
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
 * Connects to a server that serves `S` and may call back by `C`; resolves when the connection is open, and `onOpen` is done.
 * What the server sends at once is dispatched only after that, so listeners added right behind `await connect(..)` miss
 * nothing; with `onOpen`, after its first call.
 *
 * Uses the runtime's own WebSocket. Rejects with `ConnectError` when the connection cannot be opened, with the reason of
 * `signal` when that aborts, and with `TypeError` for bad options, naming option, rule and value.
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

/** Opens a connection, and makes the peer. Both `connect` call it with options that are checked. */
export async function openPeer<C extends Contract<C>, S extends Contract<S>>(
  url: string | URL,
  options: Checked<typeof CONNECT_OPTIONS>,
  open: Open,
): Promise<Peer<C, S>> {
  const { openTimeoutMs, signal, link, onOpen, heartbeat } = options;
  const { reconnects, isPatient } = options.reconnect;
  const config = configFrom(options, onOpen !== undefined);
  const target = webSocketUrl(url);
  const { maxMessageBytes } = config.limits;
  const { subprotocol } = config.choseDialect ? config.dialect : {};
  const connectTo: ClientPlan["connect"] = (isResumable, isKnown, abortedBy) => {
    const own = link === "plain" ? [] : isResumable ? [PROTOCOL, RESUME_OFFER] : [PROTOCOL];
    const offer = subprotocol === undefined ? own : [...own, subprotocol];
    return dial({ url: target, offer, timeoutMs: openTimeoutMs, isKnown, signal: abortedBy, open, maxMessageBytes });
  };
  const admitted = await openFirst(connectTo, isPatient, signal);
  const mayReconnect = reconnects ?? onOpen !== undefined;
  const peer =
    mayReconnect || admitted.protocol === PROTOCOL
      ? drivenPeer<C, S>(admitted, config, {
          limits: endpointLimits(config.limits),
          onOpen,
          reconnects,
          heartbeat,
          openTimeoutMs,
          connect: connectTo,
        })
      : plainPeer<C, S>(admitted, config, heartbeat);
  // Listeners that the application adds right after `await connect()` must miss nothing.
  nextTurn(() => startPeer(peer));
  if (onOpen !== undefined) await greetFirst(peer, onOpen, signal);
  return peer;
}

/**
 * Tries once; if `waits`, until the connection is open. Rejects with a `ConnectError`, or with the reason of `signal` as
 * soon as that aborts.
 */
async function openFirst(
  connectTo: ClientPlan["connect"],
  waits: boolean,
  signal: AbortSignal | undefined,
): Promise<Admitted> {
  const backoff = new Backoff();
  backoff.nextDelayMs();
  for (;;) {
    throwIfAborted(signal);
    try {
      const admitted = await connectTo(false, false, signal);
      // The signal may have aborted when the attempt was over already.
      if (signal?.aborted) admitted.socket.discard(Normal, "aborted");
      throwIfAborted(signal);
      return admitted;
    } catch (error) {
      throwIfAborted(signal);
      if (!waits || isFinal(error)) throw error;
    }
    await wakeOrWait(backoff.nextDelayMs(), signal);
  }
}

/** Waits so long, but no longer than until `signal` aborts, the network comes back, or the page is shown again. */
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

/** A peer that ends with its socket, on which nothing but JSON-RPC is spoken. */
function plainPeer<C extends Contract<C>, S extends Contract<S>>(
  { socket }: Admitted,
  config: Config,
  heartbeat: HeartbeatTimes | undefined,
): Peer<C, S> {
  if (heartbeat !== undefined) socket.watch?.(heartbeat);
  return createPeer<C, S>(plain(socket), config, defaultHooks());
}

/** Returns a peer whose driver sends pings, and brings it another socket when one is lost. */
function drivenPeer<C extends Contract<C>, S extends Contract<S>>(
  admitted: Admitted,
  config: Config,
  plan: ClientPlan,
): Peer<C, S> {
  const driver = new ClientDriver(plan, admitted);
  driver.open();
  const peer = createPeer<C, S>(driver.link, config, defaultHooks());
  driver.run(peer);
  return peer;
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

/** A timer of 0 ms takes at least one; Node has something quicker. */
function nextTurn(task: () => void): void {
  const { setImmediate = setTimeout } = globalThis as { setImmediate?: (task: () => void) => unknown };
  setImmediate(task);
}
