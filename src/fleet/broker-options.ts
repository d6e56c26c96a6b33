/** The checks of the options that the engines of all brokers have. */
import { isObject } from "../message/message.js";
import { must, oneOf, optional, positive, secret } from "../message/options.js";

const isText = (value: unknown): boolean => typeof value === "string";
export const object = secret<object>("an object", isObject);
const text = must<string>("a string", isText);
export const secretText = secret<string>("a string", isText);

export const BROKER_OPTIONS = {
  username: optional(text),
  password: optional(secretText),
  tls: optional(object),
  prefix: optional(
    must<string>("1 to 64 of `A-Z`, `a-z`, `0-9`, `_` and `-`", (value) => /^[A-Za-z0-9_-]{1,64}$/.test(value)),
    "reciproc",
  ),
  leaseMs: optional(must<number>("a number from 100 to 600,000", (value) => value >= 100 && value <= 600_000)),
  startTimeoutMs: optional(positive),
  startWithout: optional(oneOf(true, false)),
};

/** Returns an object without the names whose values are `undefined`. */
export function given<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}
