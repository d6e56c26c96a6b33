/** A rolling deployment: three nodes are replaced, one after the other, while 60 clients call and publish. */
import { expect, it, vi } from "vitest";
import { connect } from "../../src/index.js";
import { attach, memory, type AnyPeer } from "../../src/node.js";
import { pass } from "../support/time.js";
import { makeNode, settled, useFleet, when, type Node } from "./nodes.js";

useFleet();

const CLIENTS = 60;
const ROOMS = 5;
const CALL_EVERY_MS = 300;
/** How long all nodes serve between two replacements. */
const BETWEEN_MS = 700;
/** Sockets that are cut before each replacement: first so that their sessions are resumed, and then elsewhere. */
const CUTS = 10;
const RULES = { log: { length: 5_000, ttlMs: 600_000 }, members: true as const };

const offsetOf = (at: string): number => Number(at.slice(at.lastIndexOf(".") + 1));

/** Connects each client to the node that its URL names by `node=`, or else to the next one. */
class Balancer {
  readonly nodes = new Map<string, Node>();
  readonly #sockets = new Map<WebSocket, Node>();
  #next = 0;
  /** How many connections went to the node that their URL names. */
  routed = 0;
  /** Whether it ignores the node in URLs. */
  isBlind = false;

  open(url: string, protocols: string[]): WebSocket {
    const route = new URL(url).searchParams.get("node");
    const named = route === null || this.isBlind ? undefined : this.nodes.get(route);
    if (named !== undefined) this.routed++;
    const node = named ?? [...this.nodes.values()][this.#next++ % this.nodes.size]!;
    const socket = new node.WebSocket(url, { protocols, headers: {} }) as unknown as WebSocket;
    this.#sockets.set(socket, node);
    socket.addEventListener("close", () => this.#sockets.delete(socket));
    return socket;
  }

  /** Cuts about so many of the connections, old and new ones, on all nodes. */
  cut(count: number): void {
    const every = Math.floor(this.#sockets.size / count);
    for (const [i, [socket, node]] of [...this.#sockets].entries())
      if (i % every === 0) node.network.of(socket as never).cut();
  }
}

/** The ids of the calls that handlers have begun with, on any node, and that clients have served. */
const ran: number[] = [];
const served: number[] = [];
/** Lets each handler take up to 20 ms, so that a drain finds running ones. */
const pause = (id: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, id % 20));

const METHODS = {
  join: ({ room, since }: any, { peer, server }: any) => server.topic(room).join(peer, { since, as: peer.auth.name }),
  async add({ id, x, y }: any) {
    ran.push(id);
    await pause(id);
    return x + y;
  },
  async say({ id, room }: any, { server }: any) {
    ran.push(id);
    await pause(id);
    return server.topic(room).publish("said", { id }, { key: String(id) });
  },
  /** Calls another client, on whichever node it is. */
  async ask({ id, room, name }: any, { server }: any) {
    ran.push(id);
    const members: any[] = await server.topic(room).members();
    const other = members.find(({ as }) => as === name);
    if (other === undefined) return { outcome: "not-sent" };
    return server
      .peer(other.id)
      .request("confirm", { id }, { timeoutMs: 10_000 })
      .then(
        (result: unknown) => ({ result }),
        ({ outcome }: { outcome: string }) => ({ outcome }),
      );
  },
};

interface CallRecord {
  readonly id: number;
  readonly method: "add" | "say" | "ask";
  settled?: "result" | "error" | "not-sent" | "unknown";
  value?: any;
}

let ids = 0;

/** A client that calls and publishes without a pause, and what it has seen of the log of its room. */
class CallingClient {
  readonly name: string;
  readonly room: string;
  readonly calls: CallRecord[] = [];
  readonly seen: number[] = [];
  readonly faults: string[] = [];
  readonly #pending: Promise<void>[] = [];
  #last = NaN;
  #timer: unknown;
  since: string | undefined;
  lost = 0;
  resumed = 0;
  peer!: AnyPeer;

  constructor(number: number) {
    this.name = `user${number}`;
    this.room = `room:${number % ROOMS}`;
  }

  async open(): Promise<void> {
    this.peer = (await connect<any, any>("ws://balancer/", {
      auth: this.name,
      methods: { said: (entry) => this.#said(entry), confirm: ({ id }) => (served.push(id), this.name) },
      onOpen: async (server: any) => {
        const { since } = this;
        const { at, outcome } = await server.request("join", { room: this.room, since });
        if (outcome !== "gap") return;
        // The first visit is a gap that is none.
        if (since !== undefined) this.faults.push(`a gap after ${since}`);
        this.since = at;
        this.#last = offsetOf(at);
      },
    })) as AnyPeer;
    this.peer.on("lost", () => this.lost++);
    this.peer.on("resume", () => this.resumed++);
    this.#timer = setInterval(() => this.#pending.push(this.#call()), CALL_EVERY_MS);
  }

  #said({ id, at }: { id: number; at: string }): void {
    if (offsetOf(at) !== this.#last + 1) this.faults.push(`${at} after ${this.#last}`);
    this.#last = offsetOf(at);
    this.since = at;
    this.seen.push(id);
  }

  async #call(): Promise<void> {
    const id = ++ids;
    const call: CallRecord = { id, method: (["add", "say", "ask"] as const)[id % 3]! };
    this.calls.push(call);
    const name = `user${(id * ROOMS + Number(this.room.slice(5))) % CLIENTS}`;
    try {
      call.value = await this.peer.request(call.method, { id, x: id, y: 1, room: this.room, name });
      call.settled = "result";
    } catch (error) {
      call.value = error;
      call.settled = (error as { outcome?: "not-sent" | "unknown" }).outcome ?? "error";
    }
  }

  /** Makes no further call. Resolves when all are settled. */
  stop(): Promise<unknown> {
    clearInterval(this.#timer as never);
    return Promise.all(this.#pending);
  }
}

/** Returns true if a call has not settled as what its handler did. */
function isUntrue({ id, method, settled: outcome, value }: CallRecord): boolean {
  const times = ran.filter((one) => one === id).length;
  if (outcome === "not-sent") return times !== 0;
  if (outcome === "unknown") return times > 1;
  if (outcome !== "result" || times !== 1) return true;
  if (method !== "ask") return method === "add" ? value !== id + 1 : typeof value !== "string";
  // The same for the call that the handler made.
  const inner = served.filter((one) => one === id).length;
  return "result" in value ? inner !== 1 : value.outcome === "not-sent" ? inner !== 0 : inner > 1;
}

it("a deployment settles every call with its true outcome, loses no publication, and lists no member twice", async () => {
  const engine = memory();
  const balancer = new Balancer();
  vi.stubGlobal("WebSocket", function (url: string, protocols: string[]): WebSocket {
    return balancer.open(url, protocols);
  });
  const errors: unknown[] = [];
  const start = (route: string): void => {
    const node = makeNode({
      engine,
      session: { route },
      authenticate: (_request: unknown, name: string) => ({ name }),
      principal: ({ name }: { name: string }) => name,
      topics: () => RULES,
      methods: METHODS,
    });
    node.server.on("error", (error) => errors.push(error));
    node.server.on("gap", (...gap) => errors.push(gap));
    balancer.nodes.set(route, node);
  };
  const routes = ["n1", "n2", "n3"];
  for (const route of routes) start(route);
  const clients = Array.from({ length: CLIENTS }, (_, i) => new CallingClient(i));
  await Promise.all(clients.map((client) => client.open()));

  // A client that loses its socket between two sessions may be listed twice (RELIABILITY.md, "Several nodes"). So each cut waits.
  const untilOpen = (): Promise<void> => when(() => clients.every(({ peer }) => peer.state === "open"));
  for (const [i, route] of routes.entries()) {
    for (const isBlind of [false, true]) {
      await pass(BETWEEN_MS);
      await untilOpen();
      balancer.isBlind = isBlind;
      balancer.cut(CUTS);
    }
    await pass(BETWEEN_MS);
    await untilOpen();
    balancer.isBlind = false;
    const node = balancer.nodes.get(route)!;
    // The balancer may know of a drain, or learn of it when the node has ended: then the node refuses clients with 503.
    if (i !== 1) balancer.nodes.delete(route);
    await settled(node.server.drain({ timeoutMs: 10_000, retryMs: 300 }));
    start(route);
  }
  await pass(BETWEEN_MS);
  await untilOpen();
  await settled(Promise.all(clients.map((client) => client.stop())));
  await pass(0);

  // Every client was on a node that was replaced, and sockets that were only cut found their session again.
  expect([errors, clients.filter(({ lost }) => lost === 0)]).toEqual([[], []]);
  expect(clients.filter(({ resumed, lost }) => resumed > lost).length).toBeGreaterThan(0);
  expect(balancer.routed).toBeGreaterThan(CUTS);
  const calls = clients.flatMap((client) => client.calls);
  expect(calls.filter(isUntrue)).toEqual([]);
  expect(calls.length).toBeGreaterThan(1_000);
  expect(calls.filter((call) => call.settled === "result").length).toBeGreaterThan(calls.length * 0.9);

  await using worker = await attach({ engine, topics: () => RULES });
  for (let i = 0; i < ROOMS; i++) {
    const inRoom = clients.filter(({ room }) => room === `room:${i}`);
    const { at, entries } = await worker.topic(`room:${i}`).read({ limit: 1_000 });
    const logged = entries.map((entry) => (entry.params as { id: number }).id);
    const atOf = new Map(entries.map((entry, n) => [logged[n], entry.at]));
    expect(atOf.size).toBe(logged.length);
    for (const { id, method, settled: outcome, value } of inRoom.flatMap((client) => client.calls)) {
      if (method === "say" && outcome === "result") expect(atOf.get(id)).toBe(value);
      if (method === "say" && outcome === "not-sent") expect(atOf.has(id)).toBe(false);
    }
    // The log had room for everything, so each client has all of it from its first visit on.
    for (const { since, faults, seen } of inRoom) {
      expect([since, faults]).toEqual([at, []]);
      expect(seen).toEqual(logged.slice(logged.length - seen.length));
    }
    const members = await worker.topic(`room:${i}`).members();
    expect(members).toHaveLength(inRoom.length);
    expect(new Set(members.map(({ as }) => as))).toEqual(new Set(inRoom.map(({ name }) => name)));
  }
  await Promise.all(clients.map(({ peer }) => peer.close()));
  vi.unstubAllGlobals();
});
