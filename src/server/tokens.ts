/** The tokens of all sessions of one server: issues them, replaces them at each resume, and finds the session of a token. */
import type { ResumeFrame } from "../session/frames.js";

/** How tokens are made. */
export interface TokenOptions {
  /** Returns a token: at least 128 random bits, at most 256 characters (rule 10). */
  makeToken(): string;
  /** Returns a one-way hash. Only hashes are kept, so that a leak of this memory resumes no session (rule 10). */
  hash(token: string): string;
}

/** A session that can be resumed, with what its tokens need. */
export interface Resumable {
  /** The principal that opened the session. Only the same principal resumes it (rule 10). */
  readonly principal: string | undefined;
  /** Hashes of the token that the client has confirmed, and of the newest one that was issued since (rule 4). */
  confirmedHash: string | undefined;
  nextHash: string | undefined;
  /** The highest attempt received (rule 3). */
  attempt: number;
}

/** Why a `resume` fails: no session has the token, or a later attempt came before. */
export type ResumeFailure = "unknown" | "stale";

/** Sessions by the hashes of their tokens. */
export class TokenRegistry<S extends Resumable> {
  readonly #options: TokenOptions;
  readonly #byHash = new Map<string, S>();
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

  /** Registers a session whose client was offered `token`, and accepts the token from now on (rule 9). */
  open(session: S, token: string): void {
    session.nextHash = this.#options.hash(token);
    this.#byHash.set(session.nextHash, session);
    this.#resumable++;
  }

  /** Stops accepting the previous token, because the client has the newest one (rule 4). */
  confirm(session: S): void {
    const { confirmedHash, nextHash } = session;
    if (nextHash === undefined) return;
    if (confirmedHash !== undefined) this.#byHash.delete(confirmedHash);
    session.confirmedHash = nextHash;
    session.nextHash = undefined;
  }

  /** Finds the session that `resume` names, for that principal. Records the attempt. */
  find({ token, attempt }: ResumeFrame, principal: string | undefined): S | ResumeFailure {
    const hash = this.#options.hash(token);
    // Rule 10: the `resume` of another principal does not change the session.
    const session = this.byHash(hash, principal);
    if (session === undefined) return "unknown";
    // Rule 3: an attempt that came after a later one does not change the session either.
    if (attempt <= session.attempt) return "stale";
    session.attempt = attempt;
    // Rule 4: a client that sends the newest token has it.
    if (hash === session.nextHash) this.confirm(session);
    return session;
  }

  /** Returns the session of a hash, for that principal. */
  byHash(hash: string, principal: string | undefined): S | undefined {
    const session = this.#byHash.get(hash);
    return session?.principal === principal ? session : undefined;
  }

  /** Returns a new token for a session that is resumed. It replaces the last one issued and not confirmed (rule 4). */
  renew(session: S): string {
    const options = this.#options;
    if (session.nextHash !== undefined) this.#byHash.delete(session.nextHash);
    const newest = options.makeToken();
    session.nextHash = options.hash(newest);
    this.#byHash.set(session.nextHash, session);
    return newest;
  }

  /** Removes all tokens of a session, so that it cannot be resumed. May be called twice. */
  drop(session: S): void {
    const { confirmedHash, nextHash } = session;
    if (confirmedHash === undefined && nextHash === undefined) return;
    this.#resumable--;
    if (confirmedHash !== undefined) this.#byHash.delete(confirmedHash);
    if (nextHash !== undefined) this.#byHash.delete(nextHash);
    session.confirmedHash = session.nextHash = undefined;
  }
}
