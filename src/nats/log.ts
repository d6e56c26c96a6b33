/** The logs of topics in JetStream. An epoch ends when the stream or the last entry of the log is gone. */
import { nanoid } from "../core/packages.js";
import type { EngineLog, LogPart, LogRule, Position } from "../fleet/engine.js";
import type { NatsConnection } from "./connection.js";
import { tokenOf } from "./names.js";
import { Chains, KEY_MS } from "./streams.js";

/** 60 random bits: a log of the same name begins again at most a few times in a day. */
const EPOCH_LENGTH = 10;
const NANOS = 1_000_000;

export class NatsLog implements EngineLog {
  readonly #chains: Chains;
  /** What the stream keeps, as far as this node knows: the most that any rule wants. */
  #kept = { length: 0, ttlMs: 0 };
  #growing: Promise<void> = Promise.resolve();

  constructor(connection: NatsConnection) {
    this.#chains = new Chains(connection, "l");
  }

  /** Forgets what this node knows, because the stream may be another one. */
  forget(): void {
    this.#chains.forget();
    this.#kept = { length: 0, ttlMs: 0 };
  }

  async append(topic: string, body: string, rule: LogRule, key: string | undefined): Promise<Position> {
    return this.#chains.inOrder(topic, async () => {
      if (rule.length > this.#kept.length || rule.ttlMs > this.#kept.ttlMs) await this.#grow(rule);
      const { head } = await this.#chains.append(
        topic,
        body,
        (last) => ({
          kind: "L",
          epoch: last?.epoch ?? nanoid(EPOCH_LENGTH),
          number: (last?.number ?? 0) + 1,
          id: "",
        }),
        key === undefined ? undefined : `${tokenOf(topic)}.${tokenOf(key)}`,
      );
      return { epoch: head.epoch, offset: head.number };
    });
  }

  /** Lets the stream keep what a rule wants. A stream has one rule for all topics, which never becomes smaller. */
  #grow(rule: LogRule): Promise<void> {
    const grow = async (): Promise<void> => {
      const { config } = await this.#chains.ask(({ streams }) => streams.info(this.#chains.name));
      const length = Math.max(config.max_msgs_per_subject, rule.length);
      const ttlMs = Math.max(config.max_age / NANOS, Math.ceil(rule.ttlMs), KEY_MS);
      if (length > config.max_msgs_per_subject || ttlMs * NANOS > config.max_age)
        await this.#chains.ask(({ streams }) =>
          streams.update(this.#chains.name, { max_msgs_per_subject: length, max_age: ttlMs * NANOS }),
        );
      this.#kept = { length, ttlMs };
    };
    return (this.#growing = this.#growing.then(grow, grow));
  }

  async read(topic: string, after: number, limit: number): Promise<LogPart> {
    const last = await this.#chains.last(topic);
    if (last === undefined) return { epoch: "", top: 0, entries: [] };
    const { epoch, number: top } = last;
    const entries: [number, string][] = [];
    if (limit > 0 && after < top)
      await this.#chains.read(topic, last.seq, (kept) => {
        if (kept.epoch === epoch && kept.number > after) entries.push([kept.number, kept.body]);
        return entries.length < limit;
      });
    return { epoch, top, entries };
  }
}
