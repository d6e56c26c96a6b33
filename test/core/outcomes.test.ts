/** What each call settles with, whatever happens to it or to its connection: the table of docs/RELIABILITY.md, run cell by cell. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
  ConnectionLostError,
  ProtocolError,
  RpcError,
  TimeoutError,
  TooLargeError,
  type AnyPeer,
  type Message,
} from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { expectEmpty } from "../support/pair.js";
import { pass, useVirtualClock } from "../support/time.js";
import { gate, turn } from "../support/turns.js";

useVirtualClock();

/** How the caller is connected: in a session, by plain JSON-RPC, or as the server's peer of a WebSocket that is not reciproc. */
const LINKS = ["session", "plain", "WebSocket"] as const;
type Link = (typeof LINKS)[number];
const KINDS = ["request", "batch", "stream", "notify"] as const;
type Kind = (typeof KINDS)[number];

const REASON = new Error("changed my mind");
/** Of the client. */
const LIMIT = 10_000;
/** The longest message that the server accepts. */
const LONGEST = 2 ** 20;

/** One caller, the side that it calls, and the network between them. */
class Scene {
  readonly link: Link;
  readonly test;
  caller!: AnyPeer;
  readonly abort = new AbortController();
  /** How many handlers of this call have started. */
  ran = 0;
  readonly #answer = gate<unknown>();
  /** What the other side sends in place of a response, if it is a WebSocket. */
  broken: object | undefined;
  /** The length of the params. */
  size = 0;
  #webSocket: InstanceType<ReturnType<typeof testServer>["WebSocket"]> | undefined;

  constructor(link: Link) {
    this.link = link;
    const work = (): unknown => (this.ran++, this.#answer.promise);
    this.test = testServer<any, any>({ methods: { work, noise: () => {} } });
    this.test.server.on("error", () => {});
  }

  /** Opens the connection, or begins to with `isAwaited` false. */
  async open(isAwaited = true): Promise<void> {
    const { server, WebSocket } = this.test;
    if (this.link === "WebSocket") {
      const connected = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
      this.#webSocket = new WebSocket(server.url, { headers: {} });
      this.#webSocket.addEventListener("message", (event) => {
        void this.#receive(JSON.parse(String((event as MessageEvent).data)));
      });
      this.caller = await connected;
    } else {
      this.caller = this.test.open(server.url, {
        limits: { maxUnsentBytes: LIMIT },
        ...(this.link === "plain" && { link: "plain" as const }),
      });
      if (isAwaited) await this.caller.opened;
      else this.caller.opened.catch(() => {});
    }
    await this.test.network.settle();
  }

  /** Answers as a WebSocket that knows JSON-RPC 2.0. */
  async #receive(received: Message | Message[]): Promise<void> {
    const replies: object[] = [];
    for (const message of [received].flat()) {
      if (!("method" in message) || message.method !== "work") continue;
      this.ran++;
      const outcome = await this.#answer.promise.then(
        (result) => ({ result }),
        (error: RpcError) => ({ error: { code: error.code, message: error.message } }),
      );
      if ("id" in message) replies.push({ jsonrpc: "2.0", id: message.id, ...(this.broken ?? outcome) });
    }
    const reply = Array.isArray(received) ? replies : replies[0];
    if (replies.length > 0) this.#webSocket!.send(JSON.stringify(reply));
  }

  answer(): void {
    // A stream of one value, for `stream`.
    this.#answer.resolve({ values: ["done"] });
  }

  refuse(): void {
    this.#answer.reject(new RpcError(403, "no"));
  }

  /** Closes the connection on the other side. */
  closeThere(): void {
    if (this.#webSocket !== undefined) this.#webSocket.close(1000);
    else for (const peer of this.test.server.peers) void peer.close(1000);
  }

  stop(): void {
    this.test.network.stop();
  }

  /** Stops the network, and lets the caller lose its socket. */
  suspend(): void {
    this.test.network.stop();
    this.test.network.cut();
  }

  /** Lets the session of a caller expire. */
  async expire(): Promise<void> {
    this.suspend();
    await pass(100_000);
  }

  /** Fills the queue of a caller that has no session. */
  async fill(): Promise<void> {
    await this.expire();
    while (this.caller.notify("noise", ["x".repeat(100)]));
    this.size = 1_000;
  }

  /** Lets the network continue, and a client reconnect. */
  async start(): Promise<void> {
    this.test.network.start();
    // The longest delay before an attempt.
    await pass(20_000);
  }

  /** Makes the call. Returns what it settles with, as a cell of the table says it, once it has settled. */
  call(kind: Kind, options: object): () => string {
    const params = ["x".repeat(this.size)];
    const given = { signal: this.abort.signal, timeoutMs: Infinity, ...options };
    let cell = "pending";
    const settled = (outcome: string): void => void (cell = outcome);
    if (kind === "notify") {
      settled(String(this.caller.notify("work", params)));
    } else {
      const batch = kind === "batch" ? this.caller.batch() : undefined;
      const call =
        kind === "stream"
          ? this.caller.stream("work", params, given)[Symbol.asyncIterator]().next()
          : (batch ?? this.caller).request("work", params, given);
      call.then(
        () => settled("result"),
        (error: unknown) => settled(named(error)),
      );
      batch?.send();
    }
    return () => cell;
  }

  /** Ends everything, and asserts that neither side has kept anything. */
  async end(): Promise<void> {
    this.abort.abort(REASON);
    await this.test.server.close();
    await this.caller.close();
    await turn();
    expectEmpty(this.caller);
  }
}

