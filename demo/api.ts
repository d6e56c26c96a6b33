/**
 * The contracts of the page and the server: the methods of both sides, as schemas of zod. The server checks by them. The page
 * imports types only, so that it loads nothing of this file.
 */
import { bytesOf, contract, type Bytes, type ContractOf } from "reciproc";
import { z } from "zod";

/** The colours, in the order in which they are assigned. */
export const COLORS = ["violet", "orange", "green", "pink", "blue", "red", "yellow", "ink"] as const;
/** The longest name, in UTF-16 units. */
export const MOST_NAME = 24;
/** The most numbers in one message of a stroke. A longer stroke has several messages. */
const MOST_NUMBERS = 1000;

const fraction = z.number().min(0).max(1);
/** An offset in a document, or a number of changes. */
const count = z.int().min(0);
const blank = /^\s*$/;
const text = (most: number): z.ZodString =>
  z
    .string()
    .max(most)
    .refine((value) => !blank.test(value), "Expected more than blanks");

const profile = z.object({ name: text(MOST_NAME), color: z.enum(COLORS) });
const person = profile.extend({
  id: z.string(),
  /** Whether the connection is suspended: the page may still reconnect. */
  isAway: z.boolean(),
});

/** x, y, x, y, ... as unsigned numbers of 16 bits, so that every window shows the same picture: 65535 is the far edge. */
const points = z.custom<Bytes>(isPoints, `Expected 2 to ${MOST_NUMBERS} numbers of 16 bits`);
/** The thickness of a line, as a fraction of the board's width. */
const size = z.number().gt(0).lt(0.1);
const stroke = z.object({ id: z.string(), color: z.enum(COLORS), size, points });
/** The position of a message in the log, which the nodes add if there are several. */
const at = z.string().optional();
/** The number that the page gave a message, by which it recognizes the message when it comes back from the log. */
const n = count.optional();

/** The page gives each line a name, by which the server recognizes a line that is sent again. */
const lineId = text(40);
const line = profile.extend({ id: lineId, text: z.string() });
const reaction = z.enum(["heart", "confetti", "laughter", "thumb", "fire", "rocket"]);

/** The answer of a person who was asked to clear the board. A page is out of reach if it crashed or lost its network. */
const answer = z.enum(["agreed", "refused", "did not answer", "left", "out of reach"]);
/** How a vote ended. If the asker left, the answers do not count. */
const verdict = z.object({
  by: z.string(),
  outcome: z.enum(["cleared", "kept", "asker left"]),
  answers: z.array(z.object({ name: z.string(), answer })),
});

const documentName = z.enum(["welcome.css", "server.json"]);
const oneLine = z.string().regex(/^[^\r\n]*$/);
/**
 * A change to a whole document, as CodeMirror's `ChangeSet` writes it: a number keeps that many characters. An array deletes
 * as many as its first member, and inserts its other members as lines.
 */
const change = z.array(z.union([count, z.tuple([count], oneLine)]));
/** A change, and the name of the page that made it. By that name a page recognizes its own changes, which arrive in order. */
const update = z.object({ page: z.string(), change });
/** A selection: its start and the caret, as offsets in UTF-16 units. */
const selection = z.object({ anchor: count, head: count });
const caret = selection.extend({ id: z.string(), document: documentName });
/** A version of a document: the number of changes in one life. A restarted server starts another life. */
const moment = z.object({ life: text(40), version: count });
const opened = moment.extend({
  /** The whole text; for a page that has an earlier version, the changes since. */
  content: z.union([z.object({ text: z.string() }), z.object({ updates: z.array(update) })]),
  carets: z.array(caret),
});

/** Some lines of this demo's source, which the page shows. */
const excerpt = z.object({ file: z.string(), line: z.number(), code: z.string() });

/** The state that a page gets when it joins. */
const welcome = z.object({
  /** The node of this page, if there are several. */
  node: z.string().optional(),
  you: z.string(),
  /** The prefix of the strokes of this person. It stays the same when the server restarts. */
  author: z.string(),
  /** The profile that `join` proposed, with another name or colour if that is taken. */
  profile,
  people: z.array(person),
  strokes: z.array(stroke),
  chat: z.array(line),
  /** How long a vote lasts. */
  voteTimeoutMs: z.number(),
  /** How long `cut` cuts the network of a page. */
  cutMs: z.number(),
});

