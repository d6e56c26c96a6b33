/** Three nodes over an engine with random faults, and their clients, in virtual time. The oracle of the long runs judges what happened. */
import { afterEach, expect, it, vi } from "vitest";
import { connect } from "../../src/index.js";
import { EngineError, RpcError, type AnyPeer, type TopicRules } from "../../src/node.js";
import { Random } from "../faults/random.js";
import {
  covers,
  Oracle,
  type Call,
  type Figures,
  type Publication,
  type Run,
  type Stay,
} from "../long/fleet/oracle.js";
import { LOGGED, PLAIN, TIMEOUT_MS, type Welcome } from "../long/fleet/orders.js";
import { FaultyEngine, type FaultyLink } from "./faulty.js";
import { expectSoon, makeNode, settled, useFleet, type Node } from "./nodes.js";

useFleet();
afterEach(() => {
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

const ROUTES = ["n1", "n2", "n3"];
const SESSION_MS = 3_000;
/** How long a handler works at most, so that a drain finds running ones. */
const WORK_MS = 20;
const TICK_MS = 40;
/** A suspended peer is a member until its session expires. */
const MEMBERS_MS = 2 * SESSION_MS;
const RULES: TopicRules = { log: { length: 5_000, ttlMs: 600_000 }, members: true };

const now = (): number => performance.now();
const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A server, its connection to the engine, and what the oracle knows of it. */
interface FleetNode {
  readonly node: Node;
  readonly link: FaultyLink;
  readonly run: Run;
}

/** A client that joins at each new session, and records what arrives. */
class Client {
  readonly number: number;
  readonly #world: World;
  peer!: AnyPeer;
  /** The present session. */
  stay!: Stay;
  /** The position up to which the client has everything. */
  since: string | undefined;
  lost = 0;
  resumed = 0;

  constructor(number: number, world: World) {
    this.number = number;
    this.#world = world;
  }

  async connect(): Promise<void> {
    const { oracle } = this.#world;
    this.peer = (await connect<any, any>("ws://balancer/", {
      onOpen: (server: any) => this.#join(server, this.#begin()),
      methods: {
        told: (told) => void this.stay.told.push(told),
        missed: () => void this.stay.events.push({ kind: "missed" }),
        said: ({ n, at }) => {
          this.stay.events.push({ kind: "said", n, at, time: now() });
          if (this.stay.welcome !== undefined) this.since = at;
        },
        run: ({ n }) => this.#world.ran(n),
      },
    })) as AnyPeer;
    this.peer.on("lost", () => this.lost++);
    this.peer.on("suspend", () => (this.stay.endedAt = now()));
    this.peer.on("resume", () => {
      this.resumed++;
      this.stay.endedAt = Infinity;
    });
    this.peer.on("missed", ({ count }) => (this.stay.dropped += count));
    this.peer.on("close", ({ code }) => code === 1000 || oracle.breach("crash", `client ${this.number}: ${code}`));
  }

  #begin(): Stay {
    const { number: client, since } = this;
    const session = { client, since, told: [], events: [], welcome: undefined };
    this.stay = { ...session, joinedAt: Infinity, endedAt: Infinity, dropped: 0 };
    this.#world.oracle.stays.push(this.stay);
    return this.stay;
  }

  /** Joins. Tries again while the broker is away. */
  async #join(server: AnyPeer, stay: Stay): Promise<void> {
    while (this.stay === stay) {
      try {
        const welcome = (await server.request("join", { since: stay.since, as: this.number })) as Welcome;
        // What was sent in this millisecond may have been sent before.
        Object.assign(stay, { welcome, joinedAt: now() + 1 });
        const last = stay.events.flatMap((event) => (event.kind === "said" ? [event.at] : [])).at(-1);
        stay.events.push({ kind: "joined" });
        this.since = last ?? welcome.at;
        return;
      } catch (error) {
        if (!(error instanceof RpcError)) return;
        await after(100);
      }
    }
  }

  get isMember(): boolean {
    return this.peer.state === "open" && this.stay.welcome !== undefined && this.stay.endedAt === Infinity;
  }
}

