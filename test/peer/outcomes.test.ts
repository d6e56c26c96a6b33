/** What each call settles with, whatever happens to it or to its connection: the table of docs/RELIABILITY.md, run cell by cell. */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ConnectionLostError, ProtocolError, RpcError, TimeoutError, TooLargeError } from "../../src/index.js";
import type { AnyPeer, Message } from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { expectEmpty } from "../support/pair.js";
import { gate, pass, turn, useVirtualClock } from "../support/time.js";

useVirtualClock();

/** How the caller is connected: in a session, by plain JSON-RPC, or as the server's peer of a WebSocket that is not reciproc. */
const LINKS = ["session", "plain", "WebSocket"] as const;
type Link = (typeof LINKS)[number];
const KINDS = ["request", "batch", "stream", "notify"] as const;
type Kind = (typeof KINDS)[number];

const REASON = new Error("changed my mind");
/** Of the client. */
const LIMIT = 10_000;
const LONGEST = 2 ** 20;

/** One caller, the side that it calls, and the network between them. */
class Scene {
  readonly link: Link;
  readonly test;
  caller!: AnyPeer;
  readonly abort = new AbortController();
  ran = 0;
  readonly reply = gate<unknown>();
  /** What the other side sends in place of a response, if it is a WebSocket. */
  broken: object | undefined;
  size = 0;
  #webSocket: InstanceType<ReturnType<typeof testServer>["WebSocket"]> | undefined;

