/// <reference types="node" preserve="true" />
/** The entry for Node: everything of `index.ts`, `serve`, and `open` and `connect` that send headers. */
import type { IncomingMessage } from "node:http";
import type { ConnectionOptions } from "node:tls";
import type { ClientOptions } from "ws";
import { CONNECT_OPTIONS, openPeer, whenOpen, type ConnectOptions, type OpenArguments } from "./connect.js";
import { publicUrl, type Attempt, type Supplied } from "./client/credentials.js";
import type { ClientPlan } from "./client/driver.js";
import type { OpeningSocket } from "./client/open.js";
import type { AnyMethods, Contract } from "./contract/contract.js";
import { ConnectError } from "./message/errors.js";
import { checkOptions, isPlain, must, optional } from "./message/options.js";
import { allFeatures } from "./features/all.js";
import { pairOf, type pair as pagePair } from "./pair.js";
import { Peer as PagePeer, type Context, type Options } from "./peer/peer.js";
import { NodeLink } from "./session/node-link.js";
import { longestFrame } from "./session/sizes.js";
import { CLOSE_TIMEOUT_MS, GatheringWebSocket, pieceLimits, WsSocket } from "./socket/ws.js";

type Headers = Readonly<Record<string, string | readonly string[]>>;

/** The options of `open` and `connect` on Node. */
export interface NodeConnectOptions<S extends Contract<S> = any> extends ConnectOptions<S> {
  /**
   * Headers of the upgrade request, such as `Authorization` or `Cookie`; or a function that returns or promises them, and is called
   * for each connection attempt. If it throws or rejects, the attempt fails, as for `auth`. Default: none.
   */
  headers?: Headers | ((attempt: Attempt) => Headers | undefined | PromiseLike<Headers | undefined>) | undefined;
  /** Options of the TLS connection, as `tls.connect` takes them: `ca`, `cert`, `key`, `servername`, `rejectUnauthorized`. */
  tls?: ConnectionOptions | undefined;
}

export * from "./index.js";

/** The `Peer` of `reciproc`, with all features. Every peer is an instance of it. */
export class Peer<L extends Contract<L> = AnyMethods, R extends Contract<R> = AnyMethods, A = unknown> extends PagePeer<
  L,
  R,
  A
> {
  /** @internal */
  static override readonly features = allFeatures;

  static override [Symbol.hasInstance](value: unknown): boolean {
    return this === Peer ? value instanceof PagePeer : super[Symbol.hasInstance](value);
  }
}

/** The `pair` of `reciproc`, whose peers have all features. */
export const pair: typeof pagePair = (a: any, b: any): any => pairOf(Peer, a, b);

export { serve } from "./serve.js";
export { Server, type ServeOptions, type ServerContext, type ServerEvents } from "./server/server.js";
export type { Group, NotifyOptions, Topic, TopicGroup } from "./server/groups.js";
export type { GroupCall, ServerAround, ServerCall } from "./server/around.js";
export type { GroupRequestOptions } from "./server/group-request.js";
export type { LeaveReason, TopicEvents } from "./server/topics.js";
export type { FleetOptions } from "./server/options.js";
export { attach, type Attached, type AttachOptions, type AttachedTopic } from "./attach.js";
export { memory } from "./topics/memory.js";
export {
  EngineError,
  logFrame,
  type Channel,
  type Engine,
  type EngineConnection,
  type EngineFacts,
  type EngineHost,
  type EngineLog,
  type EngineSettings,
  type LogPage,
  type LogPart,
  type LogRule,
  type NodeName,
  type Position,
} from "./topics/engine.js";
export type { EngineState, EngineStats, FleetEvents, Health, NodeContext, NodeMethods, Nodes } from "./topics/host.js";
export type { Except, PeerOutcome, Principal, RemotePeer } from "./topics/remote.js";
export type {
  JoinOptions,
  LogEntries,
  PublishOptions,
  ReadOptions,
  TopicMember,
  TopicRules,
} from "./topics/topic-options.js";
export type { DrainOptions } from "./server/drain.js";
export type { ServerStats } from "./server/stats.js";
export type { ServerLimits } from "./server/limits.js";
export { limits } from "./features/limits.js";
export {
  Subscriptions,
  type Subscription,
  type SubscriptionId,
  type SubscriptionLimits,
  type SubscriptionsOptions,
} from "./features/subscriptions.js";
export type { Refusal } from "./server/upgrade.js";

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
 * Uses the `ws` package. Throws a `TypeError` for a bad option, which names the option, the rule and the value.
 */
export function open<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods>(
  url: Supplied<string | URL>,
  ...options: OpenArguments<C, S, Options<NoInfer<C>, Context<C, S>> & NodeConnectOptions<NoInfer<S>>>
): Peer<C, S> {
  return openByWs<C, S>(url, options[0]).peer;
}

/**
 * Does what `open` does, and resolves with the peer when it is open. Without `onOpen`, the server's first messages are dispatched
 * only after that, so listeners that are added directly after `await connect(..)` miss nothing. With `onOpen`, they are dispatched
 * from the tick after `onOpen` was called.
 *
 * Uses the `ws` package. Rejects with `ConnectError` if the connection cannot be opened (with `status` if HTTP refused it), with the
 * reason of `signal` if that aborts, and with a `TypeError` for a bad option, which names the option, the rule and the value.
 */
