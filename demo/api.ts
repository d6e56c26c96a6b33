/** The contracts of the page and the server. Types only: nothing here exists at run time. */

export type Color = "ink" | "red" | "orange" | "yellow" | "green" | "blue" | "violet" | "pink";

/** The name and colour of a person. */
export interface Profile {
  name: string;
  color: Color;
}

/** A person who is present. */
export interface Person extends Profile {
  id: string;
  /** Whether the connection is suspended: the page may still reconnect. */
  isAway: boolean;
}

/** A line on the board. Positions are fractions of the board's width and height, so that every window shows the same picture. */
export interface Stroke {
  id: string;
  color: Color;
  /** The thickness, as a fraction of the board's width. */
  size: number;
  /** x, y, x, y, ... */
  points: number[];
}

/** One line of the chat. */
export interface Line extends Profile {
  text: string;
}

/** The answer of a person who was asked to clear the board. A page is out of reach if it crashed or lost its network. */
export type Answer = "agreed" | "refused" | "did not answer" | "left" | "out of reach";

/** How a vote ended. */
export interface Verdict {
  by: string;
  /** If the asker left, the answers do not count. */
  outcome: "cleared" | "kept" | "asker left";
  answers: { name: string; answer: Answer }[];
}

/** A document of the editor. */
export type DocumentName = "welcome.css" | "server.json";

/**
 * A change to a whole document, as CodeMirror's `ChangeSet` writes it: a number keeps that many characters. An array deletes
 * as many as its first member, and inserts its other members as lines.
 */
export type Change = (number | [number, ...string[]])[];

/** A change, and the name of the page that made it. By that name a page recognizes its own changes, which arrive in order. */
export interface Update {
  page: string;
  change: Change;
}

/** A selection: its start and the caret, as offsets in UTF-16 units. */
export interface Selection {
  anchor: number;
  head: number;
}

/** The position of a person in the editor. */
export interface Caret extends Selection {
  id: string;
  document: DocumentName;
}

/** A version of a document: the number of changes in one life. A restarted server starts another life. */
export interface Moment {
  life: string;
  version: number;
}

/** The state with which a page starts or continues editing a document. */
export interface Opened extends Moment {
  /** The whole text; for a page that has an earlier version, the changes since. */
  content: { text: string } | { updates: Update[] };
  carets: Caret[];
}

/** The state that a page gets when it joins. */
export interface Welcome {
  you: string;
  /** The profile that `join` proposed, with another name or colour if that is taken. */
  profile: Profile;
  people: Person[];
  strokes: Stroke[];
  chat: Line[];
  /** How long a vote lasts. */
  voteTimeoutMs: number;
}

/** The methods of the server. */
export interface ServerApi {
  /** Proposes a profile. A page calls it first. The server sends `welcome` before the response, and pushes all later events. */
  join(params: Profile): void;
  rename(params: Profile): void;
  /** Starts or extends stroke number `stroke` of this person. */
  draw(params: { stroke: number; size: number; points: number[] }): void;
  /** Deletes this person's newest stroke. */
  undo(): void;
  move(params: { x: number; y: number }): void;
  say(params: { text: string }): void;
  react(params: { emoji: string }): void;
  /** Asks all other people. Returns when all have answered or the time is up. */
  clear(): Verdict;
  /** Opens a document, or continues it after a loss. From then on, the server pushes all events of the editor. */
  open(params: { document: DocumentName; since?: Moment | undefined }): Opened;
  /** Makes changes to `version`. The server rebases them onto changes that it received earlier. */
  edit(params: { document: DocumentName; version: number; page: string; changes: Change[] }): void;
  /** Reports the position of this person, in the document at `version`. */
  point(params: Selection & { document: DocumentName; version: number }): void;
  /** Cuts the network of the calling page for three seconds. The response is lost with it, and arrives after the page reconnects. */
  cut(): void;
}

/** The methods of each page. */
export interface ClientApi {
  /** Gives the whole state. A notification, so that it and later notifications are processed in the order they were sent. */
  welcome(params: Welcome): void;
  /** Asks the person whether the board may be cleared. A person who does not answer within `timeoutMs` has not agreed. */
  vote(params: { by: string; timeoutMs: number }): boolean;
  /** Returns at once: the server measures the round trip. */
  ping(): void;
  people(params: { people: Person[] }): void;
  drew(params: Stroke): void;
  erased(params: { strokes: string[] }): void;
  moved(params: { id: string; x: number; y: number }): void;
  said(params: Line): void;
  reacted(params: Profile & { emoji: string }): void;
  decided(params: Verdict): void;
  /** Reports changes to `version`, by any page, this one included. */
  edited(params: { document: DocumentName; version: number; by: string; updates: Update[] }): void;
  /** Reports the position of another person. */
  pointed(params: Caret): void;
  /** Reports, once a second, the messages of that second and the newest round trip of each person. */
  stats(params: { perSecond: number; roundTrips: { id: string; ms: number }[] }): void;
}
