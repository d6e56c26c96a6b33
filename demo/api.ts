/** What the two sides call each other for. Types only: nothing here exists at run time. */

export type Color = "ink" | "red" | "orange" | "yellow" | "green" | "blue" | "violet" | "pink";

/** How somebody introduces themselves. */
export interface Profile {
  name: string;
  color: Color;
}

/** Somebody who is here. */
export interface Person extends Profile {
  id: string;
  /** Whether their connection is lost, and may yet come back. */
  isAway: boolean;
}

/** A line on the board. Places are fractions of the board's width and height, so that every window shows the same picture. */
export interface Stroke {
  id: string;
  color: Color;
  /** How thick, as a fraction of the board's width. */
  size: number;
  /** x, y, x, y, ... */
  points: number[];
}

/** One line of the chat. */
export interface Line extends Profile {
  text: string;
}

/** What somebody answered when asked to clear the board. A page is out of reach if it crashed or its network is gone. */
export type Answer = "agreed" | "refused" | "did not answer" | "left" | "out of reach";

/** How a vote ended. */
export interface Verdict {
  by: string;
  /** When the asker left, nobody's answer counts any more. */
  outcome: "cleared" | "kept" | "asker left";
  answers: { name: string; answer: Answer }[];
}

/** A document of the editor. */
export type DocumentName = "welcome.css" | "server.json";

/**
 * A change to a whole document, as CodeMirror's `ChangeSet` writes it: a number keeps that many characters, an array takes
 * away as many as its first member says and puts its other members there, as lines.
 */
export type Change = (number | [number, ...string[]])[];

/** A change, and the page that made it: by that name the page knows its own when they come back, in their order. */
export interface Update {
  page: string;
  change: Change;
}

/** A selection: where it began, and where the caret is. Both are offsets in UTF-16 units, as JavaScript counts. */
export interface Selection {
  anchor: number;
  head: number;
}

/** Where somebody is in the editor. */
export interface Caret extends Selection {
  id: string;
  document: DocumentName;
}

/** A point in a document's life: which life, because a server that starts anew begins another, and after how many changes. */
export interface Moment {
  life: string;
  version: number;
}

/** What is needed to begin with a document, or to go on with it. */
export interface Opened extends Moment {
  /** The whole text; or, for a page that has it, what changed since. */
  content: { text: string } | { updates: Update[] };
  carets: Caret[];
}

/** What a newcomer needs to catch up. */
export interface Welcome {
  you: string;
  /** Who you are: what `join` proposed, with another name or colour if somebody had it. */
  profile: Profile;
  people: Person[];
  strokes: Stroke[];
  chat: Line[];
  /** How long a vote lasts. */
  voteTimeoutMs: number;
}

/** What the server serves. */
export interface ServerApi {
  /** Proposes who this is, and comes first. Before it is answered comes `welcome`; from then on all that happens is pushed. */
  join(params: Profile): void;
  rename(params: Profile): void;
  /** Begins stroke number `stroke` of this person, or makes it longer. */
  draw(params: { stroke: number; size: number; points: number[] }): void;
  /** Takes back this person's newest stroke. */
  undo(): void;
  move(params: { x: number; y: number }): void;
  say(params: { text: string }): void;
  react(params: { emoji: string }): void;
  /** Asks everybody else; answers when all have answered or the time is up. */
  clear(): Verdict;
  /** Opens a document, or goes on with it after a break. From then on what happens in the editor is pushed. */
  open(params: { document: DocumentName; since?: Moment | undefined }): Opened;
  /** Makes changes that follow on `version`. Whoever was quicker comes first: the server moves the rest to where it belongs. */
  edit(params: { document: DocumentName; version: number; page: string; changes: Change[] }): void;
  /** Tells where this person is, in the document as it was at `version`. */
  point(params: Selection & { document: DocumentName; version: number }): void;
  /** Cuts the network under the page that asks, for three seconds. The answer is under way by then: it comes afterwards. */
  cut(): void;
}

/** What each page serves. */
export interface ClientApi {
  /** All there is. A notification, so that it and what is pushed later are taken in the order in which they were sent. */
  welcome(params: Welcome): void;
  /** Asks the person: may the board be cleared? Whoever does not answer within `timeoutMs` has not agreed. */
  vote(params: { by: string; timeoutMs: number }): boolean;
  /** Answered at once: the server measures the round trip. */
  ping(): void;
  people(params: { people: Person[] }): void;
  drew(params: Stroke): void;
  erased(params: { strokes: string[] }): void;
  moved(params: { id: string; x: number; y: number }): void;
  said(params: Line): void;
  reacted(params: Profile & { emoji: string }): void;
  decided(params: Verdict): void;
  /** Somebody made changes that follow on `version`; it may have been this page. */
  edited(params: { document: DocumentName; version: number; by: string; updates: Update[] }): void;
  /** Where somebody else is now. */
  pointed(params: Caret): void;
  /** Once a second: the messages of that second, and everybody's newest round trip. */
  stats(params: { perSecond: number; roundTrips: { id: string; ms: number }[] }): void;
}
