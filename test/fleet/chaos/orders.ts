/** What the world and the processes of its nodes send each other. All times are of `Date.now()`: there is one machine. */

/** The topic that is notified, and the topic with a log and members. */
export const PLAIN = "plain";
export const LOGGED = "logged";

/** How long a lease is, in milliseconds. */
export const LEASE_MS = 2_000;

/** How long a session is kept while its client is away, in milliseconds. */
export const SESSION_MS = 3_000;

/** What a node is started with. */
export interface NodeStart {
  /** The number of the process, from 1, over all nodes. */
  readonly run: number;
  readonly url: string;
  readonly prefix: string;
  readonly mutant: string | undefined;
}

/** An order to a node. */
export type Order =
  | { readonly kind: "notify"; readonly n: number }
  | { readonly kind: "publish"; readonly n: number; readonly key: string | undefined }
  | { readonly kind: "call"; readonly n: number; readonly peer: string }
  | { readonly kind: "members" }
  | { readonly kind: "health" }
  | { readonly kind: "close" };

/** What an order has done. `at`: the position of a publication. */
export interface Done {
  readonly time: number;
  readonly at?: string | undefined;
  readonly result?: unknown;
  readonly members?: readonly string[];
  readonly replica?: readonly string[];
  readonly ok?: boolean;
  /** The name and the outcome of the error. */
  readonly error?: { readonly text: string; readonly outcome: string | undefined };
}

/** A message of a node. */
export type Report =
  | { readonly kind: "listening"; readonly port: number }
  | { readonly kind: "done"; readonly order: number; readonly done: Done }
  | { readonly kind: "engine"; readonly state: "up" | "down"; readonly time: number }
  | { readonly kind: "gap"; readonly topic: string; readonly time: number }
  | { readonly kind: "member"; readonly event: "joined" | "left"; readonly id: string }
  | { readonly kind: "error"; readonly text: string };

/** What a client gets from `join`. */
export interface Welcome {
  readonly run: number;
  readonly id: string;
  readonly outcome: "complete" | "gap";
  readonly at: string | undefined;
}
