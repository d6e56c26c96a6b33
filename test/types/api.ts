// What the specimens of this folder share: an API of each side, and a proof that two types are equal.
import type { Stream } from "reciproc";

export type Equal<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
export declare function is<T extends true>(): void;
/** Proves that a value has exactly a type: `has<string>()(value)`. */
export declare function has<T>(): <V>(value: V, ...proof: Equal<V, T> extends true ? [] : [never]) => void;

export interface User {
  id: string;
}
export interface ServerApi {
  add(params: [a: number, b: number]): number;
  join(params: { room: string }): { members: string[] };
  tail(params: { file: string }): Stream<string>;
  moved(params: { x: number; y: number }): void;
  ping(): string;
  list(params?: { cursor?: string }): string[];
  find(params: { id: string }): User | undefined;
  "room/join"(params: { room: string }): null;
  bye(): void;
}
export interface ClientApi {
  toast(params: { text: string }): void;
  confirm(params: { question: string }): boolean;
}
