/**
 * The type of what arrives for a value that was sent as JSON. Nothing here exists at run time.
 *
 * Most types of a contract are JSON, and must be displayed by their own names. So `Jsonify` first compares a type with `Same`,
 * which differs from the type wherever JSON would change a value, and converts only a type that differs. `Same` has object types
 * for arrays too: their members are resolved when they are first compared, so a recursive type is no infinite recursion.
 */

declare const form: unique symbol;

/** A value that a message carries in a form of its own, such as a `Stream`. `Jsonify` does not change a type that extends this one. */
export interface Carried {
  readonly [form]: true;
}

declare const remedy: unique symbol;

/** Stands for a value that cannot be sent as JSON. Nothing has this type. `How` says what to send instead. */
export interface NotJson<How extends string> {
  readonly [remedy]: How;
}

type Primitive = string | number | boolean | null;

/** Values that `JSON.stringify` leaves out of an object, and writes as null in an array. */
type Omitted = ((...args: never) => unknown) | (abstract new (...args: never) => unknown) | symbol | undefined | void;

/** The part of a Blob that no other object has. Not every runtime has the type `Blob`. */
interface BlobLike {
  readonly size: number;
  arrayBuffer(): Promise<ArrayBuffer>;
}

/**
 * The type of what arrives for a value of type `T`: of a `Date` a string, of a class instance its data without methods, of a
 * `Map` or a `Set` an object without members. In an object, members that are functions or symbols are left out, and members that
 * may be `undefined` are optional. In an array, such entries are null. A `bigint` is `never`. Bytes, a Blob and a promise
 * are `NotJson`, which says what to send instead. A type that JSON does not change is returned as it is.
 */
export type Jsonify<T> = 0 extends 1 & T
  ? T
  : unknown extends T
    ? T
    : T extends Primitive | undefined | void | Carried
      ? T
      : T extends Same<T>
        ? { [K in keyof T]: T[K] } extends T
          ? T
          : Convert<T>
        : Convert<T>;

type Convert<T> = T extends bigint | Omitted
  ? never
  : T extends ArrayBufferView | ArrayBuffer | SharedArrayBuffer
    ? NotJson<"write `bytes(it)`">
    : T extends BlobLike
      ? NotJson<"write `peer.offer(it.stream())`">
      : T extends PromiseLike<unknown>
        ? NotJson<"await it">
        : T extends { toJSON(key: never): infer J }
          ? J extends object
            ? ConvertObject<J>
            : Jsonify<J>
          : T extends ReadonlyMap<unknown, unknown> | ReadonlySet<unknown>
            ? {}
            : ConvertObject<T>;

type ConvertObject<T> = T extends readonly unknown[] ? ConvertArray<T> : ConvertMembers<T>;

type ConvertArray<T extends readonly unknown[]> = number extends T["length"]
  ? T extends unknown[]
    ? Entry<T[number]>[]
    : readonly Entry<T[number]>[]
  : { [K in keyof T]: {} extends Pick<T, K> ? Member<T[K]> : Entry<T[K]> };

/** What arrives for an entry of an array. */
type Entry<V> =
  IsOpen<V> extends true ? V : Jsonify<Exclude<V, Omitted>> | (Extract<V, Omitted> extends never ? never : null);

/** What arrives for a member of an object, if it arrives. */
type Member<V> = IsOpen<V> extends true ? V : Jsonify<Exclude<V, Omitted>>;

/** The mapped types are written out, because an editor displays an alias by its name. */
type ConvertMembers<T> =
  "maybe" extends Presences<T>
    ? MembersOf<T, "always"> & Partial<MembersOf<T, "maybe">> extends infer M
      ? { [K in keyof M]: M[K] }
      : never
    : { [K in keyof T as Presence<T, K> extends "always" ? K : never]: Member<T[K]> };

type MembersOf<T, P> = { [K in keyof T as Presence<T, K> extends P ? K : never]: Member<T[K]> };

type Presences<T> = { [K in keyof T]-?: Presence<T, K> }[keyof T];

/** Whether a member arrives always, maybe or never. `"always"` also stands for a member that is optional in `T`. */
type Presence<T, K extends keyof T> = K extends symbol
  ? "never"
  : IsOpen<T[K]> extends true
    ? "always"
    : {} extends Pick<T, K>
      ? [T[K]] extends [Omitted]
        ? "never"
        : "always"
      : [Extract<T[K], Omitted>] extends [never]
        ? "always"
        : [T[K]] extends [Omitted]
          ? "never"
          : "maybe";

/** Whether `V` is `any` or `unknown`. */
type IsOpen<V> = unknown extends V ? true : false;

/** `T` if JSON does not change its values, else a type that `T` does not extend. */
type Same<T> = 0 extends 1 & T
  ? T
  : unknown extends T
    ? T
    : T extends Primitive | Carried
      ? T
      : T extends bigint | Omitted
        ? NotJson<"">
        : T extends readonly unknown[]
          ? number extends T["length"]
            ? { readonly [index: number]: Same<T[number]> }
            : { readonly [K in keyof T as K extends `${number}` ? K : never]: SameMember<T, K> }
          : { readonly [K in keyof T]: K extends symbol ? NotJson<""> : SameMember<T, K> };

type SameMember<T, K extends keyof T> = {} extends Pick<T, K> ? Same<Exclude<T[K], undefined>> | undefined : Same<T[K]>;
