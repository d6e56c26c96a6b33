/**
 * The frames that nodes send each other: a head of fields separated by tabs, a line break, and the body. The first field is the
 * version and the kind. New fields are only added at the end, and a node ignores fields that it does not know.
 */

import { VERSION, type Channel } from "../topics/engine.js";

/** The kinds of frames. */
export const Kind = {
  /** A notification to the peers of a topic, or to all peers: from, except (ids, separated by commas), slow, isVolatile, latest. */
  Notify: "N",
  /**
   * A notification to the peers of several topics or of all, or not to those of some: as `Notify`. The body begins with a line of JSON:
   * the names of the topics, or null for all peers, and those of the topics whose members get nothing. A kind of its own, because a node
   * that does not know it must ignore it.
   */
  Union: "U",
  /** An entry of a log: epoch, offset. The body is a notification without `at`. */
  Log: "L",
  /** A notification to one peer: from, peer. */
  One: "O",
  /** A member joined a topic, or changed its `as`: from, number, before, id. The body is its `as`. */
  Joined: "j",
  /** A member left a topic: from, number, before, id. */
  Left: "l",
  /** A call to a peer: call, from, peer, timeoutMs, flags. The body is a notification. */
  Call: "q",
  /** The answer to a call: call, from, verdict, outcome. The body is the result or the error. */
  Answer: "a",
  /** A progress report of a call: call, from. The body is the value. */
  Progress: "p",
  /** The caller of a call no longer waits: call, from. */
  Cancel: "c",
  /** Closes a peer, and is answered: call, from, peer, code. The body is the reason, as JSON. */
  Close: "x",
  /** Something for all peers of a principal: question, from, verb, code, principal, ageMs. The body is a notification or a reason. */
  Principal: "u",
  /** The answer: question, from. The body is the ids of the peers, or how many were closed. */
  PeersOf: "r",
  /** A client has discarded a session: from, hash, hasPrincipal, principal. */
  SessionOver: "z",
  /** A notification to the other nodes: from. */
  Nodes: "s",
  /** A node lives, or ends: from, number, leaseMs, note. */
  Beat: "b",
  /** What a node has said last of a topic: from, number of its members, epoch, offset. */
  Digest: "d",
  /** Which members another node has in a topic: from, topic. The body is what the node knows: a node and a number in each line. */
  Question: "k",
  /** The answer: from, topic, number, part, isLast. The body is a list of ids and `as`. An empty part: nothing has changed. */
  Members: "m",
} as const;

/** The end of a name that is in a channel, in code points: not more bytes than a topic may have, and one for the point. */
const MAX_END_LENGTH = 127;

/** Returns the channel of a principal: that of all principals whose names have the same end. A broker may refuse an empty name. */
export function channelOf(principal: string): Channel {
  return `u:.${Array.from(principal).slice(-MAX_END_LENGTH).join("")}`;
}

/** Returns true if a text can be the name of a node. */
export function isNodeName(name: string): boolean {
  return /^[A-Za-z0-9_-]{1,64}$/.test(name);
}

/** A frame that was read: its kind, its fields and its body. */
export interface ReadFrame {
  readonly kind: string;
  readonly fields: readonly string[];
  readonly body: string;
}

/** No head is longer: names, ids and keys are bounded. A frame without a line break is not searched to its end. */
const MAX_HEAD_LENGTH = 65_536;

/** Returns the text of a frame. Escapes the fields, which may be any text. */
export function frameOf(kind: string, fields: readonly (string | number)[], body = ""): string {
  let head = VERSION + kind;
  for (const field of fields) head += `\t${typeof field === "number" ? field : escapeField(field)}`;
  return `${head}\n${body}`;
}

/** Reads a frame. Returns `undefined` for a text that is no frame, or one of another version. */
export function readFrame(text: string): ReadFrame | undefined {
  const end = text.slice(0, MAX_HEAD_LENGTH).indexOf("\n");
  if (end < 2 || text[0] !== VERSION) return undefined;
  const [first, ...fields] = text.slice(1, end).split("\t");
  if (first!.length !== 1) return undefined;
  return { kind: first!, fields: fields.map(unescapeField), body: text.slice(end + 1) };
}

/** Whatever is not printable ASCII, and the escape character itself, is written as `%` and the four digits of its code unit. */
function escapeField(field: string): string {
  return field.replace(/[^!-~]|%/g, (unit) => `%${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function unescapeField(field: string): string {
  if (!field.includes("%")) return field;
  return field.replace(/%([0-9a-f]{4})/g, (_all, code: string) => String.fromCharCode(parseInt(code, 16)));
}