class World {
  readonly oracle = new Oracle();
  readonly engine = new FaultyEngine();
  readonly random: Random;
  /** By the name in the URLs of its clients. */
  readonly nodes = new Map<string, FleetNode>();
  readonly clients: Client[];
  readonly sockets = new Map<WebSocket, Node>();
  /** Whether the balancer ignores the node in URLs. */
  isBlind = false;
  /** How many connections went to the node that their URL names. */
  routed = 0;
  #isOver = false;
  #next = 0;
  #numbers = 0;
  readonly #pending: Promise<void>[] = [];

  constructor(seed: number, clients: number) {
    this.random = new Random(seed);
    vi.spyOn(Math, "random").mockImplementation(() => this.random.next());
    const open = (url: string, protocols: string[]): WebSocket => this.#open(url, protocols);
    vi.stubGlobal("WebSocket", function (url: string, protocols: string[]): WebSocket {
      return open(url, protocols);
    });
    for (const route of ROUTES) this.start(route);
    this.clients = Array.from({ length: clients }, (_, i) => new Client(i, this));
  }

  /** Starts a node. It has the place of the one with its name that has ended. */
  start(route: string): void {
    const run = this.oracle.started(this.oracle.runs.size + 1);
    const node = makeNode({
      engine: this.engine,
      session: { route, ttlMs: SESSION_MS },
      topics: (name: string) => (name === LOGGED ? RULES : undefined),
      methods: {
        join: async ({ since, as }: any, { peer, server }: any): Promise<Welcome> => {
          await server.topic(PLAIN).join(peer);
          return { ...(await server.topic(LOGGED).join(peer, { since, as })), run: run.run, id: peer.id };
        },
        work: async ({ n }: { n: number }) => {
          const result = this.ran(n);
          await after(n % WORK_MS);
          return result;
        },
      },
    });
    const { server } = node;
    server.on("engine", ({ state, error }) => run.states.push({ state, text: String(error ?? ""), time: now() }));
    server.on("gap", (topic) => server.topic(topic).notify("missed", {}, { here: true, whenSlow: "close" }));
    server.on("error", (error) => error instanceof EngineError || this.oracle.breach("crash", String(error)));
    server.topic(LOGGED).watch((event, { id }) => this.oracle.member(run, event, id));
    this.nodes.set(route, { node, run, link: this.engine.links.at(-1)! });
  }

  /** Connects a client to the node that its URL names, or else to the next one. */
  #open(url: string, protocols: string[]): WebSocket {
    const named = this.isBlind ? undefined : this.nodes.get(new URL(url).searchParams.get("node") ?? "");
    if (named !== undefined) this.routed++;
    const { node } = named ?? [...this.nodes.values()][this.#next++ % this.nodes.size]!;
    const socket = new node.WebSocket(url, { protocols, headers: {} }) as unknown as WebSocket;
    this.sockets.set(socket, node);
    socket.addEventListener("close", () => this.sockets.delete(socket));
    return socket;
  }

  /** Counts that a call has run. Returns its result. */
  ran(n: number): number {
    this.oracle.ran.set(n, (this.oracle.ran.get(n) ?? 0) + 1);
    return n;
  }

