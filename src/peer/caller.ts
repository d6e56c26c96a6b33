/** How one side calls the other. A peer and a batch have it in common. */
import { shownAs } from "../message/codec.js";
import type { CallArgs, CallOptions, Contract, NotifyName, Remote, Result } from "../contract/contract.js";

/** Calls and notifies the other side, whose contract is `R`. */
export interface Caller<R extends Contract<R>> {
  /** The other side's methods as functions: `remote.add([1, 2])` is `request("add", [1, 2])`. */
  readonly remote: Remote<R>;
  /**
   * Calls a method and promises its result. `params` is sent as it is, an array or an object. A Map, a Set, an Error, a promise,
   * a Blob, an ArrayBuffer or a view of one, as params or as a member of them, is refused with a `TypeError`; deeper down it
   * becomes what `JSON.stringify` makes of it. Of an array, 100 entries are looked at.
   *
   * Rejects with `RpcError` (the other side's answer), `TimeoutError`, the signal's reason, `ConnectionLostError` (see its
   * `outcome`), `ProtocolError` (a malformed answer), `TooLargeError` (longer than the other side takes; nothing was sent) or
   * `TypeError` (bad arguments; nothing was sent). It never throws.
   * While the connection is suspended, the call is queued and its timeout runs. If the connection is lost or closes, the call rejects,
   * unless `retry` makes it again.
   */
  request<K extends keyof R & string>(method: K, ...args: CallArgs<R[K]>): Promise<Result<R[K]>>;
  /**
   * Notifies a method: no response comes, whatever happens (JSON-RPC 2.0, section 4.1). Returns true if the message was sent or
   * queued, and false if it will not be sent, such as after the connection has closed. If it is longer than the other side accepts,
   * the peer emits `error` with a `TooLargeError`. Throws a `TypeError` for params without a JSON form or that are neither array nor
   * object.
   */
  notify<K extends NotifyName<R>>(method: K, ...args: CallArgs<R[K], []>): boolean;
}

/** Members that awaiting or printing an object reads. None of them, nor `toJSON`, may become a call. */
const NOT_METHODS = new Set<string | symbol>(["then", "toString", "valueOf"]);

function toJSON(key: string): never {
  return shownAs("remote", "`remote` of a peer", "write `peer.id`", key);
}

/** The `remote` of a caller. */
export function remoteOf(call: (method: string, params?: unknown, options?: CallOptions) => Promise<unknown>): any {
  return new Proxy(Object.freeze({}), {
    get(_target, method) {
      if (typeof method === "symbol" || NOT_METHODS.has(method)) return undefined;
      if (method === "toJSON") return toJSON;
      return (params: unknown, options?: CallOptions) => call(method, params, options);
    },
  });
}

/** Takes calls and notifications, untyped. */
export interface Calls {
  readonly request: (method: string, params?: unknown, options?: CallOptions) => Promise<any>;
  readonly notify: (method: string, params?: unknown) => boolean;
}

/** Returns a caller with the members of `calls`. */
export function callerOf<R extends Contract<R>, C extends Calls>(calls: C): Caller<R> & C {
  return { remote: remoteOf(calls.request), ...calls } as Caller<R> & C;
}
