/** Several servers with one engine, and their clients, in memory. */
import { isDeepStrictEqual } from "node:util";
import { afterEach, beforeEach, expect, vi } from "vitest";
import { memory, type AnyPeer, type Engine } from "../../src/node.js";
import { testServer, type TestServer } from "../../src/testing/index.js";
import { pass, useVirtualClock } from "../support/time.js";
import { rejection } from "../support/turns.js";
import { FaultyEngine } from "./faulty.js";

export interface Node extends TestServer<any, any, any> {
  /** Connects a client. Returns the server's peer, the client, and what it got that no method serves. */
  client(name?: string, options?: object): Promise<Client>;
}

export interface Client {
  readonly peer: AnyPeer;
  readonly client: AnyPeer;
  /** Each notification that came: its method and its params. */
  readonly got: [method: string, params: any][];
  /** Resolves when so many notifications have come. */
  until(count: number): Promise<[method: string, params: any][]>;
}

/** The nodes of the running test, if the file has called `useFleet`. */
let made: Node[] | undefined;

/** Puts the virtual clock in place for every test of the file. Closes the nodes of each test, and asserts that they leave no timer. */
export function useFleet(): void {
  useVirtualClock();
  beforeEach(() => void (made = []));
  afterEach(async () => {
    await settled(closeAll(made!));
    made = undefined;
  });
}

/** How long `when` waits in virtual time, in steps. */
const STEP_MS = 100;
const MOST_STEPS = 600;
/** Steps in which no time passes: enough for all that needs none. */
const TIMELESS_STEPS = 20;

/** Resolves when `isTrue` returns true. With `useFleet`, lets virtual time pass for that, a minute at most. */
export async function when(isTrue: () => boolean, what: () => string = String, most = MOST_STEPS): Promise<void> {
  const check = (): void => {
    if (!isTrue()) throw new Error(`not in time: ${what()}`);
  };
  if (made === undefined) return vi.waitFor(check, { interval: 1 });
  for (let step = 0; step < most && !isTrue(); step++) await pass(step < TIMELESS_STEPS ? 0 : STEP_MS);
  check();
}

/** Resolves as `promise` does. With `useFleet`, lets virtual time pass until it settles. `most`: how many steps. */
export async function settled<T>(promise: Promise<T>, most = MOST_STEPS): Promise<T> {
  let isSettled = false;
  const settle = (): void => void (isSettled = true);
  promise.then(settle, settle);
  await when(
    () => isSettled,
    () => "a promise",
    most,
  );
  return promise;
}

/** Resolves with the reason with which `promise` rejects, as `rejection` does. Lets virtual time pass until it settles. */
export const failure = (promise: Promise<unknown>): Promise<any> => settled(rejection(promise));

/** Expects that `read` returns `expected` at some time. */
export async function expectSoon(read: () => unknown, expected: unknown): Promise<void> {
  await when(
    () => isDeepStrictEqual(read(), expected),
    () => JSON.stringify(read()),
  ).catch(() => {});
  expect(read()).toEqual(expected);
}

export function makeNodes(count: number, options: object = {}, engine: Engine = memory()): Node[] {
  return Array.from({ length: count }, () => makeNode({ engine, ...options }));
}

let clients = 0;

/** Makes one node. `methods`: of its clients. */
export function makeNode(options: object, methods: object = {}): Node {
  const server = testServer<any, any, any>({
    authenticate: (request) => ({ name: String(request.headers["x-name"] ?? "") }),
    ...options,
  });
  const client = async (name = "", clientOptions: object = {}): Promise<Client> => {
    const got: [string, any][] = [];
    const number = String(++clients);
    const coming = new Promise<AnyPeer>((resolve) => {
      const onPeer = (peer: unknown, { headers }: { headers: Record<string, unknown> }): void => {
        if (headers["x-number"] !== number) return;
        server.server.off("peer", onPeer as never);
        resolve(peer as AnyPeer);
      };
      server.server.on("peer", onPeer as never);
    });
    const connected = await server.connect(server.server.url, {
      headers: { "x-name": name, "x-number": number },
      methods,
      fallback: (params, { method }) => void got.push([method, params]),
      ...clientOptions,
    });
    const until = async (length: number): Promise<[string, any][]> => {
      await when(
        () => got.length >= length,
        () => `${got.length} of ${length} notifications: ${JSON.stringify(got)}`,
      );
      return got;
    };
    return { peer: await coming, client: connected as AnyPeer, got, until };
  };
  const node = Object.assign(server, { client });
  made?.push(node);
  return node;
}

export async function closeAll(nodes: readonly Node[]): Promise<void> {
  await Promise.all(nodes.map(({ server }) => server.close()));
}

export function nextPeer({ server }: Node): Promise<AnyPeer> {
  return new Promise((resolve) => server.once("peer", (peer) => resolve(peer as AnyPeer)));
}

/** The rule of a log. */
export const RULES = { topics: () => ({ log: { length: 200, ttlMs: 600_000 } }) };

/** Makes two nodes with a logged topic "room", and a member on each. */
export async function room(options: object = {}): Promise<[FaultyEngine, a: Node, b: Node, ann: Client, bob: Client]> {
  const engine = new FaultyEngine();
  const [a, b] = makeNodes(2, { ...RULES, ...options }, engine) as [Node, Node];
  const [ann, bob] = [await a.client("ann"), await b.client("bob")];
  await a.server.topic("room").join(ann.peer);
  await b.server.topic("room").join(bob.peer);
  return [engine, a, b, ann, bob];
}

/** Returns the numbers that a client got, in order. */
export const numbers = ({ got }: Client): number[] => got.filter(([method]) => method === "said").map(([, { n }]) => n);

export const count = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** Publishes numbers, one after the other. Returns the last position. */
export async function say(node: Node, from: number, to = from): Promise<string> {
  let at = "";
  for (let n = from; n <= to; n++) at = await node.server.topic("room").publish("said", { n });
  return at;
}

/** Returns the gaps that a node reports from now on. */
export function gapsOf({ server }: Node): unknown[] {
  const gaps: unknown[] = [];
  server.on("gap", (topic, reason) => gaps.push([topic, reason]));
  return gaps;
}
