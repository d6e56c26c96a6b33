/** The last entries of logs, in the memory of this process: bounded for each log, and for all together. */
import { utf8Bytes } from "../core/codec.js";
import type { LogPage, LogRule } from "./engine.js";

interface Log {
  /** Without a gap. */
  readonly entries: (readonly [offset: number, body: string, bytes: number])[];
  readonly bytes: number;
  readonly expiresAt: number;
}

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
    const { entries, bytes: before }: Pick<Log, "entries" | "bytes"> = this.#find(topic, now) ?? {
      entries: [],
      bytes: 0,
    };
    const added = utf8Bytes(body);
    entries.push([offset, body, added]);
    let bytes = before + added;
    while (entries.length > rule.length || (entries.length > 1 && bytes > rule.bytes)) bytes -= entries.shift()![2];
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
    const entries = this.#find(topic, performance.now())?.entries ?? [];
    const found: [offset: number, body: string][] = [];
    let read = 0;
    for (let i = Math.max(0, after + 1 - (entries[0]?.[0] ?? 0)); i < entries.length; i++) {
      if (found.length >= page.length || read >= page.bytes) break;
      const [offset, body, bytes] = entries[i]!;
      found.push([offset, body]);
      read += bytes;
    }
    return found;
  }

  drop(topic: string): void {
    this.#bytes -= this.#logs.get(topic)?.bytes ?? 0;
    this.#logs.delete(topic);
  }

  #find(topic: string, now: number): Log | undefined {
    const log = this.#logs.get(topic);
    return log !== undefined && log.expiresAt > now ? log : undefined;
  }
}
