/**
 * What the client of a world shows to its server, what the server makes of it, and the rules for both: `peer.auth` is the newest
 * result of `authenticate`, `refresh` is emitted once for each success, and a `reauthenticate` settles with its true outcome.
 */
import type { IncomingMessage } from "node:http";
import { sleep } from "../support/time.js";
import type { AnyPeer, Attempt, CloseInfo, ConnectionLostError } from "../../src/index.js";
import type { End, Oracle } from "./oracle.js";
import type { Random } from "./random.js";
import { CLIENT_NAME, type Speaker } from "./traffic.js";

/** The `auth` of the client. Each has a number of its own. */
interface Auth {
  readonly name: string;
  readonly id: number;
}

/** A result of `authenticate`, which is `peer.auth`. No two are the same object. */
export interface Account {
  readonly name: string;
  /** The number of the `auth`; `undefined` for a client that sent a header. */
  readonly id: number | undefined;
}

/** Why the server refuses each `auth` of `reauthenticate`: `authenticate` returns nothing, or names another user. */
export type AuthRefusal = "unknown user" | "other user";

interface Renewal {
  readonly from: End;
  /** Each later number may be that of its `auth`. A call that is made while another is pending may share the newest `auth`, no older one. */
  readonly since: number;
  /** As `since`, if the server has asked for an `auth` that is pending. */
  readonly newest: number;
  until: number;
  outcome: "result" | "not-sent" | "unknown" | undefined;
}

/** A server's peer, with all its results of `authenticate` so far, the newest last. */
interface Holder {
  readonly peer: AnyPeer;
  readonly accounts: Account[];
  /** How many results it had when it was suspended. */
  before: number;
}

/** The name of a user that `authenticate` does not know, and of another user. */
const UNKNOWN_NAME = "an unknown user";
const OTHER_NAME = "bob";

export class Credentials {
  /** Set before the client shows an `auth` that is refused. */
  refusal: AuthRefusal | undefined;
  readonly #oracle: Oracle;
  readonly #random: Random;
  #lastId = 0;
  /** The numbers of each `auth` for an open connection, and of each that has arrived. */
  readonly #fresh = new Set<number>();
  readonly #arrived = new Set<number>();
  /** The results that no peer has yet. */
  readonly #unused = new Set<Account>();
  readonly #holders = new Map<End, Holder>();
  readonly #renewals: Renewal[] = [];
  readonly #expires: boolean;

  constructor(oracle: Oracle, random: Random) {
    this.#oracle = oracle;
    this.#random = random;
    this.#expires = random.chance(0.5);
  }

  readonly show = async ({ number, reason }: Attempt): Promise<Auth> => {
    const id = ++this.#lastId;
    if ((reason as CloseInfo | undefined)?.code === 4001) this.#oracle.tally.expiries++;
    // An open connection has the number 0.
    if (number === 0) this.#fresh.add(id);
    await this.#delay();
    const { refusal } = this;
    if (number !== 0 || refusal === undefined) return { name: CLIENT_NAME, id };
    return { name: refusal === "unknown user" ? UNKNOWN_NAME : OTHER_NAME, id };
  };

  readonly authenticate = async ({ headers }: IncomingMessage, auth: unknown): Promise<Account | undefined> => {
    const { name = headers.authorization, id } = (auth ?? {}) as Partial<Auth>;
    if (id !== undefined) this.#arrived.add(id);
    await this.#delay();
    if (name === undefined || name === UNKNOWN_NAME) return undefined;
    const account = { name, id };
    this.#unused.add(account);
    return account;
  };