/** The codes of the errors that do not cross the wire. */
const CODES = new Map<new (...args: never) => Error, string>([
  [ConnectionLostError, "CONNECTION_LOST"],
  [TimeoutError, "TIMEOUT"],
  [TooLargeError, "TOO_LARGE"],
  [ProtocolError, "PROTOCOL"],
]);

/** Returns an error as a cell of the table names it. Checks its other members. */
function named(error: unknown): string {
  if (error === REASON) return "the reason";
  const { name, code, method, outcome, cause } = error as ConnectionLostError;
  if (error instanceof RpcError) return `RpcError ${error.code}`;
  for (const [type, expected] of CODES) if (error instanceof type) expect(code).toBe(expected);
  if (!(error instanceof ProtocolError)) expect(method).toBe("work");
  if (error instanceof ConnectionLostError) expect(cause).toBeInstanceOf(Error);
  return outcome === undefined ? name : `${name} "${outcome}"`;
}

/** What one call settles with, and whether its handler has run. */
type Cell = readonly [settles: string, hasRun: boolean];

interface Case {
  /** Where the call is. */
  readonly when: string;
  /** What happens. */
  readonly then: string;
  readonly before?: (scene: Scene) => unknown;
  readonly options?: object;
  readonly after?: (scene: Scene) => unknown;
  /** The links on which the case exists. Default: all. */
  readonly on?: readonly Link[];
  readonly session: Cell;
  /** Without a session. Default: as in a session. */
  readonly plain?: Cell;
  /** The call of a batch, and the first value of a stream. Default: as the request. */
  readonly batch?: Cell;
  readonly stream?: Cell;
  /** What `notify` returns, and whether its handler has run. Default: taken, as the request. Null if nothing of the case concerns it. */
  readonly notify?: readonly [isTaken: boolean, hasRun: boolean] | null;
}

const RESULT: Cell = ["result", true];
const LOST: Cell = ['ConnectionLostError "unknown"', true];
const LOST_ON_THE_WAY: Cell = ['ConnectionLostError "unknown"', false];
const NOT_SENT: Cell = ['ConnectionLostError "not-sent"', false];
const LATE: Cell = ['TimeoutError "unknown"', true];
const LATE_UNSENT: Cell = ['TimeoutError "not-sent"', false];
const ABORTED: Cell = ["the reason", true];
const ABORTED_UNSENT: Cell = ["the reason", false];

const SESSION = ["session"] as const;
const TO_SERVER = ["session", "plain"] as const;
const SECOND = { timeoutMs: 1_000 };

const runs = { when: "runs" };
const sent = { when: "is sent and has not arrived", before: (s: Scene) => s.stop() };
const waits = { when: "waits for the next socket", before: (s: Scene) => s.suspend(), on: SESSION };
const later = { when: "waits for the next session", on: SESSION };
const early = { when: "waits for the first connection", on: TO_SERVER };
const isMade = { when: "is made" };

const answers = (s: Scene): void => s.answer();
const aborts = (s: Scene): void => s.abort.abort(REASON);
const closes = (s: Scene): void => void s.caller.close();
const expires = (): Promise<void> => pass(100_000);
const timesOut = (): Promise<void> => pass(1_000);
const forgets = (s: Scene): void => s.test.network.lose();
/** Does that, and lets the network continue and the client reconnect. */
const thenStarts = (act: (s: Scene) => unknown) => async (s: Scene) => (await act(s), s.start());
const startsAndAnswers = async (s: Scene): Promise<void> => (await s.start(), s.answer());

