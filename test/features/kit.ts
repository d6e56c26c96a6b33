/** The kit of this folder: two peers on every kind of link, sources of streams, and the messages of streams and cancels. */
import { connect, pair, serve, type AnyPeer, type Context, type Dialect } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { connected, expectEmpty, type AnyOptions, type ConnectedPair } from "../support/pair.js";
import { notification, rawPeer, request, result, type RawBehaviour, type RawPeer } from "../support/raw.js";
import { gate, turn, untilAborted, type Gate } from "../support/turns.js";

/** Two peers that must leave no pending state. */
export interface Joined extends ConnectedPair {
  /** Resolves when all sent messages have been handled. */
  settled(): Promise<void>;
}

/** A way to join two peers. If one is a server, it is `a`. */
export type Join = (ofA?: Omit<AnyOptions, "around">, ofB?: AnyOptions & { link?: "plain" }) => Promise<Joined>;

export const inPair: Join = async (ofA = {}, ofB = {}) => joined(...pair(ofA, ofB));

export const overWs: Join = async (ofA = {}, ofB = {}) => {
  const server = await serve({ port: 0, ...ofA });
  const welcome = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
  const b: AnyPeer = await connect(server.url, ofB);
  return joined(await welcome, b, () => server.close());
};

/** A server in memory, and a client of it that has a session. */
export const inSession: Join = async (ofA = {}, ofB = {}) => {
  const { server, connect: connectInMemory } = testServer(ofA);
  const welcome = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
  const b: AnyPeer = await connectInMemory(server.url, ofB);
  return joined(await welcome, b, () => server.close());
};

/** Two peers of plain JSON-RPC. Extensions are used only if a dialect was chosen. */
export const plainPeers =
  (dialect?: Dialect): Join =>
  (ofA, ofB) =>
    inSession({ dialect, ...ofA }, { dialect, link: "plain", ...ofB });

export const everyWay: [string, Join][] = [
  ["in a pair", inPair],
  ["over ws", overWs],
  ["in a session", inSession],
];

const SYNC = "a test waits for this";

function joined(a: AnyPeer, b: AnyPeer, end?: () => Promise<unknown>): Joined {
  const settled = async (): Promise<void> => {
    for (let i = 0; i < 3; i++) {
      await Promise.allSettled([a.request(SYNC), b.request(SYNC)]);
      await turn();
    }
  };
  return { ...connected(a, b, end), settled };
}

export function expectIdle({ a, b }: Pick<Joined, "a" | "b">): void {
  for (const peer of [a, b]) expectEmpty(peer);
}

/** An iterator that counts its calls of `next` and of `return`, and yields `count` numbers from 1 on, without delay. */
export function counted(count = Infinity, valueOf: (i: number) => unknown = (i) => i) {
  const done = { done: true, value: undefined };
  const next = async () => (++source.asked <= count ? { done: false, value: valueOf(source.asked) } : done);
  const source = {
    asked: 0,
    returned: 0,
    [Symbol.asyncIterator]: (): AsyncIterator<unknown> => ({ next, return: async () => (source.returned++, done) }),
  };
  return source;
}

/** Yields the values that the test gives it, when the test gives them. */
export class Fed implements AsyncIterable<unknown> {
  returned = 0;
  asked = 0;
  #given = 0;
  readonly #steps: Gate<IteratorResult<unknown>>[] = [];

  [Symbol.asyncIterator](): AsyncIterator<unknown> {
    return {
      next: () => this.#step(this.asked++).promise,
      return: async () => (this.returned++, { done: true, value: undefined }),
    };
  }

  give(...values: unknown[]): this {
    for (const value of values) this.#step(this.#given++).resolve({ done: false, value });
    return this;
  }

  finish(): this {
    this.#step(this.#given++).resolve({ done: true, value: undefined });
    return this;
  }

  fail(error: unknown): this {
    this.#step(this.#given++).reject(error);
    return this;
  }

  #step(i: number): Gate<IteratorResult<unknown>> {
    const step = (this.#steps[i] ??= gate());
    // A failure that no next() has read yet.
    step.promise.catch(() => {});
    return step;
  }
}

export const next = (id: unknown, token: unknown): object => request(id, "$/enumerator/next", { token });
export const abort = (token: unknown): object => notification("$/enumerator/abort", { token });
export const cancel = (id: unknown): object => notification("$/cancelRequest", { id });
export const cancelMcp = (requestId: unknown): object => notification("notifications/cancelled", { requestId });
export const report = (token: unknown, value: unknown): object => notification("$/progress", { token, value });
export const more = (id: unknown, values: unknown[], finished = false): object => result(id, { values, finished });
export const NO_SUCH_STREAM = [-32001, "No such stream"] as const;
export const GIVEN_UP = [-32001, "The stream was given up"] as const;
export const CANCELLED = [-32800, "Request cancelled"] as const;

/** Returns a peer that serves `source` as `tail`, with the context of each call of it. */
export function tailing(
  source: unknown,
  options: AnyOptions = {},
  behaviour: RawBehaviour = {},
): RawPeer & { contexts: Context[] } {
  const contexts: Context[] = [];
  const tail = (params: unknown, context: Context): unknown => {
    contexts.push(context);
    return typeof source === "function" ? (source as (...args: unknown[]) => unknown)(params, context) : source;
  };
  return { ...rawPeer({ ...options, methods: { tail, ...options.methods } }, behaviour), contexts };
}

/** Feeds messages, and waits after each until it was handled. A function is called in the place of a message. */
export async function feed(raw: RawPeer, ...steps: unknown[]): Promise<void> {
  for (const step of steps) {
    if (typeof step === "function") (step as () => void)();
    else raw.feed(step);
    await turn();
  }
}

export async function answersTo(raw: RawPeer, ...steps: unknown[]): Promise<any[]> {
  const before = raw.sent.length;
  await feed(raw, ...steps);
  return raw.messages().slice(before);
}

export const streamsOf = ({ peer }: RawPeer): number => peer.stats().streams;

/** Returns a peer whose `wait` ends when it is aborted, and whose `stay` ignores the abort and ends as `open` decides. */
export function waiting(options: AnyOptions = {}): RawPeer & { contexts: Context[]; open: Gate<unknown> } {
  const contexts: Context[] = [];
  const open = gate<unknown>();
  const raw = rawPeer({
    ...options,
    methods: {
      wait: (_params, context) => (contexts.push(context), untilAborted(context)),
      stay: (_params, context) => (contexts.push(context), open.promise),
      now: () => "at once",
      ...options.methods,
    },
  });
  return { ...raw, contexts, open };
}