  /** Returns how long an account is valid. The server asks for a fresh `auth` before only if that is more than a second. */
  readonly expiresInMs = (): number | undefined => (this.#expires ? 300 + this.#random.below(2_000) : undefined);

  async #delay(): Promise<void> {
    if (this.#random.chance(0.3)) await sleep(this.#random.below(4));
  }

  begins(end: End, peer: AnyPeer): void {
    this.#holders.set(end, { peer, accounts: [], before: 0 });
    this.#takes(end);
  }

  refreshed(end: End, old: unknown): void {
    this.#oracle.tally.refreshes++;
    const { accounts } = this.#holders.get(end)!;
    if (old !== accounts.at(-1))
      this.#oracle.fail("`refresh` was emitted with an `auth` that was not the peer's before");
    this.#takes(end);
  }

  #takes(end: End): void {
    const { peer, accounts } = this.#holders.get(end)!;
    const auth = peer.auth as Account;
    if (!this.#unused.delete(auth)) this.#oracle.fail("the `auth` of a peer is no new result of `authenticate`");
    if (auth.name !== CLIENT_NAME) this.#oracle.fail(`a peer has the account of ${auth.name}`);
    accounts.push(auth);
  }

  suspended(end: End): void {
    const holder = this.#holders.get(end)!;
    holder.before = holder.accounts.length;
  }

  /** Records that a server's peer is resumed: `authenticate` has run again, and `refresh` is emitted before or after this. */
  resumed(end: End): void {
    const { peer, accounts, before } = this.#holders.get(end)!;
    if (accounts.length === before && !this.#unused.has(peer.auth as Account))
      this.#oracle.fail("a peer was resumed, and has the `auth` of before");
  }

  /** Checks that a server's peer has the `auth` of its last `refresh`. */
  check(end: End): void {
    const { peer, accounts } = this.#holders.get(end)!;
    if (peer.auth !== accounts.at(-1)) this.#oracle.fail("the `auth` of a peer has changed without `refresh`");
  }

  /** Makes the client call `reauthenticate`. Resolves when it is settled. */
  async renew({ end, peer }: Speaker): Promise<void> {
    const pending = this.#renewals.find(({ outcome }) => outcome === undefined);
    const newest = Math.max(0, ...[...this.#fresh].map((id) => id - 1));
    const since = pending === undefined ? this.#lastId : Math.max(pending.since, newest);
    const renewal: Renewal = { from: end, since, newest, until: Infinity, outcome: undefined };
    this.#renewals.push(renewal);
    const { suspends } = this.#oracle.tally;
    try {
      await peer.reauthenticate().finally(() => (renewal.until = this.#lastId));
      if (this.#oracle.tally.suspends > suspends) this.#oracle.tally.renewedLater++;
      this.#fulfilled(renewal);
    } catch (error) {
      this.#rejected(renewal, error);
    }
  }

  #fulfilled(renewal: Renewal): void {
    const { from } = renewal;
    renewal.outcome = "result";
    this.#oracle.tally.renewed++;
    if (this.refusal !== undefined) this.#oracle.fail(`the \`auth\` of an ${this.refusal} was accepted`);
    const most = this.#expires ? { ...renewal, since: renewal.newest } : renewal;
    const ends = [...this.#holders.keys()].filter((end) =>
      this.#holders.get(end)!.accounts.some(({ id }) => this.#isOf(most, id)),
    );
    if (ends.length === 0) return this.#oracle.fail("`reauthenticate` resolved, and no peer has its result");
    if (from.other !== undefined && !ends.includes(from.other))
      this.#oracle.fail("`reauthenticate` resolved for another session");
    this.check(from.other ?? ends[0]!);
  }

  #rejected(renewal: Renewal, error: unknown): void {
    const { code, outcome, method } = error as ConnectionLostError;
    if (code !== "CONNECTION_LOST" || method !== "$/reauthenticate") {
      renewal.outcome = "unknown";
      return this.#oracle.fail(`\`reauthenticate\` was rejected with ${String(error)}`);
    }
    renewal.outcome = outcome;
    this.#oracle.tally.renewalsLost++;
    this.#checkUnsent(renewal);
  }

  #checkUnsent(renewal: Renewal): void {
    const hasArrived = [...this.#arrived].some((id) => this.#isOf(renewal, id));
    if (renewal.outcome === "not-sent" && hasArrived)
      this.#oracle.fail("`reauthenticate` is reported as not sent, and its `auth` has arrived");
  }

  #isOf({ since, until }: Renewal, id: number | undefined): boolean {
    return id !== undefined && id > since && id <= until && this.#fresh.has(id);
  }

  finish(): void {
    for (const renewal of this.#renewals) {
      const { outcome, from } = renewal;
      if (outcome === undefined) this.#oracle.fail("`reauthenticate` never settled");
      else if (outcome !== "result" && !from.isOver)
        this.#oracle.fail("`reauthenticate` is said to be lost, and its session is not");
      this.#checkUnsent(renewal);
    }
  }
}
