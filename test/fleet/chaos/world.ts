/** Plays one seed: three nodes in processes of their own over one Redis, their clients, and the faults between them. */
import { randomUUID } from "node:crypto";
import { Random } from "../../faults/random.js";
import { RedisServer } from "../../support/redis.js";
import { disturb, FAULT_WEIGHTS, type FaultKind } from "./disturbances.js";
import { Member } from "./member.js";
import { Breach, Oracle, type Figures } from "./oracle.js";
import { LEASE_MS, SESSION_MS } from "./orders.js";
import { NodeProcess } from "./process.js";
import { Relay } from "./relay.js";

/** What to play. */
export interface Plan {
  readonly seed: number;
  readonly nodes: number;
  readonly clients: number;
  /** How long there is traffic, and how long there are faults, in milliseconds. */
  readonly ms: number;
  /** The mutant in each node. */
  readonly mutant?: string | undefined;
  /** Only this fault. Default: all, by their weights. */
  readonly only?: FaultKind | undefined;
}

/** The parts that faults meet. */
export interface World {
  readonly random: Random;
  readonly broker: RedisServer;
  readonly nodes: readonly NodeProcess[];
  readonly clients: readonly { readonly member: Member; readonly relay: Relay }[];
}

const TICK_MS = 20;
/** The longest wait for nodes and clients after the last fault. The Redis client waits up to 20 s before it connects again. */
const PATIENCE_MS = 60_000;
/** The share of publications that have a key, and of those that repeat a recent one. */
const KEYED = 0.3;
const REPEATED = 0.4;
const MARGIN_MS = 2_000;

const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Plays a plan. Rejects with a `Breach` if a rule is broken. */
export async function play(plan: Plan): Promise<{ figures: Figures; faults: Figures }> {
  const random = new Random(plan.seed);
  const oracle = new Oracle();
  const broker = await RedisServer.create({
    // A subscriber that reads too slowly is cut soon.
    settings: { "client-output-buffer-limit": "pubsub 256kb 64kb 2" },
  });
  const start = { prefix: `chaos-${randomUUID()}`, mutant: plan.mutant };
  let runs = 0;
  const nodes: NodeProcess[] = [];
  const clients: { member: Member; relay: Relay }[] = [];
  try {
    for (let i = 0; i < plan.nodes; i++)
      nodes.push(await NodeProcess.create(start, broker.port, oracle, () => ++runs));
    await Promise.all(
      Array.from({ length: plan.clients }, async (_, i) => {
        const relay = await Relay.listen(() => {
          const live = nodes.filter((node) => node.port !== undefined && !node.isPaused);
          return live.length === 0 ? undefined : random.pick(live).port;
        });
        const member = new Member(i, oracle);
        clients.push({ member, relay });
        await member.connect(`ws://127.0.0.1:${relay.port}`);
      }),
    );
    const world: World = { random, broker, nodes, clients };
    const faults = await run(plan, world, oracle);
    await quiesce(world, oracle);
    return { figures: oracle.judge(), faults };
  } finally {
    await Promise.all(clients.map(({ member }) => member.close()));
    await Promise.all([...nodes, ...clients.map(({ relay }) => relay)].map((one) => one.close()));
    await broker[Symbol.asyncDispose]();
  }
}

/** Traffic and faults until the time is over. Returns how often there was each fault. */
async function run(plan: Plan, world: World, oracle: Oracle): Promise<Figures> {
  const until = Date.now() + plan.ms;
  const faults: Figures = {};
  const isOver = (): boolean => Date.now() >= until;
  const traffic = (async () => {
    for (let n = 1; !isOver(); n++) {
      send(world, oracle, n);
      await after(TICK_MS);
    }
  })();
  const watch = (async () => {
    while (!isOver()) {
      await Promise.all(world.nodes.map((node) => node.settle()));
      await after(TICK_MS);
    }
  })();
  while (!isOver()) {
    await after(world.random.below(800));
    const kind = plan.only ?? world.random.weighted(FAULT_WEIGHTS);
    faults[kind] = (faults[kind] ?? 0) + 1;
    await disturb(kind, world);
  }
  await Promise.all([traffic, watch]);
  return faults;
}

