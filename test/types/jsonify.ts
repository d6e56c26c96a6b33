// What JSON makes of each type. A compiler that disagrees with a line reports it.
import type { Carried, Item, Jsonify, NotJson, Params, Result, Stream } from "reciproc";
import { is, type Equal } from "./api.js";

interface User {
  id: string;
  name?: string;
}
interface Tree {
  value: number;
  children: Tree[];
  parent?: Tree;
}
type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
// As Prisma writes it.
type JsonObject = { [K in string]?: JsonOrObject };
interface JsonArray extends Array<JsonOrObject> {}
type JsonOrObject = string | number | boolean | JsonObject | JsonArray | null;
type Brand = string & { readonly __brand: "id" };
class Point {
  x = 1;
  readonly at = new Date();
  protected key = "";
  #cache = 0;
  length = (): number => this.#cache;
}
class Hidden {
  private key = "";
  name = "";
  static keyOf(hidden: Hidden): string {
    return hidden.key;
  }
}
interface Marked extends Carried {
  readonly size: number;
  read(): void;
}

// Types that JSON does not change keep their names.
is<Equal<Jsonify<User>, User>>();
is<Equal<Jsonify<User | null>, User | null>>();
is<Equal<Jsonify<readonly User[]>, readonly User[]>>();
is<Equal<Jsonify<Record<string, User>>, Record<string, User>>>();
is<Equal<Jsonify<Tree>, Tree>>();
is<Equal<Jsonify<{ data: Json }>, { data: Json }>>();
is<Equal<Jsonify<JsonOrObject>, JsonOrObject>>();
is<Equal<Jsonify<Brand>, Brand>>();
is<Equal<Jsonify<"r" | "b">, "r" | "b">>();
is<Equal<Jsonify<any>, any>>();
is<Equal<Jsonify<unknown>, unknown>>();
is<Equal<Jsonify<never>, never>>();
is<Equal<Jsonify<void>, void>>();
is<Equal<Jsonify<object>, object>>();
is<Equal<Jsonify<Record<string, unknown>>, Record<string, unknown>>>();
is<Equal<Jsonify<[a: number, b?: string]>, [a: number, b?: string]>>();
is<Equal<Jsonify<[string, ...number[]]>, [string, ...number[]]>>();
is<Equal<Jsonify<{ a?: string | undefined }>, { a?: string | undefined }>>();

// Values with a `toJSON`.
is<Equal<Jsonify<Date | null>, string | null>>();
is<Equal<Jsonify<{ toJSON(): { at: Date } }>, { at: string }>>();
is<Equal<Jsonify<readonly Date[]>, readonly string[]>>();
is<Equal<Jsonify<[at: Date, until?: Date]>, [at: string, until?: string]>>();
is<Equal<Jsonify<Record<string, Date>>, { [key: string]: string }>>();
is<Equal<Jsonify<{ readonly at: Date; until?: Date }>, { readonly at: string; until?: string }>>();
is<
  Equal<Jsonify<{ b: Brand; any: any; open: unknown; at: Date }>, { b: Brand; any: any; open: unknown; at: string }>
>();
type Event = { kind: "a"; at: Date } | { kind: "b"; count: number };
is<Equal<Jsonify<Event>, { kind: "a"; at: string } | { kind: "b"; count: number }>>();

// Objects of classes.
is<Equal<Jsonify<Point>, { x: number; readonly at: string }>>();
is<Equal<Jsonify<Hidden>, { name: string }>>();
is<Equal<Jsonify<ReadonlySet<string>>, {}>>();
is<Equal<Jsonify<{ users: Map<string, User> }>, { users: {} }>>();

// What JSON leaves out.
is<Equal<Jsonify<{ a: string | undefined; f(): void; g?: () => void; s: symbol; u: undefined }>, { a?: string }>>();
is<Equal<Jsonify<(string | undefined)[]>, (string | null)[]>>();
is<Equal<Jsonify<{ [key: symbol]: string; a: number }>, { a: number }>>();
is<Equal<Jsonify<() => void>, never>>();
is<Equal<Jsonify<{ n: bigint }>, { n: never }>>();

// What must be written in another way.
type Mark = NotJson<"write `bytes(it)`">;
is<Equal<Jsonify<DataView>, Mark>>();
is<Equal<Jsonify<{ data: Uint8Array }>, { data: Mark }>>();
is<Equal<Jsonify<Blob>, NotJson<"write `peer.offer(it.stream())`">>>();
is<Equal<Jsonify<Promise<number>>, NotJson<"await it">>>();

// What a message carries in a form of its own.
is<Equal<Jsonify<{ calls: Stream<Date>; at: Date }>, { calls: Stream<Date>; at: string }>>();
is<Equal<Jsonify<Marked[]>, Marked[]>>();

// A recursive type whose values JSON changes.
interface Linked {
  next: Linked | null;
  at: Date;
}
declare const linked: Jsonify<Linked>;
export const at: string | undefined = linked.next?.next?.at;

// Where a contract uses it.
interface Api {
  when(params: { from: Date; count?: number }): { at: Date };
  user(params: [id: string]): Promise<User | undefined>;
  log(): Stream<{ at: Date }>;
  moved(params: { x: number }): void;
}
is<Equal<Params<Api["when"]>, { from: string; count?: number }>>();
is<Equal<Result<Api["when"]>, { at: string }>>();
is<Equal<Result<Api["user"]>, User | null>>();
is<Equal<Item<Api["log"]>, { at: string }>>();
is<Equal<Result<Api["moved"]>, void>>();
