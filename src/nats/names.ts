/** The names of subjects and streams in NATS: `<prefix>.1.<kind>.<name>`. */
import { VERSION } from "../fleet/frames.js";
import type { Channel, Incarnation } from "../fleet/engine.js";

const encoder = new TextEncoder();

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

  constructor(prefix: string) {
    this.#prefix = prefix;
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

  /** All subjects of a kind. */
  all(kind: "l" | "w" | "t"): string {
    return this.#name(kind, ">");
  }

  /** The name of a stream has no dots. */
  stream(kind: "l" | "w"): string {
    return `${this.#prefix}_${VERSION}_${kind}`;
  }

  #name(kind: string, name: string): string {
    return `${this.#prefix}.${VERSION}.${kind}.${name}`;
  }
}
