/** The logs of topics in Redis: a hash with epoch and top, and a stream whose ids begin with the offsets. */
import { nanoid } from "../base/packages.js";
import type { EngineLog, LogPage, LogPart, LogRule, Position } from "../topics/engine.js";
import type { Names } from "./names.js";
import type { ScriptName } from "./scripts.js";

/** 60 random bits: a log of the same name begins again at most a few times in a day. */
const EPOCH_LENGTH = 10;

/** Runs a script on the primary of a tag. Waits while a cluster moves the tag. */
type Run = (tag: number, script: ScriptName, keys: readonly string[], args: readonly string[]) => Promise<unknown>;

export class RedisLog implements EngineLog {
  readonly #names: Names;
  readonly #run: Run;

  constructor(names: Names, run: Run) {
    this.#names = names;
    this.#run = run;
  }

  async append(topic: string, body: string, rule: LogRule, key: string | undefined): Promise<Position> {
    const { tag, keys } = this.#names.log(topic);
    const all = key === undefined ? keys : [...keys, this.#names.publication(topic, tag, key)];
    const reply = await this.#run(tag, "append", all, [
      body,
      nanoid(EPOCH_LENGTH),
      String(rule.length),
      String(rule.bytes),
      String(Math.ceil(rule.ttlMs)),
      key ?? "",
    ]);
    const [epoch, offset] = reply as [string, string];
    return { epoch, offset: Number(offset) };
  }

  async read(topic: string, after: number, { length, bytes }: LogPage, begin?: LogRule): Promise<LogPart> {
    const { tag, keys } = this.#names.log(topic);
    const begins = begin === undefined ? ["", "0"] : [nanoid(EPOCH_LENGTH), String(Math.ceil(begin.ttlMs))];
    const args = [String(after), String(length), String(bytes), ...begins];
    const reply = await this.#run(tag, "read", keys.slice(0, 2), args);
    const [epoch, top, entries] = reply as [string, string, [offset: string, body: string][]];
    return { epoch, top: Number(top), entries: entries.map(([offset, body]) => [Number(offset), body]) };
  }
}