  /** Notifies, publishes and calls until `end`. */
  async #traffic(): Promise<void> {
    for (; !this.#isOver; await after(TICK_MS)) {
      const { node, run } = this.random.pick([...this.nodes.values()]);
      const n = ++this.#numbers;
      this.oracle.sent.push({ run: run.run, n, time: now() });
      node.server.topic(PLAIN).notify("told", { run: run.run, n });
      this.#pending.push(this.#publish(node, run, n, this.random.chance(0.4) ? `key ${n}` : undefined));
      const { peer, stay } = this.random.pick(this.clients);
      this.#pending.push(this.#call(run, peer, "work"));
      if (stay.welcome !== undefined) this.#pending.push(this.#call(run, node.server.peer(stay.welcome.id), "run"));
    }
  }

  /** Publishes. One with a key and an unknown outcome is published again. */
  async #publish(node: Node, { run }: Run, n: number, key: string | undefined): Promise<void> {
    const publication: Publication = { n, run, key, state: "pending", at: undefined, orderedAt: now(), time: 0 };
    this.oracle.publications.push(publication);
    const options = { timeoutMs: TIMEOUT_MS, ...(key !== undefined && { key }) };
    try {
      publication.at = await node.server.topic(LOGGED).publish("said", { n }, options);
      publication.state = "acked";
    } catch (error) {
      publication.state = this.#outcomeOf(error);
    }
    publication.time = now();
    if (key !== undefined && publication.state === "unknown") {
      const again = this.random.pick([...this.nodes.values()]);
      await this.#publish(again.node, again.run, n, key);
    }
  }

  async #call({ run }: Run, peer: Pick<AnyPeer, "request">, method: string): Promise<void> {
    const n = ++this.#numbers;
    const call: Call = { n, run, tookMs: 0, result: undefined, state: "pending" };
    this.oracle.calls.push(call);
    const startedAt = now();
    try {
      call.result = await peer.request(method, { n }, { timeoutMs: TIMEOUT_MS });
      call.state = "result";
    } catch (error) {
      call.state = this.#outcomeOf(error);
    }
    call.tookMs = now() - startedAt;
  }

  #outcomeOf(error: unknown): "not-sent" | "unknown" {
    const { outcome } = error as { outcome?: "not-sent" | "unknown" };
    if (outcome === undefined) this.oracle.breach("C1", `there is no outcome: ${String(error)}`);
    return outcome ?? "unknown";
  }

  /** Lets traffic flow while `act` runs. Then judges everything. */
  async play(act: () => Promise<void>): Promise<Figures> {
    await settled(Promise.all(this.clients.map((client) => client.connect())));
    const traffic = this.#traffic();
    await settled(act());
    await settled(this.untilMembers());
    this.#isOver = true;
    await settled(traffic);
    await settled(Promise.all(this.#pending));
    const [{ node }] = [...this.nodes.values()] as [FleetNode];
    const last = await settled(node.server.topic(LOGGED).publish("said", { n: 0 }));
    this.oracle.publications.push({
      ...PUBLISHED,
      at: last,
      run: this.oracle.runs.size,
      orderedAt: now(),
      time: now(),
    });
    await expectSoon(() => this.clients.filter(({ since }) => !covers(since, last)).length, 0);
    await settled(after(MEMBERS_MS));
    const ids = new Set(this.clients.map(({ stay }) => stay.welcome!.id));
    for (const { node: one, run } of this.nodes.values()) {
      const listed = (await one.server.topic(LOGGED).members()).map(({ id }) => id);
      if (listed.length !== ids.size || !listed.every((id) => ids.has(id)))
        this.oracle.breach("P1", `node ${run.run} lists ${listed.join(" ")}, and not ${[...ids].join(" ")}`);
    }
    for (const { link, run } of this.nodes.values()) run.losses.push(...link.losses);
    const figures = this.oracle.judge();
    await Promise.all(this.clients.map(({ peer }) => peer.close()));
    return figures;
  }

  async untilMembers(): Promise<void> {
    while (!this.clients.every(({ isMember }) => isMember)) await after(TICK_MS);
  }

  /** Cuts about so many sockets, old and new ones, on all nodes. */
  cut(count: number): void {
    const every = Math.max(1, Math.floor(this.sockets.size / count));
    for (const [i, [socket, node]] of [...this.sockets].entries())
      if (i % every === 0) node.network.of(socket as never).cut();
  }
}

const PUBLISHED = { n: 0, key: undefined, state: "acked" } as const;

/** The faults of the connection of a node to the broker. Each resolves when it is over. */
const FAULTS: Record<string, (link: FaultyLink, random: Random) => Promise<void>> = {
  async cut(link, random) {
    link.down();
    await after(random.below(2_000));
  },
  /** The connection ends while a command is on its way, before or after the broker has done it. */
  async "cut at a command"(link, random) {
    const when = random.pick(["before", "after"] as const);
    link[when] = () => {
      link[when] = () => {};
      link.down();
      throw new EngineError("faulty: lost", "unknown");
    };
    await after(random.below(1_000));
    link[when] = () => {};
  },
  async late(link, random) {
    link.hold();
    await after(random.below(2_000));
  },
  /** What others send arrives in any order, if its frames name their order. */
  async reordered(link, random) {
    link.hold();
    await after(random.below(1_000));
    link.release((count) => random.below(count));
  },
  /** Frames are lost before the connection ends. */
  async lost(link, random) {
    link.loses = () => random.chance(0.5);
    await after(random.below(2_000));
    link.down();
    link.loses = () => false;
  },
};

const KINDS = Object.keys(FAULTS);

/** Injects faults of one node after the other, and cuts the sockets of clients. */
async function disturb(world: World): Promise<void> {
  const { random } = world;
  for (let i = 0; i < 3 * KINDS.length; i++) {
    const { link, run } = random.pick([...world.nodes.values()]);
    const trouble = { from: now(), to: Infinity };
    run.troubles.push(trouble);
    await FAULTS[KINDS[i % KINDS.length]!]!(link, random);
    link.release();
    link.up();
    trouble.to = now();
    await after(random.below(500));
    world.isBlind = random.chance(0.5);
    if (random.chance(0.5)) world.cut(3);
  }
}

it.each([1, 2])("loses, repeats and reorders nothing that is not reported: seed %i", async (seed) => {
  const world = new World(seed, 8);
  const figures = await world.play(() => disturb(world));
  const happened = ["calls with a result", "calls with an unknown outcome", "publications that arrived"];
  for (const name of [...happened, "notifications lost", "joins that were complete", "lost connections reported"])
    expect([name, figures[name]]).toEqual([name, expect.toSatisfy((count: number) => count > 0)]);
});

/** How long all nodes serve between two disturbances of a deployment. */
const BETWEEN_MS = 700;

it("a deployment settles every call with its true outcome, loses no publication, and lists no member twice", async () => {
  const world = new World(4, 30);
  const { clients, nodes } = world;
  const figures = await world.play(async () => {
    for (const [i, route] of ROUTES.entries()) {
      for (const isBlind of [false, true]) {
        await after(BETWEEN_MS);
        // A client that loses its socket between two sessions may be listed twice (RELIABILITY.md, "Several nodes").
        await world.untilMembers();
        world.isBlind = isBlind;
        world.cut(5);
      }
      await after(BETWEEN_MS);
      await world.untilMembers();
      world.isBlind = false;
      const { node, run } = nodes.get(route)!;
      // The balancer may know of a drain, or learn of it when the node has ended: then the node refuses clients with 503.
      if (i !== 1) nodes.delete(route);
      await node.server.drain({ timeoutMs: 10_000, retryMs: 300 });
      run.endedAt = now();
      world.start(route);
    }
  });
  // Every client was on a node that was replaced, and sockets that were only cut found their session again.
  expect(clients.filter(({ lost }) => lost === 0)).toEqual([]);
  expect(clients.filter(({ resumed, lost }) => resumed > lost).length).toBeGreaterThan(0);
  expect(world.routed).toBeGreaterThan(5);
  expect(figures).toMatchObject({ "joins with a gap": clients.length, "gaps reported to members": 0 });
  const { "calls with a result": results = 0 } = figures;
  expect(results).toBeGreaterThan(world.oracle.calls.length * 0.9);
});
