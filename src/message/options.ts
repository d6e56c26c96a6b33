/**
 * Checking options. Each set of options has one table, which names the options, checks them and sets their defaults. The tables
 * are in the files of what they configure.
 */
import { expected, mistake } from "./errors.js";
import { isObject } from "./message.js";

/** Checks the value of an option, and returns the value to use. Throws a `TypeError` that names the option, the rule and the value. */
export type Check<T> = (value: unknown, name: string) => T;

/** The options of one set, by name. */
export type OptionTable = Readonly<Record<string, Check<any>>>;

/** A set of options after checking. */
export type Checked<T extends OptionTable> = { -readonly [K in keyof T]: ReturnType<T[K]> };

/**
 * Checks a set of options. Returns the values to use, defaults included. Throws a `TypeError` that names the option, the rule
 * and the value. `what` names the set in errors.
 */
export function checkOptions<T extends OptionTable>(what: string, given: object = {}, table: T): Checked<T> {
  checkKnown(what, given, table);
  const prefix = what === "options" ? "" : `${what}.`;
  // A copy of the table. Without it, V8 makes a hash table of so many keys, for each set of options.
  const checked: Record<string, unknown> = { ...table };
  for (const name in table) {
    checked[name] = table[name]!((given as Record<string, unknown>)[name], prefix + name);
  }
  return checked as Checked<T>;
}

/** Throws a `TypeError` for an option that does not exist: a misspelt one must not be silently without effect. */
export function checkKnown(what: string, given: object, known: object): void {
  if (!isObject(given)) throw expected(what, "an object", given);
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(known, name)) {
      throw mistake(`Unknown name \`${name}\` in \`${what}\`; known are ${Object.keys(known).join(", ")}`);
    }
  }
}

/** Returns the check of a value that must follow a rule. `rule` completes the error: "Expected .. to be ..". */
export function must<T>(rule: string, isValid: (value: any) => boolean): Check<T> {
  return (value, name) => {
    if (isValid(value)) return value as T;
    throw expected(name, rule, value);
  };
}

/** Returns the check of a value that may have a password: unlike that of `must`, its error does not show the value. */
export function secret<T>(rule: string, isValid: (value: any) => boolean): Check<T> {
  return (value, name) => {
    if (isValid(value)) return value as T;
    throw new TypeError(`Expected \`${name}\` to be ${rule}`);
  };
}

/** Returns the check of a value that must be one of these. */
export function oneOf<const T extends readonly (string | number | boolean)[]>(...values: T): Check<T[number]> {
  const rule = values.map((value) => JSON.stringify(value)).join(" or ");
  return must(rule, (value) => values.includes(value));
}

/** Returns the check of an option that may be left out. */
export function optional<T, const D = undefined>(check: Check<T>, defaultValue?: D): Check<T | D> {
  return (value, name) => (value === undefined ? (defaultValue as D) : check(value, name));
}

/** Returns the check of an object with these members, besides any others. */
export function shape<T extends object>(table: OptionTable): Check<T> {
  return (value, name) => {
    for (const key in table) table[key]!((value as Record<string, unknown> | undefined)?.[key], `${name}.${key}`);
    return value as T;
  };
}

/** Accepts any value. */
export const any: Check<any> = (value) => value;

export const anyString = /* @__PURE__ */ must<string>("a string", (value) => typeof value === "string");

/** Accepts a number of milliseconds; `Infinity` counts. */
export const positive = /* @__PURE__ */ must<number>(
  "a positive number",
  (value) => typeof value === "number" && value > 0,
);

/** As `positive`, without `Infinity`. */
export const finite = /* @__PURE__ */ must<number>(
  "a finite positive number",
  (value) => Number.isFinite(value) && value > 0,
);

export const anyFunction = /* @__PURE__ */ must<(...args: any[]) => any>(
  "a function",
  (value) => typeof value === "function",
);

export const anySignal = /* @__PURE__ */ must<AbortSignal>("an AbortSignal", isSignal);

/** Whether `value` can be a count. */
export function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Whether UTF-8 can carry `text`: it has no lone surrogate. `String.prototype.isWellFormed` is missing before Chrome 111 and Node 20. */
export function isWellFormed(text: string): boolean {
  return !/\p{Cs}/u.test(text);
}

/** Whether `value` is an AbortSignal. Decided by its shape: that of another realm is no instance of the class here. */
export function isSignal(value: unknown): value is AbortSignal {
  const { aborted, addEventListener, removeEventListener } = (value ?? {}) as Partial<AbortSignal>;
  const areFunctions = [addEventListener, removeEventListener].every((one) => typeof one === "function");
  return typeof aborted === "boolean" && areFunctions;
}

/** Returns the own members of an object, each checked: a method called `constructor` or `__proto__` is found only if the object has it. */
export function tableOf<T>(given: unknown, name: string, check: Check<T>): Map<string, T> {
  if (!isPlain(given)) throw expected(name, "a plain object", given);
  const entries = new Map<string, T>();
  for (const [key, value] of Object.entries(given)) {
    if (value !== undefined) entries.set(key, check(value, `${name}.${key}`));
  }
  return entries;
}

/**
 * Whether a value is a plain object. Handlers are called without `this`, and a class's methods are not its own members: an instance
 * would serve nothing.
 */
export function isPlain(value: unknown): value is object {
  if (typeof value !== "object" || value === null) return false;
  const proto = Object.getPrototypeOf(value) as object | null;
  return proto === null || Object.getPrototypeOf(proto) === null;
}
