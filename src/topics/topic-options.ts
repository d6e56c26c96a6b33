/** The rules and the options of a fleet's topics: their types and their checks. */
import { checkForms, exceeds, messageJson } from "../message/codec.js";
import type { CallArgs, Joined, MemberAs } from "../contract/contract.js";
import { expected } from "../message/errors.js";
import type { Jsonify } from "../message/jsonify.js";
import { any, anyFunction, checkOptions, isWellFormed, must, optional, positive } from "../message/options.js";
import type { AnyPeer } from "../peer/peer.js";
import { MAX_TOPIC_BYTES, type LogRule } from "./engine.js";

export type { Joined };

/** The rules of a topic. They must be the same on every node. `M`: the names of notifications. */
export interface TopicRules<M extends string = string> {
  /**
   * Logs the publications of the topic, so that clients recover them. `length`: 1 to 10,000 entries, default 1,000. `bytes`: 1 byte to
   * 64 MiB, default 1 MiB. `ttlMs`: 1 s to 7 days after the last publication, default 1 hour.
   */
  readonly log?: { readonly [K in keyof LogRule]?: LogRule[K] | undefined } | undefined;
  /**
   * Keeps the list of members. With the name of a notification, the members are notified by it of each member that joins, also again with
   * another `as`, and of each that leaves, with a `MemberChange`. A member is not notified of itself. A member that is slow or away gets
   * the newest change of each other member. Beyond 1,024 of them, and beyond the limits of its queue, changes are dropped: it emits `missed`.
   */
  readonly members?: true | NoInfer<M> | undefined;
}

/** The options of `join`. `T`: the state of the topic. */
export interface JoinOptions<T = unknown> {
  /**
   * The `at` of the last publication that the client has, or else that of its last `join`. `undefined` if the client knows no position:
   * then, and for anything else than a position, the outcome is `"gap"`.
   */
  since?: unknown;
  /** What others may know of the member, at most 4 KiB of JSON. Default: the peer is not in the list of members. */
  as?: MemberAs;
  /**
   * Returns or promises the state of the topic, which `value` then is. Called if the outcome is no `"complete"`, when the peer is a
   * member. The state must contain all that was published before.
   */
  load?: (() => T | PromiseLike<T>) | undefined;
}

/** The options of `publish`. */
export interface PublishOptions {
  /**
   * Within 2 minutes, a publication with the same key returns the same position and sends nothing, unless the log has begun anew. A
   * well-formed string of 1 to 256 characters.
   */
  key?: string | undefined;
  /** How long to wait for the broker, in milliseconds. Default 5,000. */
  timeoutMs?: number | undefined;
}

type Unplaced<P> = 0 extends 1 & P ? any : P extends object ? Omit<P, "at"> : P;

/** The arguments after the method's name in `publish`: the params without `at`, which the log adds. */
export type PublishArgs<M> =
  CallArgs<M, []> extends [params: infer P]
    ? {} extends Unplaced<P>
      ? [params?: Unplaced<P>, options?: PublishOptions]
      : [params: Unplaced<P>, options?: PublishOptions]
    : CallArgs<M, []> extends [params?: infer P]
      ? [params?: Unplaced<P>, options?: PublishOptions]
      : never;

/** The options of `read`. */
export interface ReadOptions {
  /** Reads what follows this position. Default: from the oldest entry. */
  since?: unknown;
  /** Maximum number of entries, 1 to 1,000. Default 100. The entry with which they reach 256 KiB is the last one. */
  limit?: number | undefined;
}

/** A part of a log. */
export interface LogEntries {
  /** The position of the last of these entries, or else that of the log, for the next `read`. */
  readonly at: string;
  /** Whether these entries follow `since` without a gap. */
  readonly outcome: "complete" | "gap";
  /** The entries, the oldest first. `params` are those that members got, with `at`. */
  readonly entries: readonly { readonly at: string; readonly method: string; readonly params: any }[];
}

/** A member of a topic, as `members()` and `watch` show it. */
export interface TopicMember {
  /** The id of the peer, which `server.peer(id)` takes. */
  readonly id: string;
  /** What `join` was given as `as`, by way of JSON. */
  readonly as: Jsonify<Exclude<MemberAs, undefined>>;
}

