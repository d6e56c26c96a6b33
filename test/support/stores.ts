/**
 * The stores of pages under faults: a followed topic, presence and changes, with their methods, traffic and rules. The runs with faults of one
 * server (`test/faults`) and of a fleet (`test/fleet`) share them. A rule is judged at each change of a store, and at rest, without traffic and
 * faults.
 * S1: A store that is current has the state of the log at its position, and each publication that its page has got. At rest, it has all.
 * S2: A store that is current has an open peer, and no error. At rest, each store is current.
 * S3: A list that is current has states that pages have set. At rest, each page sees all other members once, with their newest states, and no
 * member has left.
 * S4: A change runs once in a life of its log, and is pending until its call has settled. Its caller gets the result of a run, or the outcome is
 * unknown. At rest, none is pending.
 */
import { isDeepStrictEqual } from "node:util";
import { EngineError, follow, mutation, presence, RpcError } from "../../src/node.js";
import type { AnyPeer, FollowedTopic, Joined, Mutation, Presence, Server } from "../../src/node.js";
import type { Random } from "../faults/random.js";
import { sleep } from "./time.js";

/** In the order in which they are checked at rest: a store that is not current has an old state. */
const RULES = ["S2", "S1", "S3", "S4"] as const;
export type StoreRule = (typeof RULES)[number];

/** The notification of a change in the list of members. */
export const MOVED = "moved";
/** How long a change runs at most, so that its session may be lost meanwhile, and how late an application joins that is wrong. */
const LONG_MS = 1_000;
const TICK_MS = 10;

/** The state of the followed topic: its position, and a sum of all publications, which depends on their order. */
type Board = { readonly at: string; readonly sum: number };
type BoardApi = { openBoard(params: { since?: string }): Joined<Board> };

type Watched = Pick<FollowedTopic<any> | Presence<any, any>, "get" | "subscribe">;
type AnyServer = Server<any, any, any>;
type Topics = Pick<AnyServer, "topic">;
type Methods = Readonly<Record<"openBoard" | "people" | "put", (params: any, context: any) => any>>;

/** The rules of the topics of the stores. */
export const STORE_TOPICS: Readonly<Record<string, object>> = {
  board: { log: { length: 5_000 } },
  people: { members: MOVED },
};

/** How an application is wrong: returns the methods that are. */
const MISUSES = {
  "loads before the join": ({ openBoard }) => ({
    openBoard: async (params, context) => {
      const { value } = await openBoard({}, context);
      await sleep(LONG_MS);
      return { ...(await openBoard(params, context)), value };
    },
  }),
  "refuses to join again": ({ openBoard }) => ({
    openBoard: (params, context) =>
      params.since === undefined ? openBoard(params, context) : Promise.reject(new RpcError(403, "refused")),
  }),
  "lists a member that has left": ({ people }) => ({
    people: async (params, context) => {
      const joined = await people(params, context);
      joined.value?.members.push({ id: "left", as: { n: 0 } });
      return joined;
    },
  }),
  "replaces the key": ({ put }) => ({
    put: (params, context) => put(Object.assign(params, { key: crypto.randomUUID() }), context),
  }),
} satisfies Record<string, (right: Methods) => Partial<Methods>>;
export type StoreMisuse = keyof typeof MISUSES;

export type StoreFigures = Stores["figures"];

/** What the stores need of their world. */
interface Setting {
  readonly random: Random;
  readonly breach: (rule: StoreRule, text: string) => void;
  /** Returns true if the log of changes had one life in two runs. Default: if they have one server. */
  readonly hasOneLife?: (one: unknown, other: unknown) => boolean;
  /** Default true. */
  readonly hasLogs?: boolean;
  /** Only a `StoreMisuse` has an effect. */
  readonly misuse: string | undefined;
}

