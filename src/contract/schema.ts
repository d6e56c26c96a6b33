/** Checking values with any validator that speaks Standard Schema (https://standardschema.dev): zod, valibot, arktype. */
import * as ErrorCode from "../message/codes.js";
import { RpcError } from "../message/errors.js";
import { checkKnown, must, tableOf } from "../message/options.js";
import { isThenable } from "../base/promises.js";

/** The part of Standard Schema, version 1, that is used here. A schema may return an `Output` that differs from its `Input`. */
export interface StandardSchema<Output = unknown, Input = unknown> {
  readonly "~standard": {
    readonly validate: (value: unknown) => SchemaResult<Output> | PromiseLike<SchemaResult<Output>>;
    /** Exists at compile time only. */
    readonly types?: { readonly input: Input; readonly output: unknown } | undefined;
  };
}

/** What a schema returns: the value it accepts, perhaps transformed, or the issues. */
export type SchemaResult<Output> =
  { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly SchemaIssue[] };

/** One thing that is wrong with the params. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** A schema may find an issue in each of 500,000 entries. A reply with all of them would be many times the request. */
const MOST_ISSUES = 100;

/** Longest message of a refusal, in characters. An issue may repeat its input, and the data has the whole issue. */
const MOST_CHARACTERS = 300;

/** Whether `value` has the shape of a Standard Schema. Some are functions (arktype). */
export function isSchema(value: unknown): value is StandardSchema {
  return typeof (value as Partial<StandardSchema> | null | undefined)?.["~standard"]?.validate === "function";
}

/** Calls `accept` with the params of a call to `method` as its schema returns them, or throws -32602. */
export type ParamsCheck = (method: string, params: unknown, accept: (params: unknown) => unknown) => unknown;

/** Returns the check of params by the schemas of their methods. The params of other methods pass as they are. */
export function paramsCheck(schemas: ReadonlyMap<string, StandardSchema>): ParamsCheck {
  return (method, params, accept) => {
    const schema = schemas.get(method);
    return schema === undefined ? accept(params) : validate(schema, params, accept);
  };
}

/** The options that concern the schemas of params. */
export interface SchemaOptions {
  readonly schemas?: unknown;
  readonly methods: ReadonlyMap<string, unknown>;
  readonly fallback?: unknown;
}

/** Returns the check by the option `schemas`, if it is given. Throws a `TypeError` for what is no schema or names no method. */
export function fitSchemas({ schemas, methods, fallback }: SchemaOptions): ParamsCheck | undefined {
  if (schemas === undefined) return undefined;
  const table = tableOf(schemas, "schemas", must<StandardSchema>("a Standard Schema", isSchema));
  if (fallback === undefined) checkKnown("schemas", Object.fromEntries(table), Object.fromEntries(methods));
  return paramsCheck(table);
}

/** Throws with the first issue in the message, and the first 100 in the data. Stays synchronous where the schema is. */
function validate(schema: StandardSchema, params: unknown, accept: (params: unknown) => unknown): unknown {
  const judge = (result: SchemaResult<unknown>): unknown => {
    if (result.issues === undefined) return accept(result.value);
    const issues = result.issues.slice(0, MOST_ISSUES).map(plain);
    throw new RpcError(ErrorCode.InvalidParams, describeIssue("Invalid params", issues[0]), { issues });
  };
  const result = schema["~standard"].validate(params);
  return isThenable(result) ? Promise.resolve(result).then(judge) : judge(result);
}

/** An issue as it is sent. */
interface PlainIssue {
  message: string;
  path?: (string | number)[];
}

/** Returns what is wrong, and where: `Invalid params: expected number at list[0]`. */
export function describeIssue(what: string, issue: PlainIssue | undefined): string {
  if (issue === undefined) return what;
  const { message, path = [] } = issue;
  const place = path.map((key) => (typeof key === "number" ? `[${key}]` : `.${key}`)).join("");
  const name = place.replace(/^\./, "");
  // Some schemas (arktype) begin their messages with the path.
  const isNamed = name === "" || message.startsWith(`${name} `);
  return `${what}: ${message}${isNamed ? "" : ` at ${name}`}`.slice(0, MOST_CHARACTERS);
}

/** Issues carry more than their message and path (zod's hold the input): none of that is sent. */
export function plain({ message, path }: SchemaIssue): PlainIssue {
  if (path === undefined) return { message };
  const keys = path.map((part) => (typeof part === "object" ? part.key : part));
  return { message, path: keys.map((key) => (typeof key === "symbol" ? String(key) : key)) };
}
