/** The contract: what the server serves, what a page serves, and the checks of params. Both sides import it. */
import type { Stream } from "reciproc";
import type { TopicClient, TopicServer } from "reciproc/react";
import { z } from "zod";

/** What a page may say about a card. The page chooses the id, so it can show the card before the server has it. */
const Draft = z.object({ id: z.uuid(), text: z.string().trim().min(1).max(200), isDone: z.boolean() });
export type Draft = z.infer<typeof Draft>;

export interface Card extends Draft {
  owner: string;
}
export interface Person {
  id: string;
  name: string;
}
export interface Uploaded {
  bytes: number;
  sha256: string;
}

export interface ServerApi extends TopicServer<Person> {
  cards(): Card[];
  /** Adds a card, or changes it. */
  put(params: Draft): Card;
  /** Removes a card. Its owner is asked first. Returns false if the owner says no. */
  remove(params: { id: string }): boolean;
  /** Adds a card for each line, slowly. Reports `Progress`. Returns the number of cards. */
  import(params: { lines: string[] }): number;
  /** The lines that the server logs from now on. */
  log(): Stream<string>;
  /** Takes a file as a stream of base64. Reports `Progress`. */
  upload(params: { name: string; content: Stream<string> }): Uploaded;
}

export interface ClientApi extends TopicClient<Person> {
  changed(params: { card: Card }): void;
  removed(params: { id: string }): void;
  confirm(params: { question: string }): boolean;
}

/** What `import` reports in cards, and `upload` in bytes. */
export interface Progress {
  done: number;
}

const topic = z.object({ topic: z.literal("board") });
export const schemas = {
  "topic/join": topic,
  "topic/leave": topic,
  put: Draft,
  remove: z.object({ id: z.uuid() }),
  import: z.object({ lines: z.array(z.string().trim().min(1).max(200)).max(1000) }),
  upload: z.object({ name: z.string().max(200), content: z.custom<Stream<string>>() }),
};