export async function connect<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods>(
  url: Supplied<string | URL>,
  ...options: OpenArguments<C, S, Options<NoInfer<C>, Context<C, S>> & NodeConnectOptions<NoInfer<S>>>
): Promise<Peer<C, S>> {
  return whenOpen(openByWs<C, S>(url, options[0]));
}

function openByWs<C extends Contract<C>, S extends Contract<S>>(
  url: Supplied<string | URL>,
  options: object | undefined,
): ReturnType<typeof openPeer<C, S>> {
  const checked = checkOptions("options", options, NODE_CONNECT_OPTIONS);
  const { tls, use } = checked;
  return openPeer<C, S>(
    url,
    // Without `use`, the same list for all clients: its features are gathered once.
    { ...checked, use: use === undefined ? allFeatures : [...allFeatures, ...use] },
    // A function of each client would take memory.
    tls === undefined ? openWs : (to, protocols, maxBytes, headers) => openWs(to, protocols, maxBytes, headers, tls),
    NodeLink,
    sharePlan,
  );
}

/** The plan of the newest client. Those that follow with equal options share it, which saves 1.2 KB for each. */
let newestPlan: WeakRef<ClientPlan> | undefined;

function sharePlan(made: ClientPlan): ClientPlan {
  const newest = newestPlan?.deref();
  if (newest !== undefined && areEqual(newest, made)) return newest;
  newestPlan = new WeakRef(made);
  return made;
}

/** Compares Maps and plain objects by their members, down to `depth`. Compares other values by identity, as they may have private members. */
function areEqual(a: unknown, b: unknown, depth = 3): boolean {
  if (Object.is(a, b)) return true;
  if (depth === 0) return false;
  if (a instanceof Map && b instanceof Map) {
    for (const [key, value] of a) if (b.get(key) !== value) return false;
    return a.size === b.size;
  }
  if (!isPlain(a) || !isPlain(b)) return false;
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length &&
    names.every((name) => Object.hasOwn(b, name) && areEqual(a[name as never], b[name as never], depth - 1))
  );
}

const NODE_CONNECT_OPTIONS = {
  ...CONNECT_OPTIONS,
  headers: optional(must<object>("a plain object or a function", (it) => typeof it === "function" || isPlain(it))),
  tls: optional(must<ConnectionOptions>("a plain object", isPlain)),
};

function openWs(
  url: string,
  protocols: string[],
  maxMessageBytes: number,
  headers: unknown,
  tls?: object,
): OpeningSocket {
  const maxPayload = longestFrame(maxMessageBytes);
  const options = {
    headers: headers as ClientOptions["headers"],
    perMessageDeflate: false,
    maxPayload,
    closeTimeout: CLOSE_TIMEOUT_MS,
    // `socket/ws.ts` sends the pongs, within a limit.
    autoPong: false,
    ...pieceLimits(maxPayload),
  };
  const webSocket = new GatheringWebSocket(url, protocols, tls ? { ...tls, ...options } : options);
  const socket = new WsSocket(webSocket, maxMessageBytes);
  /** Whether the offer may be the cause of the failure. The response itself is not kept, because it would live as long as the connection. */
  let mayOfferBeCause = false;
  const opened = new Promise<string>((resolve, reject) => {
    const failed = (cause: NodeJS.ErrnoException): void => {
      const { code } = cause;
      const reason = NOT_TLS.test(`${code}`)
        ? "the server does not speak TLS here; try ws:"
        : cause.message || code || "unknown error";
      reject(new ConnectError(publicUrl(url), reason, { cause }));
    };
    webSocket.on("error", failed);
    webSocket.once("upgrade", (response) => (mayOfferBeCause = blamesOffer(response)));
    webSocket.once("unexpected-response", (_request, refusal: IncomingMessage) => {
      mayOfferBeCause = blamesOffer(refusal);
      reject(refused(url, refusal));
      webSocket.terminate();
    });
    webSocket.once("open", () => {
      // An open socket needs these no more, and would keep them and the promise in memory.
      webSocket.off("error", failed).removeAllListeners("unexpected-response");
      resolve(webSocket.protocol);
    });
  });
  return { socket, opened, mayOfferBeCause: () => mayOfferBeCause, abandon: () => webSocket.terminate() };
}

/** The codes of a TLS handshake that gets other bytes than those of TLS, such as a response of HTTP. */
const NOT_TLS = /^(EPROTO|ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG)$/;

/** Returns true for a 101 without a subprotocol, which `ws` reports as a failure, and for a status with which servers refuse unknown subprotocols. */
function blamesOffer({ statusCode: status, headers }: IncomingMessage): boolean {
  if (status === 101) return headers["sec-websocket-protocol"] === undefined;
  return status === 400 || status === 426;
}

function refused(url: string, { statusCode: status, statusMessage }: IncomingMessage): ConnectError {
  const reason = `HTTP ${status} ${statusMessage}`;
  return new ConnectError(publicUrl(url), reason, { status, cause: new Error(`the server answered ${reason}`) });
}
