/** The types of the React entry. Nothing here exists at run time. */
import type { ReactElement, ReactNode } from "react";
import type { Supplied } from "../client/credentials.js";
import type { ConnectOptions } from "../connect.js";
import type {
  CallArgs,
  CallOptions,
  Contract,
  Handler,
  Handlers,
  Item,
  NotifyName,
  Params,
  StreamName,
} from "../contract/contract.js";
import type { AnyPeer, Context, Options, Peer } from "../peer/peer.js";

/**
 * The options of a provider: those of `open`. `methods` may be incomplete, also beside a `contract` of schemas, because the hooks
 * serve the contract too. But `schemas` may have only the names in `methods`.
 */
export type ProviderOptions<S extends Contract<S>, C extends Contract<C>> = ConnectOptions<S> &
  Omit<Options<C, Context<C, S>>, "methods"> & { methods?: Partial<Handlers<C, Context<C, S>>> | undefined };

/** An address, as `open` takes it. */
type Address = Supplied<string | URL>;

/** The props of a provider. */
export interface ProviderProps<S extends Contract<S>, C extends Contract<C>> {
  /**
   * The address of the server, as `open` takes it. If it changes to another string or `URL`, the peer closes, and a new one opens.
   * A function is compared by its source text, so a function that each render makes anew changes nothing.
   */
  url: Address;
  /**
   * The options of the peer. They are read when it opens, and later changes have no effect. Unlike `open`, the default of
   * `reconnect` is `{ initial: true }`: a page that is loaded while the server restarts connects when it can.
   */
  options?: ProviderOptions<S, C> | undefined;
  /**
   * The function that opens the peer. Default: `open` of `reciproc`. A test can give one that connects in memory, and a page one that opens
   * a tab of `reciproc/tabs`, with the options except `reconnect`.
   */
  open?: ((url: Address, options: ConnectOptions<S> & Options<C, Context<C, S>>) => Peer<C, S>) | undefined;
  children?: ReactNode;
}

/** Options of `useStream`. They are read when the stream begins. A stream begins again if `keep` changes. */
export interface StreamOptions extends Omit<CallOptions, "signal"> {
  /** How many of the newest values `items` contains. Default 1,000. */
  keep?: number | undefined;
}

/** What a component sees of a stream. */
export interface StreamState<T> {
  /** The newest values, at most `keep`, the oldest first. A new array each time that values arrive. */
  readonly items: readonly T[];
  /** The newest value; `undefined` before the first. */
  readonly last: T | undefined;
  /** Whether the stream has ended, with or without an error. */
  readonly done: boolean;
  /** What reading rejected with, as `peer.stream` documents it; `undefined` while there is no error. */
  readonly error: unknown;
  /** Begins the stream again, without values. The function stays the same. */
  readonly restart: () => void;
}

/** What a component sees of the connection of its provider. */
export interface ConnectionState {
  /** The `state` of the peer. While a server renders the page, it is `"connecting"`. */
  readonly state: AnyPeer["state"];
  /** Why the peer is not open: why its newest attempt failed, why the connection was lost, or why the peer closed. `undefined` if it is open. */
  readonly cause: Error | undefined;
  /** The seconds until the client tries to connect, rounded up. `undefined` if it does not wait for an attempt. */
  readonly countdown: number | undefined;
  /** Tries to connect at once, as `peer.reconnect()` does. The function stays the same. */
  readonly retryNow: () => void;
}

/** A provider and its hooks, for a page that calls a server which serves `S`, and that serves `C` itself. */
export interface Reciproc<S extends Contract<S>, C extends Contract<C>> {
  /**
   * Owns a peer, and gives it to the hooks below it. The peer opens when a component first reads it, or when the provider is
   * mounted. It closes with 1000 a tick after the provider was unmounted, so StrictMode opens one connection. If the provider is
   * never mounted, because it or a component suspends, the peer closes after 30 s. While a server renders the page, the peer is
   * closed, opens no socket, and rejects calls with `ConnectionLostError`. Throws a `TypeError` for a bad option.
   */
  readonly Provider: (props: ProviderProps<S, C>) => ReactElement;
  /** Returns the peer of the provider. It is the same until the provider is unmounted or gets another `url`. Throws without a provider. */
  readonly usePeer: () => Peer<C, S>;
  /** Returns the `state` of the peer. While a server renders the page, it is `"connecting"`. */
  readonly useStatus: () => AnyPeer["state"];
  /** Returns the state of the connection, for a line that says why the page is offline and when it tries again. Renders each second meanwhile. */
  readonly useConnection: () => ConnectionState;
  /**
   * Calls `listener` for each notification of `method`, as long as the component is mounted. Several components may listen. The
   * listener of the latest render is called, in the order of arrival, in the tick after the notification arrived. So a call whose
   * response arrived before it has called back by then. Notifications that `methods` or a `useHandler` serves are not seen here. If
   * the listener throws or rejects, the peer emits `error`.
   */
  readonly useNotification: <K extends NotifyName<C>>(method: K, listener: (params: Params<C[K]>) => unknown) => void;
  /**
   * Serves `method` as long as the component is mounted, with the handler of the latest render. Only one component at a time may
   * serve a method; a second throws a `TypeError`. It replaces a handler in `methods`. Unmounting does not abort running calls.
   */
  readonly useHandler: <K extends keyof C & string>(method: K, handler: Handler<C[K], Context<C, S>>) => void;
  /**
   * Calls `method` and reads the stream that it returns, as `peer.stream` does, while the component is mounted. Begins again if
   * `method`, the JSON of `params` or `keep` changes, and stops when the component is unmounted. Values that arrive in one tick are
   * shown in one render. A stream whose connection is lost ends with `error`; call `restart` to read it again.
   */
  readonly useStream: <K extends StreamName<S>>(
    method: K,
    ...args: CallArgs<S[K], [options?: StreamOptions]>
  ) => StreamState<Item<S[K]>>;
}
