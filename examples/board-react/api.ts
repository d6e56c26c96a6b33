/**
 * What the server serves and what a page serves, as schemas of zod. The server checks params with them, and both sides take their
 * types from them. A page imports only the types, so it loads neither zod nor the schemas.
 */
import {
  contract,
  type Bytes,
  type ContractOf,
  type Joined,
  type MemberChange,
  type People,
  type Stream,
} from "reciproc";
import { z } from "zod";

const Text = z.string().trim().min(1).max(200);
/** What a page says about a card. The page chooses the id, so it can show the card before the server has it. */
const Draft = z.object({ id: z.uuid(), text: Text, isDone: z.boolean() });
const Card = Draft.extend({ owner: z.string() });
/** A window in which the board is open. A user may have several. */
const Person = z.object({ name: z.string() });
const Id = z.object({ id: z.string() });
/** What `import` reports in cards, and `upload` in bytes. */
const Progress = z.object({ done: z.number() });

export const serverApi = contract({
  // For `useOthers`.
  people: {
    params: z.object({ presence: z.enum(["join", "set", "leave"]) }),
    result: z.custom<Joined<People<Person>>>(),
  },
  // For `useTopic`.
  "cards/join": {
    params: z.object({ since: z.string().optional() }),
    result: z.object({
      at: z.string().optional(),
      outcome: z.enum(["complete", "gap"]).optional(),
      value: z.array(Card).optional(),
    }),
  },
  "cards/leave": { params: z.object({}) },
  /** Adds a card, or changes it. */
  put: { params: Draft, result: Card },
  /** Removes a card, after its owner was asked. Returns false if the owner says no. */
  remove: { params: Id, result: z.boolean() },
  /** Adds a card for each line, slowly. Returns the number of cards. */
  import: { params: z.object({ lines: z.array(Text).max(1000) }), result: z.number(), progress: Progress },
  /** What users do, from now on. */
  log: { stream: z.string() },
  /** Stores a file. Returns its length. */
  upload: {
    params: z.object({ name: z.string().max(200), content: z.custom<Stream<Bytes>>() }),
    result: z.number(),
    progress: Progress,
  },
});

export const pageApi = contract({
  people: { params: z.custom<MemberChange<Person>>() },
  changed: { params: z.object({ card: Card }) },
  removed: { params: Id },
  /** Asks the user. */
  confirm: { params: z.object({ question: z.string() }), result: z.boolean() },
});

export type ServerApi = ContractOf<typeof serverApi>;
export type PageApi = ContractOf<typeof pageApi>;
export type Draft = z.infer<typeof Draft>;
export type Card = z.infer<typeof Card>;
export type Person = z.infer<typeof Person>;
export type Progress = z.infer<typeof Progress>;