  constructor(link: Link) {
    this.link = link;
    const work = (): unknown => (this.ran++, this.reply.promise);
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
      const outcome = await this.reply.promise.then(
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
    this.reply.resolve({ values: ["done"] });
  }

  closeThere(): void {
    if (this.#webSocket !== undefined) this.#webSocket.close(1000);
    else for (const peer of this.test.server.peers) void peer.close(1000);
  }

  suspend(): void {
    this.test.network.stop();
    this.test.network.cut();
  }

  async expire(): Promise<void> {
    this.suspend();
    await pass(100_000);
  }

  fill(): void {
    while (this.caller.notify("noise", ["x".repeat(100)]));
    this.size = 1_000;
  }

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

/** What happens in a case, before the call or after it. */
interface Case {
  readonly before?: (scene: Scene) => unknown;
  readonly options?: object;
  readonly after?: (scene: Scene) => unknown;
  /** The links on which the case exists. Default: all for which the document has a cell. */
  readonly on?: readonly Link[];
}

const TO_SERVER = ["session", "plain"] as const;
const SECOND = { timeoutMs: 1_000 };
const FIRST = "waits for the first connection";

/** Where a call is: the first column of the document. */
const WHEN: Record<string, Case> = {
  runs: {},
  "is sent and has not arrived": { before: (s) => s.test.network.stop() },
  "waits for a full socket": {
    before: (s) => (s.test.network.stop(), s.caller.notify("noise", ["x".repeat(LIMIT / 3)])),
    on: TO_SERVER,
  },
  "waits for the next socket": { before: (s) => s.suspend() },
  "waits for the next session": { before: (s) => s.expire() },
  [FIRST]: { on: TO_SERVER },
  "is made": {},
};

const answers: Case = { after: (s) => s.answer() };
/** The second column. After that, the network continues, and a client reconnects. */
const THEN: Record<string, Case> = {
  "the other side answers": answers,
  "the network continues": answers,
  "the session is resumed": answers,
  "it begins": answers,
  "it opens": answers,
  "its handler throws an `RpcError`": { after: (s) => s.reply.reject(new RpcError(403, "no")) },
  "the answer breaks JSON-RPC 2.0": {
    after: (s) => ((s.broken = { result: 1, error: { code: 1, message: "both" } }), s.answer()),
    on: ["WebSocket"],
  },
  "its time is over": { options: SECOND, after: () => pass(1_000) },
  "its signal aborts": { after: (s) => s.abort.abort(REASON) },
  "this side closes": { after: (s) => void s.caller.close() },
  "the other side closes": { after: (s) => s.closeThere() },
  "the server drains": { after: (s) => (void s.test.server.drain(), pass(100_000)) },
  "the server drains until the handler ends": {
    after: (s) => (void s.test.server.drain(), s.answer()),
    on: TO_SERVER,
  },
  "the server drains, and the handler ends too late": {
    after: (s) => (void s.test.server.drain(SECOND), pass(1_000)),
    on: TO_SERVER,
  },
  "the socket is lost": { after: (s) => (s.test.network.cut(), s.answer()) },
  "the socket is lost, and the other side answers": {
    after: async (s) => (s.test.network.cut(), await s.start(), s.answer()),
  },
  // The server does not answer a ping within 5 s.
  "a newer socket supersedes it": { after: async (s) => (s.caller.reconnect(), await pass(6_000), s.answer()) },
  "the session expires": { after: () => pass(100_000) },
  "the session expires, or the socket is lost without one": { after: (s) => s.expire() },
  "the server forgets the session, or restarts": { after: (s) => s.test.network.lose() },
  'the server restarts, and the call has `retry: "not-sent"`': {
    options: { retry: "not-sent" },
    after: (s) => (s.test.network.lose(), s.answer()),
  },
  'the server restarts, and the call has `retry: "always"`': {
    options: { retry: "always" },
    after: (s) => (s.test.network.lose(), s.answer()),
  },
  "the queue is full": { before: (s) => s.fill() },
  "it cannot be opened": { after: (s) => void s.test.server.close() },
  "this side has closed": { before: (s) => s.caller.close() },
  "the other side has closed": { before: (s) => s.closeThere() },
  "its signal has aborted": { before: (s) => s.abort.abort(REASON) },
  "it is longer than the other side accepts": { before: (s) => void (s.size = LONGEST), on: TO_SERVER },
};

const text = readFileSync(new URL("../../docs/RELIABILITY.md", import.meta.url), "utf8");
const [, table] = /<!-- outcomes: begin -->\s*([^]*?)\s*<!-- outcomes: end -->/.exec(text)!;
/** The cells of each row, after the empty text before it. An empty cell says that no such case exists. */
const ROWS = Array.from(table!.matchAll(/^\| (?!the call|-).*/gm), ([row]) => row.split(/\s*\|\s*/));

/** Returns what the document says of a call of that kind, or of what `notify` returns. Returns "" if nothing of the case concerns it. */
function expectedOf([, , , session, plain, notify]: string[], link: Link, kind: Kind): string {
  const [cell = "", ...others] = (link === "session" ? session! : plain!).replaceAll("`", "").split("; ");
  const head = { batch: "in a batch: ", stream: "a stream: ", request: "-", notify: "-" }[kind];
  if (kind !== "notify") return others.find((other) => other.startsWith(head))?.replace(head, "") ?? cell;
  if (notify === "" || notify!.includes(",")) return notify!;
  // Without a session, no limit of the other side is known.
  return cell.replace(/.*(?=, )/, cell.startsWith('ConnectionLostError "unknown"') ? "true" : notify!);
}

describe.each(LINKS)("a call over a %s connection that", (link) => {
  const rows = ROWS.filter(
    ([, when, then, session, plain]) =>
      (link === "session" ? session : plain) !== "" &&
      [WHEN[when!]!, THEN[then!]!].every(({ on = LINKS }) => on.includes(link)),
  );
  it.each(rows)("%s%s settles once if %s", async (...row) => {
    const [, when = "", then = ""] = row;
    const [place, event] = [WHEN[when]!, THEN[then]!];
    for (const kind of KINDS) {
      const expected = expectedOf(row, link, kind);
      if (expected === "") continue;
      const scene = new Scene(link);
      const isFirst = when === FIRST;
      if (isFirst) scene.test.network.stop();
      await scene.open(!isFirst);
      await place.before?.(scene);
      await event.before?.(scene);
      if (when === "is made") await scene.test.network.settle();
      const outcome = scene.call(kind, event.options ?? {});
      await scene.test.network.settle();
      await event.after?.(scene);
      await scene.start();
      await scene.test.network.settle();
      expect(`${kind}: ${outcome()}, ${scene.ran > 0 ? "has run" : "has not run"}`).toBe(`${kind}: ${expected}`);
      expect(scene.ran).toBeLessThan(2);
      await scene.end();
    }
  });
});

it("is what all rows of docs/RELIABILITY.md say", () => {
  expect(ROWS).toHaveLength(44);
  expect(new Set(ROWS.map(([, , then]) => then))).toEqual(new Set(Object.keys(THEN)));
});