/** The methods of the server. */
export const serverContract = contract({
  /**
   * Proposes a profile. A page calls it first. The server sends `welcome` before the response, and pushes all later events. On several
   * nodes, `since` is the position of the last message from the log, and the node sends what followed instead, if the log has it.
   */
  join: { params: profile.extend({ since: z.string().max(100).optional() }) },
  /** Asks for another `welcome`, after messages were dropped. */
  resync: {},
  rename: { params: profile },
  /** Starts or extends stroke number `stroke` of this person. */
  draw: { params: z.object({ stroke: z.int(), size, points, n }) },
  /** Deletes this person's newest stroke. */
  undo: {},
  move: { params: z.object({ x: fraction, y: fraction }) },
  say: { params: z.object({ id: lineId, text: text(300) }) },
  react: { params: z.object({ reaction }) },
  /** Asks all other people. Returns when all have answered or the time is up. */
  clear: { result: verdict },
  /** Returns when the language servers are installed. */
  prepare: {},
  /** Opens a document, or continues it after a loss. From then on, the server pushes all events of the editor. */
  open: { params: z.object({ document: documentName, since: moment.optional() }), result: opened },
  /** Makes changes to `version`. The server rebases them onto changes that it received earlier. */
  edit: {
    params: z.object({
      document: documentName,
      version: count,
      page: text(40),
      changes: z.array(change).min(1).max(100),
    }),
  },
  /** Reports the position of this person, in the document at `version`. */
  point: { params: selection.extend({ document: documentName, version: count }) },
  /** Cuts the network of the calling page for some seconds. The response is lost with it, and arrives after the page reconnects. */
  cut: {},
  /** Returns how many of the page's messages with the numbers `from` to `to` arrived, and how many more than once. */
  receipts: { params: z.object({ from: count, to: count }), result: z.object({ arrived: count, repeated: count }) },
  /** Kills the process that serves this page, if there are several. */
  kill: {},
  /** Returns the code behind each topic, for the page to show. */
  code: { result: z.record(z.string(), z.array(excerpt)) },
});

/** The methods of each page. */
export const clientContract = contract({
  /** Gives the whole state. A notification, so that it and later notifications are processed in the order they were sent. */
  welcome: { params: welcome },
  /** Reports that the page has joined one of several nodes. `isComplete`: it has everything since the position that it gave. */
  arrived: {
    params: z.object({
      node: z.string(),
      you: z.string(),
      profile,
      people: z.array(person),
      isComplete: z.boolean(),
      at,
    }),
  },
  /** Asks the person whether the board may be cleared. A person who does not answer within `timeoutMs` has not agreed. */
  vote: { params: z.object({ by: z.string(), timeoutMs: z.number() }), result: z.boolean() },
  /** Returns at once: the server measures the round trip. */
  ping: {},
  people: { params: z.object({ people: z.array(person) }) },
  drew: { params: stroke.extend({ n, at }) },
  erased: { params: z.object({ strokes: z.array(z.string()), at }) },
  moved: { params: z.object({ id: z.string(), x: fraction, y: fraction }) },
  said: { params: line.extend({ at }) },
  reacted: { params: profile.extend({ reaction }) },
  decided: { params: verdict.extend({ at }) },
  /** Reports changes to `version`, by any page, this one included. */
  edited: { params: z.object({ document: documentName, version: count, by: z.string(), updates: z.array(update) }) },
  /** Reports the position of another person. */
  pointed: { params: caret },
  /** Reports, once a second, the messages of that second and the newest round trip of each person. */
  stats: {
    params: z.object({ perSecond: z.number(), roundTrips: z.array(z.object({ id: z.string(), ms: z.number() })) }),
  },
});

/** The contracts as types. */
export type ServerApi = ContractOf<typeof serverContract>;
export type ClientApi = ContractOf<typeof clientContract>;

export type Color = (typeof COLORS)[number];
export type Profile = z.infer<typeof profile>;
/** A person who is present. */
export type Person = z.infer<typeof person>;
/** A line on the board. */
export type Stroke = z.infer<typeof stroke>;
/** One line of the chat. */
export type Line = z.infer<typeof line>;
export type Reaction = z.infer<typeof reaction>;
export type Answer = z.infer<typeof answer>;
export type Verdict = z.infer<typeof verdict>;
export type DocumentName = z.infer<typeof documentName>;
export type Change = z.infer<typeof change>;
export type Update = z.infer<typeof update>;
export type Selection = z.infer<typeof selection>;
export type Caret = z.infer<typeof caret>;
export type Moment = z.infer<typeof moment>;
/** The state with which a page starts or continues editing a document. */
export type Opened = z.infer<typeof opened>;
export type Welcome = z.infer<typeof welcome>;
export type Excerpt = z.infer<typeof excerpt>;

function isPoints(value: unknown): boolean {
  try {
    const { length } = bytesOf(value);
    return length > 0 && length % 4 === 0 && length <= 2 * MOST_NUMBERS;
  } catch {
    // It is neither a view nor a base64 string.
    return false;
  }
}
