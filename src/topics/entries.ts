/** Logs in the memory of this process: bounded for each log, and for all together. */
import { utf8Bytes } from "../message/codec.js";
import { newEpoch, publicationName, type LogPage, type LogPart, type LogRule, type Position } from "./engine.js";

/** What is forgotten at `expiresAt`. */
interface Kept {
  readonly expiresAt: number;
}

interface Log extends Kept {
  /** By offset, without a gap. */
  readonly entries: Map<number, readonly [body: string, bytes: number]>;
  readonly bytes: number;
}

/** The last entries of logs. */
export class RecentEntries {
  readonly #maxBytes: number;
  /** By topic, in the order of the last entry. So those that expire are near the beginning. */
  readonly #logs = new Map<string, Log>();
  #bytes = 0;

  /** `maxBytes`: of all logs. Beyond that, the log that was not appended to for longest is dropped. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Adds the next entry of a log, and forgets the first ones beyond the rule. */
  append(topic: string, offset: number, body: string, rule: LogRule): void {
    const now = performance.now();
    const { entries = new Map(), bytes: before = 0 }: Partial<Log> = unexpired(this.#logs, topic, now) ?? {};
    const added = utf8Bytes(body);
    entries.set(offset, [body, added]);
    let bytes = before + added;
    while (entries.size > rule.length || (entries.size > 1 && bytes > rule.bytes)) {
      const first = offset - entries.size + 1;
      bytes -= entries.get(first)![1];
      entries.delete(first);
    }
    this.drop(topic);
    this.#logs.set(topic, { entries, bytes, expiresAt: now + rule.ttlMs });
    this.#bytes += bytes;
    // Each call adds one log at most, so it suffices to look at two.
    let left = 2;
    for (const [first, { expiresAt }] of this.#logs) {
      const isExpired = expiresAt <= now && left-- > 0;
      if (!isExpired && this.#bytes <= this.#maxBytes) return;
      this.drop(first);
    }
  }

  /** Returns the entries after an offset, until the page is full. */
  read(topic: string, after: number, page: LogPage): [offset: number, body: string][] {
    const entries: Log["entries"] = unexpired(this.#logs, topic, performance.now())?.entries ?? new Map();
    const [first = 0] = entries.keys();
    const found: [offset: number, body: string][] = [];
    let read = 0;
    for (let offset = Math.max(first, after + 1); found.length < page.length && read < page.bytes; offset++) {
      const [body, bytes] = entries.get(offset) ?? [];
      if (bytes === undefined) break;
      found.push([offset, body!]);
      read += bytes;
    }
    return found;
  }

  drop(topic: string): void {
    this.#bytes -= this.#logs.get(topic)?.bytes ?? 0;
    this.#logs.delete(topic);
  }
}

/** The entries of all logs together. */
const MAX_LOGS_BYTES = 128 * 2 ** 20;
/** How long the position of a `key` is kept, in milliseconds. */
const KEY_MS = 120_000;
/** How long the position of a log is kept after its entries. A node that missed nothing of a quiet log learns so for that time. */
const DAY_MS = 86_400_000;
/**
 * How many positions are kept of logs that have entries, and of those that have none yet, and how many keys. Beyond, the first one is
 * forgotten. A log without a position begins anew, which is a gap. A publication is repeated if its key is forgotten.
 */
const MAX_KEPT = 100_000;

/** The position of a log. */
interface Top extends Kept {
  readonly epoch: string;
  readonly top: number;
}

/** Logs as an engine keeps them, with their positions and keys. */
export class MemoryLogs {
  readonly #entries = new RecentEntries(MAX_LOGS_BYTES);
  /** By topic, in the order of the last publication, so that those that expire are near the beginning. */
  readonly #tops = new Map<string, Top>();
  /** Those that have begun and have no entry. Clients may choose their topics. In the order of the last read. */
  readonly #begun = new Map<string, Top>();
  /** By topic and key, in the order of the publication. */
  readonly #keys = new Map<string, Kept & { readonly position: Position }>();

  /** As `EngineLog.append`. `isNew`: whether the entry was appended. */
  append(topic: string, body: string, rule: LogRule, key: string | undefined): { position: Position; isNew: boolean } {
    const now = performance.now();
    const log = this.#topOf(topic, now);
    const keyName = key === undefined ? undefined : publicationName(topic, key);
    const earlier = keyName === undefined ? undefined : unexpired(this.#keys, keyName, now);
    // Only of this epoch: what was published in an earlier one is gone.
    if (earlier !== undefined && earlier.position.epoch === log?.epoch)
      return { position: earlier.position, isNew: false };
    const position = { epoch: log?.epoch ?? newEpoch(), offset: (log?.top ?? 0) + 1 };
    const { epoch, offset: top } = position;
    // Those of an earlier log, whose position was forgotten.
    if (top === 1) this.#entries.drop(topic);
    this.#entries.append(topic, top, body, rule);
    this.#begun.delete(topic);
    keep(this.#tops, topic, { epoch, top, expiresAt: now + rule.ttlMs + DAY_MS }, now);
    if (keyName !== undefined) keep(this.#keys, keyName, { position, expiresAt: now + KEY_MS }, now);
    return { position, isNew: true };
  }

  /** As `EngineLog.read`. */
  read(topic: string, after: number, page: LogPage, begin?: LogRule): LogPart {
    const now = performance.now();
    const { epoch, top } = this.#topOf(topic, now) ?? {
      epoch: begin === undefined ? "" : newEpoch(),
      top: 0,
    };
    // A log without entries is kept from the last read on.
    if (begin !== undefined && top === 0)
      keep(this.#begun, topic, { epoch, top, expiresAt: now + begin.ttlMs + DAY_MS }, now);
    return { epoch, top, entries: top === 0 ? [] : this.#entries.read(topic, after, page) };
  }

  #topOf(topic: string, now: number): Top | undefined {
    return unexpired(this.#tops, topic, now) ?? unexpired(this.#begun, topic, now);
  }
}

function unexpired<T extends Kept>(map: ReadonlyMap<string, T>, name: string, now: number): T | undefined {
  const kept = map.get(name);
  return kept !== undefined && kept.expiresAt > now ? kept : undefined;
}

/**
 * Puts a value at the end of a map. Forgets the first values if they have expired or are too many: each call adds at most one, so two
 * suffice.
 */
function keep<T extends Kept>(map: Map<string, T>, name: string, value: T, now: number): void {
  map.delete(name);
  map.set(name, value);
  let left = 2;
  for (const [first, { expiresAt }] of map) {
    if ((expiresAt > now && map.size <= MAX_KEPT) || left-- === 0) return;
    map.delete(first);
  }
}