export class Stores {
  readonly figures = { "boards loaded": 0, "boards changed": 0, "changes made": 0, "changes repeated": 0 };
  readonly #setting: Required<Setting>;
  /** The stores of each page. Without logs, it has only its presence. */
  readonly #pages: {
    readonly people: Presence<any, any>;
    readonly board: FollowedTopic<Board> | undefined;
    readonly changes: Mutation<any> | undefined;
  }[] = [];
  /** The sum at each position. */
  readonly #sums = new Map<string, number>();
  /** The states that pages have set. */
  readonly #states = new Set<number>();
  readonly #state = (): { n: number } => (this.#states.add(++this.#numbers), { n: this.#numbers });
  /** The runs of each change. */
  readonly #runs = new Map<string, { readonly result: number; readonly by: unknown }[]>();
  #numbers = 0;

  constructor(setting: Setting) {
    this.#setting = { hasOneLife: (one, other) => one === other, hasLogs: true, ...setting };
  }

  /** Returns the methods of each server. `long/fleet/node.js` has them too. `byWhom`: what names the life of the log in a run. */
  methods(byWhom: (server: AnyServer) => unknown = (server) => server): Methods {
    const right: Methods = {
      openBoard: async ({ since }, { peer, server }) => {
        const joined = await server.topic("board").join(peer, { since, load: () => this.load(server) });
        return { ...joined, at: joined.value?.at ?? joined.at };
      },
      people: (params, { peer, server }) => server.topic("people").present(peer, params, params.state),
      put: ({ change }, context) => {
        this.asked(change);
        return context.server.runOnce(context, () => this.run(change, byWhom(context.server)));
      },
    };
    const misuses: Record<string, (right: Methods) => Partial<Methods>> = MISUSES;
    return { ...right, ...misuses[this.#setting.misuse ?? ""]?.(right) };
  }

  /** Returns the state of the followed topic. */
  load(server: Topics): Promise<Board> {
    this.figures["boards loaded"]++;
    return this.#boardOf(server);
  }

  /** Records that a change came to a server. */
  asked(change: string): void {
    if (this.#runs.has(change)) this.figures["changes repeated"]++;
  }

  /** Runs a change. Returns a result that no other run has. */
  async run(change: string, by: unknown): Promise<number> {
    const result = ++this.#numbers;
    this.#runs.set(change, [...(this.#runs.get(change) ?? []), { result, by }]);
    await sleep(this.#setting.random.below(LONG_MS));
    return result;
  }

  /** Makes the stores of a page. */
  open(peer: AnyPeer): void {
    const { hasLogs } = this.#setting;
    const added = (board: Board, said: any): Board => (this.figures["boards changed"]++, this.#add(board, said));
    const page = {
      people: presence(peer, "people", {}, { state: this.#state() }),
      board: hasLogs ? follow<any, BoardApi, "openBoard">(peer, "openBoard", {}, { reduce: { added } }) : undefined,
      changes: hasLogs ? mutation(peer, "put") : undefined,
    };
    this.#pages.push(page);
    /** The position of the newest publication that the page has got in its session. Another server may not have it yet. */
    let got = "";
    peer.on("lost", () => (got = ""));
    peer.on("notification", (method, params: any) => method === "added" && (got = params.at));
    this.#judge(peer, page.board, "S1", ({ value: { at, sum } }) => {
      const [[epoch, offset], [gotEpoch, gotOffset]] = [at.split("."), got.split(".")];
      return sum === (this.#sums.get(at) ?? 0) && (epoch !== gotEpoch || Number(offset) >= Number(gotOffset));
    });
    this.#judge(peer, page.people, "S3", ({ others }) => others.every(({ as }: any) => this.#states.has(as.n)));
  }

  /** Judges a store at each change, if it is current then. */
  #judge(peer: AnyPeer, store: Watched | undefined, rule: StoreRule, isRight: (shown: any) => boolean): void {
    store?.subscribe(() => {
      const shown = store.get();
      const isOpen = peer.state === "open" && shown.error === undefined;
      if (shown.isCurrent && !(isOpen && isRight(shown)))
        this.#setting.breach(isOpen ? rule : "S2", `current while ${peer.state}: ${JSON.stringify(shown)}`);
    });
  }

  /** Sets the state of a page, publishes on a server, or makes a change. */
  act(server: Topics): void {
    const { random, breach } = this.#setting;
    const { people, changes } = random.pick(this.#pages);
    // If the outcome is unknown, the log says whether it was published.
    const failed = (error: unknown): unknown => error instanceof EngineError || breach("S1", String(error));
    if (changes === undefined || random.chance(0.2)) people.set(this.#state());
    else if (random.chance(0.5)) server.topic("board").publish("added", { n: ++this.#numbers }).catch(failed);
    else void this.#change(changes, `change ${++this.#numbers}`);
  }

  /** Waits until each rule is kept at rest. Otherwise, one is broken. `isOpen`: whether an open peer has an id. */
  async rest(server: () => Topics, patienceMs: number, isOpen: (id: string) => boolean): Promise<void> {
    const until = performance.now() + patienceMs;
    const { breach, hasOneLife } = this.#setting;
    for (const rule of RULES) {
      // After its last fault, the broker may still refuse something.
      const check = (): Promise<string | undefined> => this.#complaint(rule, server(), isOpen).catch(String);
      for (let found; (found = await check()) !== undefined; await sleep(TICK_MS))
        if (performance.now() > until) return breach(rule, `not in time: ${found}`);
    }
    for (const [change, runs] of this.#runs)
      if (runs.some(({ by }, i) => runs.slice(0, i).some((one) => hasOneLife(one.by, by))))
        breach("S4", `${change} ran twice`);
  }

  /** Returns how a page breaks a rule; `undefined` if none does. */
  async #complaint(rule: StoreRule, server: Topics, isOpen: (id: string) => boolean): Promise<string | undefined> {
    const state = rule === "S1" && this.#setting.hasLogs ? await this.#boardOf(server) : undefined;
    const list = rule === "S3" ? await server.topic("people").members() : [];
    const left = list.filter(({ id }) => !isOpen(id));
    for (const { people, board, changes } of this.#pages) {
      const { others, me } = people.get();
      // What the page does not see: only itself.
      const hidden = list.filter((member) => !others.some((other) => isDeepStrictEqual(other, member)));
      const seen = [left, others.length, hidden.map(({ as }) => as)];
      const [found, expected] = {
        S1: [board?.get().value, state],
        S2: [[people, board].map((store) => store?.get().isCurrent ?? true), [true, true]],
        S3: [seen, [[], list.length - 1, [me]]],
        S4: [changes?.get().pending ?? [], []],
      }[rule];
      if (!isDeepStrictEqual(found, expected)) return `${JSON.stringify(found)}, and not ${JSON.stringify(expected)}`;
    }
    return undefined;
  }

  /** Returns the state of the followed topic, as a server makes it of the log. */
  async #boardOf(server: Topics): Promise<Board> {
    for (let board: Board | undefined; ;) {
      const { at, outcome, entries } = await server.topic("board").read({ since: board?.at, limit: 1_000 });
      // Another log may have begun since the last page.
      if (board === undefined || outcome === "gap") board = { at: `${at.split(".")[0]}.0`, sum: 0 };
      for (const { params } of entries) board = this.#add(board, params);
      if (entries.length === 0) return board;
    }
  }

  /** S1. Returns the state after a publication. */
  #add({ at: before, sum }: Board, { n, at }: { n: number; at: string }): Board {
    const [epoch, offset] = before.split(".");
    const next = (31 * sum + n) % 1e9;
    const other = this.#sums.get(at) ?? next;
    this.#sums.set(at, other);
    if (at !== `${epoch}.${Number(offset) + 1}` || other !== next)
      this.#setting.breach("S1", `${n} was applied after ${before}, as ${at}, to ${next}, and not ${other}`);
    return { at, sum: next };
  }

  /** S4. Makes a change. */
  async #change({ mutate, get }: Mutation<any>, change: string): Promise<void> {
    const { breach } = this.#setting;
    try {
      const result: unknown = await mutate({ change });
      this.figures["changes made"]++;
      if (!this.#runs.get(change)?.some((run) => run.result === result))
        breach("S4", `${change} has the result ${result}, of no run`);
    } catch (error) {
      const { code } = error as { code?: unknown };
      // The outcome is unknown.
      if (code !== -32011 && code !== "TIMEOUT") breach("S4", `${change} was rejected with ${String(error)}`);
    } finally {
      if (get().pending.some((one) => one["change"] === change)) breach("S4", `${change} has settled, and is pending`);
    }
  }
}
