/** The names of subjects and streams in NATS: `<prefix>.1.<kind>.<name>`. */
import { createHash } from "node:crypto";
import { publicationName, VERSION } from "../fleet/frames.js";
import type { Channel, Incarnation } from "../fleet/engine.js";

/** What a stream keeps. `"l"`: logs. `"w"`: members. `"k"`: the positions of keys. */
export type StreamKind = "l" | "w" | "k";

const encoder = new TextEncoder();
/** A token that no name has: it begins as an escaped byte, and is none. */
const NO_NAME = "=";

/** Returns a name as one token of a subject: each byte outside `[A-Za-z0-9_-]` is written as `=XX`. */
export function tokenOf(name: string): string {
  return name.replace(/[^A-Za-z0-9_-]+/gu, (part) =>
    Array.from(encoder.encode(part), (byte) => `=${byte.toString(16).toUpperCase().padStart(2, "0")}`).join(""),
  );
}

/** Returns the name that a token has. */
export function nameOf(token: string): string {
  return decodeURIComponent(token.replaceAll("=", "%"));
}

/** Names the subjects and streams of one prefix. */
export class Names {
  readonly #prefix: string;
  readonly #kinds: ReadonlyMap<string, "l" | "w">;

  constructor(prefix: string) {
    this.#prefix = prefix;
    this.#kinds = new Map((["l", "w"] as const).map((kind) => [this.stream(kind), kind]));
  }

  channel(channel: Channel): string {
    return this.#name(channel[0]!, tokenOf(channel.slice(2)));
  }

  /** The signs of life of an incarnation; without one, of all. */
  lease(incarnation?: Incarnation): string {
    return this.#name("h", incarnation === undefined ? ">" : incarnation.replace("/", "."));
  }

  /** The subject under which a stream keeps what belongs to a topic. `"l"`: its log. `"w"`: its members. */
  kept(kind: "l" | "w", topic: string): string {
    return this.#name(kind, tokenOf(topic));
  }

  /** Returns the subject whose message says that an incarnation has members in a topic. */
  owned(incarnation: Incarnation, topic: string): string {
    return this.#name("o", `${incarnation.replace("/", ".")}.${tokenOf(topic)}`);
  }

  /** Returns the subject whose message says that an incarnation is there. */
  entered(incarnation: Incarnation): string {
    return this.#name("o", `${incarnation.replace("/", ".")}.${NO_NAME}`);
  }

  /** The subjects of `owned` and `entered` of an incarnation; without one, those of all. */
  ownedBy(incarnation?: Incarnation): string {
    return this.#name("o", incarnation === undefined ? ">" : `${incarnation.replace("/", ".")}.>`);
  }

  /** Returns the incarnation and the topic of `owned`, without a topic for `entered`; `undefined` if the subject is another one. */
  static readOwned(subject: string): [incarnation: Incarnation, topic: string | undefined] | undefined {
    const [node, number, token] = subject.split(".").slice(-3);
    try {
      return [`${node!}/${Number(number)}`, token === NO_NAME ? undefined : nameOf(token!)];
    } catch {
      // Another program has chosen it.
      return undefined;
    }
  }

  /** The subject that has the position of a key. A hash, because NATS bounds the length of a subject. */
  key(topic: string, key: string): string {
    return this.#name("k", createHash("sha256").update(publicationName(topic, key)).digest("base64url"));
  }

  /** A subject of a kind that belongs to no name. */
  none(kind: "t" | "n" | "a" | "h" | "k" | "l" | "w" | "o"): string {
    return this.#name(kind, NO_NAME);
  }

  /** All subjects of a kind. */
  all(kind: StreamKind | "o" | "t"): string {
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

  /** Returns what the stream of this name keeps: logs or members; `undefined` for any other. */
  kindOf(stream: string | undefined): "l" | "w" | undefined {
    return this.#kinds.get(stream ?? "");
  }

  /** Begins the subjects by which a node tells a consumer of a stream to go on. */
  flow(kind: StreamKind): string {
    return `$JS.FC.${this.stream(kind)}.`;
  }

  #name(kind: string, name: string): string {
    return `${this.#prefix}.${VERSION}.${kind}.${name}`;
  }
}
