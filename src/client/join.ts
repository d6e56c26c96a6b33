/** Joins a topic, and joins it again whenever this side may miss what its members get: what `follow` and `presence` share. */
import { isApplicationError, mistake, ProtocolError } from "../message/errors.js";
import { errorOfEnd, type CloseInfo } from "../message/transport.js";
import { connectionOf, type AnyPeer, type Peer, type PeerEvents } from "../peer/peer.js";
import { Backoff } from "./backoff.js";
import type { Store } from "./store.js";

/** How a topic is joined, and what the notifications to its members change. */
interface Source {
  /** Returns the params of the next join. */
  params(): object;
  /** Returns what the store shows after this reply to a join; `undefined` if the reply is no such one. */
  load(reply: Readonly<Record<string, any>>): object | undefined;
  /** Returns what a notification changes in what the store shows: `{}` if it is of another topic, `undefined` if one before it is missing. */
  apply(method: string, params: any): object | undefined;
  /** Returns true if notifications before `at`, the position in the reply, are missing when all that arrived are applied. */
  isBehind(at: unknown): boolean;
  /** The notification by which the peer leaves, and its params. Without a method, the peer stays a member. */
  readonly leave: readonly [method: string | undefined, params: object];
}

/** Notifications that arrived before the reply to a join. */
type Ahead = [method: string, params: unknown][];

/** The server was asked. `ahead`: `undefined` if some are missing, so that the peer joins again after the reply and a delay. */
interface Joining {
  ahead: Ahead | undefined;
}

/**
 * `waiting`: the peer joins when it is open. `following`: what the store shows is loaded. `failed`: the peer joins when the timer fires,
 * if there is one.
 */
type State = Joining | "waiting" | "following" | "failed" | "closed";

/** Beyond so many notifications during one join, the peer joins again. */
const MAX_AHEAD = 1_000;

/** Why a handler of the peer is refused: publications come by the event `notification`. */
export const WOULD_TAKE = "which would take the publications";

/** What the stores of a peer leave by, a text for each store that has called its method. */
const leaving = new WeakMap<AnyPeer, string[]>();

/**
 * Joins by `method`, and keeps current what `store` shows, with `isCurrent` and `error`. Returns a function that stops, and leaves. Throws a
 * `TypeError` for a peer with a `fallback`.
 */
export function joinTopic(peer: AnyPeer, method: string, { show, report }: Store<any>, source: Source): () => void {
  if (connectionOf(peer).config.fallback !== undefined) throw mistake(`Expected no \`fallback\`, ${WOULD_TAKE}`);
  const backoff = new Backoff();
  let state: State = "waiting";
  let retry: ReturnType<typeof setTimeout> | undefined;
  /** Resolves when the newest call has settled. */
  let settled: Promise<void> | undefined;
  /** Leaves the topic; `undefined` until the server was asked. */
  let leave: (() => void) | undefined;

  /** Shows what has changed. */
  const update = (changed?: object): void =>
    show({ ...changed, isCurrent: state === "following" && peer.state === "open" });

  const enter = (next: State, changed?: object): void => {
    clearTimeout(retry);
    state = next;
    update(changed);
  };

  /** Shows why the topic is not current. Joins again after a delay, unless the server refuses that, or the peer is closed. */
  const fail = (error: unknown): void => {
    enter("failed", { error });
    if (!isApplicationError(error) && peer.state !== "closed") retry = setTimeout(begin, backoff.nextDelayMs());
  };

  /** Joins when the peer is open: a page that shows many topics while it is offline queues nothing. The call of a closed peer rejects. */
  const begin = (): void => {
    if (!["open", "closed"].includes(peer.state)) return enter("waiting");
    leave ??= leaveLast(peer, ...source.leave);
    const joining: Joining = { ahead: [] };
    enter(joining);
    settled = call(joining);
  };

  /** Calls the method. The network may be lost for long before the reply arrives, so the call has no timeout. */
  const call = async (joining: Joining): Promise<void> => {
    let failure: unknown;
    try {
      const reply: unknown = await (peer as Peer).request(method, source.params(), { timeoutMs: Infinity });
      if (state === joining && joining.ahead !== undefined) return take(reply, joining.ahead);
    } catch (cause) {
      if (joining.ahead !== undefined) failure = cause;
    }
    if (state === joining) fail(failure);
  };

  /** Takes the reply to a join, and the notifications that arrived before it. */
  const take = (reply: unknown, ahead: Ahead): void => {
    const joined = Object(reply) as Record<string, any>;
    const loaded = source.load(joined);
    if (loaded === undefined) {
      const rule = `Expected "${method}" to return what \`topic.join\` with \`load\` or \`topic.present\` returns`;
      throw new ProtocolError(rule, reply);
    }
    backoff.succeeded();
    enter("following", { ...loaded, error: undefined });
    for (const [name, params] of ahead) receive(name, params);
    // What was replayed may have been dropped on its way.
    if (source.isBehind(joined["at"])) begin();
  };

  /** Takes a notification. Only publications and changes of lists have a position. */
  const receive = (name: string, params: any): void => {
    if (params?.at === undefined) return;
    if (typeof state === "object") {
      if (state.ahead !== undefined && state.ahead.push([name, params]) > MAX_AHEAD) state.ahead = undefined;
    } else if (state === "following") {
      try {
        const changed = source.apply(name, params);
        if (changed === undefined) begin();
        else update(changed);
      } catch (cause) {
        report(cause, name);
        fail(cause);
      }
    }
  };

  /** Joins again, because notifications may be missing. If a join is pending, does so after its reply and a delay. */
  const joinAgain = (): void => {
    if (typeof state === "object") state.ahead = undefined;
    else begin();
  };

  /** The peer is open, suspended or closed. */
  const wake = (): void => {
    if (state === "waiting") begin();
    else update();
  };

  const events = Object.entries({
    notification: receive,
    lost: joinAgain,
    missed: joinAgain,
    suspend: wake,
    resume: wake,
    close: (info: CloseInfo) => fail(errorOfEnd("the connection ended", info)),
  }) as [keyof PeerEvents, () => void][];

  begin();
  for (const [event, listener] of events) peer.on(event, listener);
  // The first connection emits no `resume`.
  peer.opened.then(wake, wake);
  return () => {
    if (state === "closed") return;
    enter("closed");
    for (const [event, listener] of events) peer.off(event, listener);
    // A handler may still join the peer: it must not do so after the peer has left.
    void settled?.then(leave);
  };
}

/** Counts a store. Returns a function that notifies `method`, unless another store with the same one and the same params is still to leave. */
function leaveLast(peer: AnyPeer, method: string | undefined, params: object): () => void {
  const key = JSON.stringify([method, params]);
  const keys = leaving.get(peer) ?? [];
  leaving.set(peer, keys);
  keys.push(key);
  return () => {
    keys.splice(keys.indexOf(key), 1);
    if (method !== undefined && !keys.includes(key)) (peer as Peer).notify(method, params);
  };
}