/** What happens to a call that waits to be sent. */
const timeIsOver = {
  then: "its time is over",
  options: SECOND,
  after: thenStarts(timesOut),
  session: LATE_UNSENT,
  batch: LATE,
  notify: null,
};
const signalAborts = {
  then: "its signal aborts",
  after: thenStarts(aborts),
  session: ABORTED_UNSENT,
  batch: ABORTED,
  notify: null,
};
const refused = { session: NOT_SENT, notify: [false, false] } as const;
const thisSideCloses = { then: "this side closes", after: thenStarts(closes), session: NOT_SENT };

const CASES: Case[] = [
  { ...runs, then: "the other side answers", after: answers, session: RESULT },
  { ...runs, then: "its handler throws an `RpcError`", after: (s) => s.refuse(), session: ["RpcError 403", true] },
  {
    ...runs,
    then: "the answer breaks JSON-RPC 2.0",
    after: (s) => ((s.broken = { result: 1, error: { code: 1, message: "both" } }), s.answer()),
    on: ["WebSocket"],
    session: ["ProtocolError", true],
  },
  { ...runs, then: "its time is over", options: SECOND, after: timesOut, session: LATE, notify: null },
  { ...runs, then: "its signal aborts", after: aborts, session: ABORTED, notify: null },
  { ...runs, then: "this side closes", after: closes, session: LOST },
  { ...runs, then: "the other side closes", after: (s) => s.closeThere(), session: LOST },
  {
    ...runs,
    then: "the server drains until the handler ends",
    after: (s) => (void s.test.server.drain(), s.answer()),
    on: TO_SERVER,
    session: RESULT,
  },
  {
    ...runs,
    then: "the server drains, and the handler ends too late",
    after: (s) => (void s.test.server.drain(SECOND), timesOut()),
    on: TO_SERVER,
    session: LOST,
  },
  {
    ...runs,
    then: "the socket is lost, and the other side answers",
    after: async (s) => (s.test.network.cut(), await s.start(), s.answer()),
    session: RESULT,
    plain: LOST,
  },
  {
    ...runs,
    then: "the session expires, or the socket is lost without one",
    after: thenStarts((s) => s.expire()),
    session: LOST,
  },
  { ...runs, then: "the server forgets the session, or restarts", after: thenStarts(forgets), session: LOST },
  { ...sent, then: "the network continues", after: startsAndAnswers, session: RESULT },
  {
    ...sent,
    then: "the socket is lost",
    after: async (s) => (s.test.network.cut(), startsAndAnswers(s)),
    session: RESULT,
    plain: LOST_ON_THE_WAY,
  },
  {
    ...sent,
    then: "a newer socket supersedes it",
    // The server does not answer a ping within 5 s.
    after: async (s) => (s.caller.reconnect(), await pass(6_000), startsAndAnswers(s)),
    on: SESSION,
    session: RESULT,
  },
  { ...sent, then: "its time is over", options: SECOND, after: thenStarts(timesOut), session: LATE, notify: null },
  { ...sent, then: "its signal aborts", after: thenStarts(aborts), session: ABORTED, notify: null },
  { ...sent, then: "this side closes", after: thenStarts(closes), session: LOST },
  {
    ...sent,
    then: "the server forgets the session, or restarts",
    after: thenStarts(forgets),
    session: LOST_ON_THE_WAY,
  },
  { ...waits, then: "the session is resumed", after: startsAndAnswers, session: RESULT },
  { ...waits, ...timeIsOver },
  { ...waits, ...signalAborts },
  { ...waits, ...thisSideCloses },
  { ...waits, then: "the session expires", after: thenStarts(expires), session: NOT_SENT },
  {
    ...waits,
    then: "the server drains",
    after: thenStarts((s) => (void s.test.server.drain(), expires())),
    session: NOT_SENT,
  },
  { ...waits, then: "the server forgets the session, or restarts", after: thenStarts(forgets), session: NOT_SENT },
  {
    ...waits,
    then: 'the server restarts, and the call has `retry: "not-sent"`',
    options: { retry: "not-sent" },
    after: async (s) => (forgets(s), startsAndAnswers(s)),
    session: RESULT,
    batch: NOT_SENT,
    stream: NOT_SENT,
    notify: [true, false],
  },
  { ...later, then: "it begins", before: (s) => s.expire(), after: startsAndAnswers, session: RESULT },
  { ...later, ...refused, then: "the queue is full", before: (s) => s.fill() },
  { ...early, then: "it opens", after: startsAndAnswers, session: RESULT },
  { ...early, ...timeIsOver },
  { ...early, ...signalAborts },
  { ...early, ...thisSideCloses },
  { ...early, then: "it cannot be opened", after: thenStarts((s) => void s.test.server.close()), session: NOT_SENT },
  { ...isMade, ...refused, then: "this side has closed", before: (s) => s.caller.close() },
  { ...isMade, ...refused, then: "the other side has closed", before: (s) => s.closeThere() },
  { ...isMade, then: "its signal has aborted", before: aborts, session: ABORTED_UNSENT, notify: null },
  {
    ...isMade,
    then: "it is longer than the other side accepts",
    before: (s) => void (s.size = LONGEST),
    on: TO_SERVER,
    session: ["TooLargeError", false],
    plain: LOST_ON_THE_WAY,
    notify: [false, false],
  },
];

