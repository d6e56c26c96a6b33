/** The schemas of the server's methods. Any Standard Schema works (zod, valibot, arktype). This one is written by hand. */
import type { Params, SchemaResult, StandardSchema } from "reciproc";
import type { Moment, Profile, ServerApi } from "./api.js";
import { COLORS, MOST_NAME } from "./profiles.js";

type Check = (value: any) => boolean;

const EMOJIS = new Set(["❤️", "🎉", "😂", "👏", "🔥", "🚀"]);

/** Four digits at most: a joining page gets the whole board in one message, so every number must be short. */
const fraction: Check = (value) =>
  typeof value === "number" && value >= 0 && value <= 1 && Math.round(value * 10_000) / 10_000 === value;
const text =
  (most: number): Check =>
  (value) =>
    typeof value === "string" && value.trim() !== "" && value.length <= most;
const points: Check = (value) =>
  Array.isArray(value) && value.length > 0 && value.length <= 1000 && value.length % 2 === 0 && value.every(fraction);

const DOCUMENTS = new Set(["welcome.css", "server.json"]);
const known: Check = (value) => DOCUMENTS.has(value);
/** An offset in a document, or a number of changes. */
const count: Check = (value) => Number.isSafeInteger(value) && value >= 0;
/** One line, without line breaks. */
const line: Check = (value) => typeof value === "string" && !/[\r\n]/.test(value);
const section: Check = (value) =>
  count(value) || (Array.isArray(value) && count(value[0]) && value.slice(1).every(line));
const change: Check = (value) => Array.isArray(value) && value.every(section);
const moment = object<Moment>({ life: text(40), version: count });

const profile = object<Profile>({ name: text(MOST_NAME), color: (value) => COLORS.includes(value) });

export const schemas = {
  join: profile,
  rename: profile,
  draw: object<Params<ServerApi["draw"]>>({
    stroke: Number.isSafeInteger,
    size: (value) => fraction(value) && value > 0 && value < 0.1,
    points,
  }),
  move: object<Params<ServerApi["move"]>>({ x: fraction, y: fraction }),
  say: object<Params<ServerApi["say"]>>({ text: text(300) }),
  react: object<Params<ServerApi["react"]>>({ emoji: (value) => EMOJIS.has(value) }),
  open: object<Params<ServerApi["open"]>>({
    document: known,
    since: (value) => value === undefined || fits(moment, value),
  }),
  edit: object<Params<ServerApi["edit"]>>({
    document: known,
    version: count,
    page: text(40),
    changes: (value) => Array.isArray(value) && value.length > 0 && value.length <= 100 && value.every(change),
  }),
  point: object<Params<ServerApi["point"]>>({ document: known, version: count, anchor: count, head: count }),
};

function fits<T>(schema: StandardSchema<T>, value: unknown): boolean {
  return "value" in (schema["~standard"].validate(value) as SchemaResult<T>);
}

/** Accepts an object whose members pass their checks. The handler gets only members that have a check. */
function object<T>(checks: { [K in keyof T & string]: Check }): StandardSchema<T> {
  const validate = (value: unknown): SchemaResult<T> => {
    const given = new Map(Object.entries(value ?? {}));
    const names = Object.keys(checks) as (keyof T & string)[];
    const issues = names
      .filter((name) => !checks[name](given.get(name)))
      .map((name) => ({ message: `\`${name}\` does not fit`, path: [name] }));
    return issues.length > 0
      ? { issues }
      : { value: Object.fromEntries(names.map((name) => [name, given.get(name)])) as T };
  };
  return { "~standard": { validate } };
}
