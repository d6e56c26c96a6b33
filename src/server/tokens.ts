/** The tokens of all sessions of one server: gives them, changes them at each resume, and finds the session that one resumes. */
import type { ResumeFrame } from "../session/frames.js";

/** How tokens are made. */
export interface TokenOptions {
  /** Returns a token: at least 128 random bits, at most 256 characters (rule 10). */
  makeToken(): string;
  /** A one-way hash. Only hashes are kept, so that what leaks from here resumes nothing (rule 10). */
  hash(token: string): string;
}

/** The tokens of one session. */
export interface TokenEntry<S> {
  readonly session: S;
  /** Who opened the session. Only the same principal resumes it (rule 10). */
  readonly principal: string | undefined;
  /** Hashes of the token that the client is known to have, and of the newest one that it was given since (rule 4). */
  confirmed: string | undefined;
  next: string | undefined;
  /** The highest attempt that came (rule 3). */
  attempt: number;
}

/** Why a `resume` resumes nothing: no session has the token, or a later attempt came before. */
export type ResumeFailure = "unknown" | "stale";

/** Sessions by the hashes of their tokens. */
export class TokenRegistry<S> {
  readonly #options: TokenOptions;
  readonly #byHash = new Map<string, TokenEntry<S>>();
  #resumable = 0;

  constructor(options: TokenOptions) {
    this.#options = options;
  }

  /** How many tokens are accepted. */
  get size(): number {
    return this.#byHash.size;
  }

  /** How many sessions can be resumed. */
  get resumable(): number {
    return this.#resumable;
  }

  /** Returns a token for a session that may begin. */
  makeToken(): string {
    return this.#options.makeToken();
  }

  /** Begins the tokens of a session whose client was offered `token`, and accepts it from now on (rule 9). */
  open(session: S, principal: string | undefined, token: string): TokenEntry<S> {
    const next = this.#options.hash(token);
    const entry: TokenEntry<S> = { session, principal, confirmed: undefined, next, attempt: 0 };
    this.#byHash.set(next, entry);
    this.#resumable++;
    return entry;
  }

  /** The client has the newest token, so the one before it is not accepted any more (rule 4). */
  confirm(entry: TokenEntry<S>): void {
    const { confirmed, next } = entry;
    if (next === undefined) return;
    if (confirmed !== undefined) this.#byHash.delete(confirmed);
    entry.confirmed = next;
    entry.next = undefined;
  }

  /** Finds the session that a `resume` goes on with, for that principal. Counts the attempt. */
  find({ token, attempt }: ResumeFrame, principal: string | undefined): TokenEntry<S> | ResumeFailure {
    const entry = this.#byHash.get(this.#options.hash(token));
    // Rule 10: another principal leaves the session alone.
    if (entry === undefined || entry.principal !== principal) return "unknown";
    // Rule 3: so does an attempt that a later one has overtaken.
    if (attempt <= entry.attempt) return "stale";
    entry.attempt = attempt;
    return entry;
  }

  /** Returns a new token for a session that `token` resumes, in place of the one that was given last and not confirmed (rule 4). */
  renew(entry: TokenEntry<S>, token: string): string {
    const options = this.#options;
    // A client that shows the newest token has it.
    if (options.hash(token) === entry.next) this.confirm(entry);
    if (entry.next !== undefined) this.#byHash.delete(entry.next);
    const newest = options.makeToken();
    entry.next = options.hash(newest);
    this.#byHash.set(entry.next, entry);
    return newest;
  }

  /** The session can be resumed no more. May be called twice. */
  drop(entry: TokenEntry<S>): void {
    const { confirmed, next } = entry;
    if (confirmed === undefined && next === undefined) return;
    this.#resumable--;
    if (confirmed !== undefined) this.#byHash.delete(confirmed);
    if (next !== undefined) this.#byHash.delete(next);
    entry.confirmed = entry.next = undefined;
  }
}
