/**
 * The names of keys and channels in Redis: `<prefix>:1:{tag}:<kind>:<name>`. A cluster keeps all keys with the same tag on one server,
 * so a script may use them together. Without a cluster the tags are the same, so that a deployment can move to one.
 */
import { publicationName, VERSION, type Channel } from "../topics/engine.js";

/** Each tag is in the middle of one of 64 ranges of 256 slots, so the tags are spread evenly over the servers of a cluster. */
const TAGS = (
  "mm ry 9i e8 v1 qt ap ax tb kv dn df wo o6 gc xw 8g d6 lc 02 g3 pk on pz 99 zt ul m5 fm yy va iu " +
  "si k0 ce 8y pd op x9 x1 jf ur zj b3 ik q2 yg fs bk z2 rg ms af an qj i3 c5 dp kh 0t xi xa he 44"
).split(" ");

/** The number of tags. A tag is an index below it. */
export const TAG_COUNT = TAGS.length;

/** CRC16 of XMODEM, by which Redis maps keys to slots, for each byte. */
const CRC = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit++) crc = (crc & 0x8000) === 0 ? crc << 1 : (crc << 1) ^ 0x1021;
  return crc;
});
const encoder = new TextEncoder();

function crc16(text: string): number {
  let crc = 0;
  for (const byte of encoder.encode(text)) crc = ((crc << 8) & 0xffff) ^ CRC[(crc >> 8) ^ byte]!;
  return crc;
}

/** The hash slot of each tag in a cluster. */
export const SLOT_OF_TAG: readonly number[] = TAGS.map((tag) => crc16(tag) % 16_384);

/** A key or channel of Redis, and its tag. */
export interface Place {
  readonly name: string;
  readonly tag: number;
}

/** Names the keys and channels of one prefix. */
export class Names {
  readonly #prefix: string;

  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  channel(channel: Channel): Place {
    const tag = tagOf(channel.slice(2));
    return { tag, name: this.#name(tag, channel[0]!, channel.slice(2)) };
  }

  /** The keys of a log: of its hash, its stream and its channel. */
  log(topic: string): { tag: number; keys: string[] } {
    const tag = tagOf(topic);
    return { tag, keys: ["m", "l", "t"].map((kind) => this.#name(tag, kind, topic)) };
  }

  /** The key that has the position of a publication with `key`. Its tag is that of the topic. */
  publication(topic: string, tag: number, key: string): string {
    return this.#name(tag, "k", publicationName(topic, key));
  }

  /** A key of a tag that has no value after a script. It shows which commands the server accepts. */
  probe(tag: number): string {
    return this.#name(tag, "probe");
  }

  #name(tag: number, kind: string, name?: string): string {
    return `${this.#prefix}:${VERSION}:{${TAGS[tag]}}:${kind}${name === undefined ? "" : `:${name}`}`;
  }
}

function tagOf(name: string): number {
  return crc16(name) % TAG_COUNT;
}
