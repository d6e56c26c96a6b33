/** Checking params with any validator that speaks Standard Schema (https://standardschema.dev): zod, valibot, arktype. */
import * as ErrorCode from "./codes.js";
import { RpcError } from "./errors.js";
import { isThenable } from "./promises.js";

/** The part of Standard Schema, version 1, that is used here. */
export interface StandardSchema<Output = unknown> {
  readonly "~standard": {
    readonly validate: (value: unknown) => SchemaResult<Output> | PromiseLike<SchemaResult<Output>>;
  };
}

/** What a schema answers: the value it accepts, perhaps transformed, or what is wrong. */
export type SchemaResult<Output> =
  { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly SchemaIssue[] };

/** One thing that is wrong with the params. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** A schema may find a mistake in each of 500,000 entries, and to tell of all would be a reply many times the request. */
const MOST_ISSUES = 100;

/** Whether `value` has the shape of a Standard Schema. Some are functions (arktype). */
export function isSchema(value: unknown): value is StandardSchema {
  return typeof (value as Partial<StandardSchema> | null | undefined)?.["~standard"]?.validate === "function";
}

/** Calls `accept` with the params as the schema returns them, or throws -32602 with the first 100 of its issues. Stays synchronous where the schema is. */
export function validate(schema: StandardSchema, params: unknown, accept: (params: unknown) => unknown): unknown {
  const judge = (result: SchemaResult<unknown>): unknown => {
    if (result.issues === undefined) return accept(result.value);
    const issues = result.issues.slice(0, MOST_ISSUES).map(plain);
    throw new RpcError(ErrorCode.InvalidParams, "Invalid params", { issues });
  };
  const result = schema["~standard"].validate(params);
  return isThenable(result) ? Promise.resolve(result).then(judge) : judge(result);
}

/** Issues carry more than their message and path (zod's hold the input): none of that leaves the process. */
function plain({ message, path }: SchemaIssue): { message: string; path?: (string | number)[] } {
  if (path === undefined) return { message };
  return { message, path: path.map((part) => pathKey(typeof part === "object" ? part.key : part)) };
}

function pathKey(key: PropertyKey): string | number {
  return typeof key === "symbol" ? String(key) : key;
}