/** Returns what a call of that kind settles with. For a notification, that is what `notify` returns. */
function expectedCell({ session, plain = session, batch, stream, notify }: Case, link: Link, kind: Kind): Cell | null {
  const cell = link === "session" ? session : plain;
  if (kind === "batch") return batch ?? cell;
  if (kind === "stream") return stream ?? cell;
  if (kind === "request") return cell;
  if (notify === null) return null;
  // Without a session, no limit of the other side is known.
  const [isTaken, hasRun] = cell[0] === 'ConnectionLostError "unknown"' ? [true, cell[1]] : (notify ?? [true, cell[1]]);
  return [String(isTaken), hasRun];
}

describe.each(LINKS)("a call over a %s connection that", (link) => {
  const cases = CASES.filter(({ on = LINKS }) => on.includes(link));
  it.each(cases.map((one) => [one.when, one.then, one] as const))("%s settles once if %s", async (when, _then, one) => {
    const { before, options = {}, after } = one;
    for (const kind of KINDS) {
      const expected = expectedCell(one, link, kind);
      if (expected === null) continue;
      const scene = new Scene(link);
      if (when === early.when) scene.stop();
      await scene.open(when !== early.when);
      await before?.(scene);
      if (when === isMade.when) await scene.test.network.settle();
      const outcome = scene.call(kind, options);
      await scene.test.network.settle();
      await after?.(scene);
      await scene.test.network.settle();
      expect([kind, outcome(), scene.ran > 0]).toEqual([kind, ...expected]);
      expect(scene.ran).toBeLessThan(2);
      await scene.end();
    }
  });
});

/** Returns a cell as the document has it. */
function shown([settles, hasRun]: Cell): string {
  const text = settles.replace(/^\w+Error/, "`$&`").replace(/"[\w-]+"$/, "`$&`");
  return `${text}, ${hasRun ? "has run" : "has not run"}`;
}

/** The table of the document, from the cases. */
function table(): string[][] {
  const rows = CASES.map((one) => {
    const { when, then, on = LINKS, session, plain = session, batch, stream } = one;
    const others = [batch && `in a batch: ${shown(batch)}`, stream && `a stream: ${shown(stream)}`];
    const cellOf = (cell: Cell): string => [shown(cell), ...others.filter(Boolean)].join("; ");
    const notify = expectedCell(one, "session", "notify");
    return [
      when,
      then,
      on.includes("session") ? cellOf(session) : "",
      on.length > 1 || on[0] === "WebSocket" ? cellOf(plain) : "",
      notify === null ? "" : notify[0],
    ];
  });
  const heads = ["the call", "what happens", "in a session", "without a session", "`notify` returns"];
  return [heads, ...rows];
}

it("is the table of docs/RELIABILITY.md", () => {
  const text = readFileSync(new URL("../../docs/RELIABILITY.md", import.meta.url), "utf8");
  const [, printed = ""] = /<!-- outcomes: begin -->([^]*)<!-- outcomes: end -->/.exec(text) ?? [];
  const rows = printed.trim().split("\n");
  const cells = rows.map((row) => Array.from(row.matchAll(/\|([^|]+)(?=\|)/g), ([, cell]) => cell!.trim()));
  expect(cells.filter(([first]) => !/^-+$/.test(first!))).toEqual(table());
});
