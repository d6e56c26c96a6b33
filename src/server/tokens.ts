/** The tokens of all sessions of one server: issues them, replaces them at each resume, and finds the session of a token. */
import type { ResumeFrame } from "../session/frames.js";

/** How tokens are made. */
export interface TokenOptions {
  /** Returns a token: at least 128 random bits, at most 256 characters (rule 10). */
  makeToken(): string;
  /** Returns a one-way hash. Only hashes are kept, so that a leak of this memory resumes no session (rule 10). */
  hash(token: string): string;
}

/** The tokens of one session. */
export interface TokenEntry<S> {
  readonly session: S;
  /** The principal that opened the session. Only the same principal resumes it (rule 10). */
  readonly principal: string | undefined;
  /** Hashes of the token that the client has confirmed, and of the newest one that was issued since (rule 4). */
  confirmed: string | undefined;
  next: string | undefined;
  /** The highest attempt received (rule 3). */
  attempt: number;
}

/** Why a `resume` fails: no session has the token, or a later attempt came before. */
export type ResumeFailure = "unknown" | "stale";

/** Sessions by the hashes of their tokens. */
export class TokenRegistry<S> {
  readonly #options: TokenOptions;
  readonly #byHash = new Map<string, TokenEntry<S>>();
  #resumable = 0;

  constructor(options: TokenOptions) {
    this.#options = options;
  }

  /** Number of accepted tokens. */
  get size(): number {
    return this.#byHash.size;
  }

  /** Number of sessions that can be resumed. */
  get resumable(): number {
    return this.#resumable;
  }

  /** Returns a token for a session that may start. */
  makeToken(): string {
    return this.#options.makeToken();
  }

  /** Registers a session whose client was offered `token`, and accepts the token from now on (rule 9). */
  open(session: S, principal: string | undefined, token: string): TokenEntry<S> {
    const next = this.#options.hash(token);
    const entry: TokenEntry<S> = { session, principal, confirmed: undefined, next, attempt: 0 };
    this.#byHash.set(next, entry);
    this.#resumable++;
    return entry;
  }

  /** Stops accepting the previous token, because the client has the newest one (rule 4). */
  confirm(entry: TokenEntry<S>): void {
    const { confirmed, next } = entry;
    if (next === undefined) return;
    if (confirmed !== undefined) this.#byHash.delete(confirmed);
    entry.confirmed = next;
    entry.next = undefined;
  }

  /** Finds the session that `resume` names, for that principal. Records the attempt. */
  find({ token, attempt }: ResumeFrame, principal: string | undefined): TokenEntry<S> | ResumeFailure {
    const entry = this.#byHash.get(this.#options.hash(token));
    // Rule 10: the `resume` of another principal does not change the session.
    if (entry === undefined || entry.principal !== principal) return "unknown";
    // Rule 3: an attempt that came after a later one does not change the session either.
    if (attempt <= entry.attempt) return "stale";
    entry.attempt = attempt;
    return entry;
  }

  /** Returns the session of a hash, for that principal. */
  byHash(hash: string, principal: string | undefined): S | undefined {
    const entry = this.#byHash.get(hash);
    return entry?.principal === principal ? entry?.session : undefined;
  }

  /** Returns a new token for a session that `token` resumes. It replaces the last one issued and not confirmed (rule 4). */
  renew(entry: TokenEntry<S>, token: string): string {
    const options = this.#options;
    // A client that sends the newest token has it.
    if (options.hash(token) === entry.next) this.confirm(entry);
    if (entry.next !== undefined) this.#byHash.delete(entry.next);
    const newest = options.makeToken();
    entry.next = options.hash(newest);
    this.#byHash.set(entry.next, entry);
    return newest;
  }

  /** Removes all tokens of a session, so that it cannot be resumed. May be called twice. */
  drop(entry: TokenEntry<S>): void {
    const { confirmed, next } = entry;
    if (confirmed === undefined && next === undefined) return;
    this.#resumable--;
    if (confirmed !== undefined) this.#byHash.delete(confirmed);
    if (next !== undefined) this.#byHash.delete(next);
    entry.confirmed = entry.next = undefined;
  }
}
