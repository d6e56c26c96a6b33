/** The logs of topics in Redis: a hash with epoch and top, and a stream whose ids begin with the offsets. */
import { nanoid } from "../core/packages.js";
import type { EngineLog, LogPage, LogPart, LogRule, Position } from "../fleet/engine.js";
import type { Commands } from "./connection.js";

/** 60 random bits: a log of the same name begins again at most a few times in a day. */
const EPOCH_LENGTH = 10;

export class RedisLog implements EngineLog {
  readonly #commands: Commands;

  constructor(commands: Commands) {
    this.#commands = commands;
  }

  async append(topic: string, body: string, rule: LogRule, key: string | undefined): Promise<Position> {
    const { names } = this.#commands;
    const { tag, keys } = names.log(topic);
    const all = key === undefined ? keys : [...keys, names.publication(topic, tag, key)];
    const reply = await this.#commands.run(tag, "append", all, ({ life }) => [
      body,
      life,
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
    const { tag, keys } = this.#commands.names.log(topic);
    const begins = begin === undefined ? ["", "0"] : [nanoid(EPOCH_LENGTH), String(Math.ceil(begin.ttlMs))];
    const reply = await this.#commands.run(tag, "read", keys.slice(0, 2), ({ life }) => [
      String(after),
      life,
      String(length),
      String(bytes),
      ...begins,
    ]);
    const [epoch, top, entries] = reply as [string, string, [offset: string, body: string][]];
    return { epoch, top: Number(top), entries: entries.map(([offset, body]) => [Number(offset), body]) };
  }
}