/** Gets each change in the list of members. A member whose `as` has changed has `"joined"` again. */
export type MemberListener = (event: "joined" | "left", member: TopicMember) => void;

/** How a message is sent to peers of this node. */
export interface SendOptions {
  /** The peers that are not notified. */
  readonly except?: { has(peer: AnyPeer): boolean } | undefined;
  readonly whenSlow: "drop" | "close";
  readonly volatile?: boolean | undefined;
  readonly latest?: string | undefined;
  /** Called once if peers that stay open do not get the message. `bytes`: its length. */
  readonly onDropped?: ((bytes: number) => void) | undefined;
}

/** Maximum number of members in the list of a topic. */
export const MAX_MEMBERS = 10_000;
const MAX_AS_BYTES = 4096;
const PUBLISH_TIMEOUT_MS = 5_000;

const whole = (from: number, to: number): ReturnType<typeof must<number>> =>
  must<number>(
    `a whole number from ${from} to ${to}`,
    (value) => Number.isSafeInteger(value) && value >= from && value <= to,
  );
/** The rule of a key, which completes "Expected .. to be ..". */
export const KEY_RULE = "a well-formed string of 1 to 256 characters";
export const isKey = (value: unknown): value is string =>
  typeof value === "string" && value !== "" && value.length <= 256 && isWellFormed(value);
/** What the names of the topics of this library begin with. */
export const RESERVED = "\0";
const isTopic = (value: unknown): boolean =>
  typeof value === "string" &&
  value !== "" &&
  !value.startsWith(RESERVED) &&
  !exceeds(value, MAX_TOPIC_BYTES) &&
  isWellFormed(value);

const LOG_RULE = {
  length: optional(whole(1, 10_000), 1_000),
  bytes: optional(whole(1, 64 * 2 ** 20), 2 ** 20),
  ttlMs: optional(whole(1_000, 7 * 86_400_000), 3_600_000),
};
/** Checks the rule of a log, and sets its defaults. */
export const checkLogRule = (value: unknown, name: string): LogRule =>
  checkOptions(name, value as object | undefined, LOG_RULE);
const RULES = {
  log: optional(checkLogRule),
  members: optional(must<true | string>("true or a string", (value) => value === true || typeof value === "string")),
};
export const JOIN_OPTIONS = { since: any, as: any, load: optional(anyFunction) };
export const PUBLISH_OPTIONS = {
  key: optional(must<string>(KEY_RULE, isKey)),
  timeoutMs: optional(positive, PUBLISH_TIMEOUT_MS),
};
export const READ_OPTIONS = { since: any, limit: optional(whole(1, 1_000), 100) };
export const MEMBERS_OPTIONS = { limit: optional(whole(1, MAX_MEMBERS), MAX_MEMBERS) };

/** The checked rules of a topic. */
export interface Rules {
  readonly logRule: LogRule | undefined;
  readonly memberRule: true | string | undefined;
}

/** Checks the rules of a topic, as the application returns them. */
export function checkRules(rules: unknown): Rules {
  const { log: logRule, members: memberRule } = checkOptions("rules", rules ?? {}, RULES);
  return { logRule, memberRule };
}

/**
 * Returns the name of a topic. Throws a `TypeError` for any other value. Each function of the application's side that takes a name calls
 * this one first, so no name is checked again. A broker replaces a lone surrogate, so two names would be one channel.
 */
export const topicName = must<string>(
  `a well-formed string of 1 to ${MAX_TOPIC_BYTES} bytes of UTF-8 that does not begin with U+0000`,
  isTopic,
);

/** Returns the JSON of a member's `as`. Throws a `TypeError` if it has none, or is too long. */
export function encodeAs(as: unknown): string {
  checkForms(as);
  const json = messageJson(as);
  if (json === undefined) throw expected("as", "a value with a JSON form", as);
  if (exceeds(json, MAX_AS_BYTES)) throw expected("as", `at most ${MAX_AS_BYTES} bytes of JSON`, json.length);
  return json;
}