const keys: string[] = [];

/** Orders one notification, and sometimes a publication and a call. */
function send({ random, nodes, clients }: World, oracle: Oracle, n: number): void {
  const node = random.pick(nodes);
  const { run } = node.run;
  void node.order({ kind: "notify", n }).then((done) => {
    if (done !== undefined) oracle.sent.push({ run, n, time: done.time });
  });
  if (random.chance(0.5)) {
    if (random.chance(KEYED) && !(keys.length > 0 && random.chance(REPEATED))) keys.push(`key ${n}`);
    const key = random.chance(KEYED) ? keys.at(-1) : undefined;
    const publication = { n, key, at: undefined as string | undefined, outcome: undefined as string | undefined };
    oracle.publications.set(n, publication);
    void random.pick(nodes)
      .order({ kind: "publish", n, key })
      .then((done) => {
        publication.at = done?.at;
        publication.outcome = done?.error?.outcome;
      });
  }
  const peer = random.pick(clients).member.stay?.welcome?.id;
  if (peer === undefined || !random.chance(0.5)) return;
  const call = { n, state: "pending" as "pending" | "result" | "not-sent" | "unknown" | "interrupted" };
  oracle.calls.set(n, call);
  void random.pick(nodes)
    .order({ kind: "call", n, peer })
    .then((done) => {
      if (done === undefined) call.state = "interrupted";
      else if (done.error === undefined) call.state = "result";
      else call.state = done.error.outcome === "not-sent" ? "not-sent" : "unknown";
    });
}

/** Repeats a check until it returns true. Throws a `Breach` of `rule` if that takes too long. */
async function until(rule: string, what: () => string, ms: number, check: () => Promise<boolean> | boolean): Promise<void> {
  const end = Date.now() + ms;
  while (!(await check())) {
    if (Date.now() > end) throw new Breach(`${rule}: not within ${ms} ms: ${what()}`);
    await after(TICK_MS);
  }
}

/** Waits until all are connected again, have everything, and list the same members. */
async function quiesce({ nodes, clients }: World, oracle: Oracle): Promise<void> {
  const members = clients.map(({ member }) => member);
  await until("N4", () => "a node has no connection", PATIENCE_MS, async () => {
    const settled = await Promise.all(nodes.map((node) => node.settle()));
    return settled.every((is) => is);
  });
  await until("P1", () => "a client is not back", PATIENCE_MS, () =>
    members.every(({ stay }) => stay?.welcome !== undefined && stay.endedAt === Infinity),
  );
  const last = await nodes[0]!.order({ kind: "publish", n: 0, key: undefined });
  oracle.publications.set(0, { n: 0, key: undefined, at: last?.at, outcome: last?.error?.outcome });
  await until(
    "L1",
    () => `${members.filter((member) => !member.has(last!.at!)).length} clients without ${last?.at}`,
    PATIENCE_MS,
    () => members.every((member) => member.has(last!.at!)),
  );
  await until("C1", () => "calls are pending", PATIENCE_MS, () =>
    [...oracle.calls.values()].every(({ state }) => state !== "pending"),
  );
  let lists: string[] = [];
  await until("P1", () => lists.join("\n"), (LEASE_MS * 4) / 3 + SESSION_MS + MARGIN_MS, async () => {
    const truth = textOf(members.map(({ stay }) => stay!.welcome!.id));
    const dones = await Promise.all(nodes.map((node) => node.order({ kind: "members" })));
    lists = [truth, ...dones.flatMap((done) => [textOf(done?.members), textOf(done?.replica)])];
    return lists.every((list) => list === truth);
  });
}

function textOf(ids: readonly string[] = []): string {
  return `${ids.length}: ${[...ids].sort().join(" ")}`;
}
