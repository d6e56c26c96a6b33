/** The names of subjects and streams in NATS: `<prefix>.1.<kind>.<name>`. */
import { createHash } from "node:crypto";
import { publicationName, VERSION, type Channel } from "../topics/engine.js";

/** What a stream keeps. `"l"`: logs. `"k"`: the positions of keys. */
export type StreamKind = "l" | "k";

const encoder = new TextEncoder();
/** A token that no name has: it begins as an escaped byte, and is none. */
const NO_NAME = "=";

/** Returns a name as one token of a subject: each byte outside `[A-Za-z0-9_-]` is written as `=XX`. */
export function tokenOf(name: string): string {
  return name.replace(/[^A-Za-z0-9_-]+/gu, (part) =>
    Array.from(encoder.encode(part), (byte) => `=${byte.toString(16).toUpperCase().padStart(2, "0")}`).join(""),
  );
}

/** Names the subjects and streams of one prefix. */
export class Names {
  readonly #prefix: string;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  channel(channel: Channel): string {
    return this.#name(channel[0]!, tokenOf(channel.slice(2)));
  }

  /** The subject under which the stream keeps the log of a topic. */
  log(topic: string): string {
    return this.#name("l", tokenOf(topic));
  }

  /** The subject that has the position of a key in one epoch. A hash, because NATS bounds the length of a subject. */
  key(topic: string, epoch: string, key: string): string {
    const hash = createHash("sha256").update(`${epoch}.${publicationName(topic, key)}`);
    return this.#name("k", hash.digest("base64url"));
  }

  /** A subject of a kind that belongs to no name. */
  none(kind: "t" | "u" | "n" | "a" | "k" | "l"): string {
    return this.#name(kind, NO_NAME);
  }

  /** All subjects of a kind. */
  all(kind: StreamKind | "t"): string {
    return this.#name(kind, ">");
  }

  /** What the subjects of answers begin with. */
  get inbox(): string {
    return this.#name("r", "i");
  }

  /** The name of a stream has no dots. */
  stream(kind: StreamKind): string {
    return `${this.#prefix}_${VERSION}_${kind}`;
  }

  #name(kind: string, name: string): string {
    return `${this.#prefix}.${VERSION}.${kind}.${name}`;
  }
}
