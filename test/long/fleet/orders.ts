/** What the world and the processes of its nodes send each other. All times are of `Date.now()`: there is one machine. */

/** The topic that is notified, and the topic with a log and members. */
export const PLAIN = "plain";
export const LOGGED = "logged";

/** How long a lease is, in milliseconds. */
export const LEASE_MS = 2_000;

/** How long a session is kept while its client is away, in milliseconds. */
export const SESSION_MS = 3_000;

/** How long calls and publications may take, in milliseconds. */
export const TIMEOUT_MS = 4_000;

/** The kinds of brokers. */
export type BrokerKind = "redis" | "nats" | "cluster";

/** Where a broker is: one URL, or those of a cluster. */
export interface BrokerPlace {
  readonly kind: BrokerKind;
  readonly urls: readonly string[];
  /** The ports of the broker, and those of the proxies in front of them. */
  readonly detours: readonly (readonly [port: number, proxy: number])[];
}

/** What a node is started with. */
export interface NodeStart {
  /** The number of the process, from 1, over all nodes. */
  readonly run: number;
  readonly place: BrokerPlace;
  readonly prefix: string;
  readonly mutant: string | undefined;
}

/** An order to a node. */
export type Order =
  | { readonly kind: "notify"; readonly n: number }
  | { readonly kind: "publish"; readonly n: number; readonly key: string | undefined }
  | { readonly kind: "call"; readonly n: number; readonly peer: string }
  /** Notifies the other nodes, so often and with so many bytes. */
  | { readonly kind: "flood"; readonly count: number; readonly bytes: number }
  | { readonly kind: "members" }
  /** Reads the position of the last entry of the log. */
  | { readonly kind: "top" }
  | { readonly kind: "health" };

/** What an order has done. */
export interface Done {
  /** When the order was done. */
  readonly time: number;
  /** How long the process ran meanwhile, in milliseconds. */
  readonly tookMs: number;
  /** The position of a publication, or of the last one. */
  readonly at?: string | undefined;
  readonly result?: unknown;
  readonly members?: readonly string[];
  readonly replica?: readonly string[];
  readonly ok?: boolean;
  /** The text and the outcome of the error. */
  readonly error?: { readonly text: string; readonly outcome: string | undefined };
}

/** A message of a node. */
export type Report =
  | { readonly kind: "listening"; readonly port: number }
  | { readonly kind: "done"; readonly order: number; readonly done: Done }
  | { readonly kind: "engine"; readonly state: "up" | "down"; readonly text: string; readonly time: number }
  | { readonly kind: "member"; readonly event: "joined" | "left"; readonly id: string }
  | { readonly kind: "error"; readonly text: string };

/** What a client gets from `join`. */
export interface Welcome {
  readonly run: number;
  readonly id: string;
  readonly outcome: "complete" | "gap";
  readonly at: string | undefined;
}
