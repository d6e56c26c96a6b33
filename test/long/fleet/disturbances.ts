/** The faults between nodes, broker and clients. */
import type { Random } from "../../faults/random.js";
import type { ChaosBroker } from "./brokers.js";
import type { Member } from "./member.js";
import { LEASE_MS, SESSION_MS, type BrokerKind } from "./orders.js";
import type { NodeProcess } from "./process.js";

/** The parts of a world that faults meet. */
export interface Disturbed {
  readonly random: Random;
  readonly broker: ChaosBroker;
  readonly nodes: readonly NodeProcess[];
  readonly clients: readonly Member[];
  /** How long faults go on, in milliseconds from now. */
  leftMs(): number;
  /** Records what happens, for the report of a broken rule. */
  note(text: string): void;
}

/** How often each fault is drawn, for each broker. */
const EVERYWHERE = {
  "node killed": 2,
  "node stopped": 2,
  "node cut": 4,
  "node cut at a byte": 4,
  "node cut for long": 2,
  "node muted one way": 2,
  "node swallowed": 2,
  "broker stopped": 1,
  "broker emptied": 1,
  "broker killed": 1,
  "client cut": 6,
  "client cut at a byte": 6,
  "client cut for long": 2,
  "client muted": 3,
};
const WITH_REDIS = {
  ...EVERYWHERE,
  "broker kills clients": 3,
  "broker killed after a snapshot": 1,
  "node reads slowly": 1,
};
export const FAULT_WEIGHTS = {
  redis: WITH_REDIS,
  nats: EVERYWHERE,
  cluster: { ...WITH_REDIS, "slot moved": 3, failover: 2 },
} satisfies Record<BrokerKind, Record<string, number>>;

type KeysOf<T> = T extends T ? keyof T : never;
export type FaultKind = KeysOf<(typeof FAULT_WEIGHTS)[BrokerKind]>;

const MOST_BYTES = 5_000;
const LONGEST_PAUSE_MS = 20_000;
const SHORTEST_PAUSE_MS = 1_000;
/** A node that receives nothing at all notices that after two lost echoes. */
const NOTICED_MS = LEASE_MS + 2_000;
/** How long a node may have no connection. That of a lease, and more. */
const LONGEST_AWAY_MS = 2_500;
/** More than the sockets between broker and node take. */
const FLOOD = { count: 200, bytes: 100_000 };

const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** How long a process is stopped: 1 to 20 s, mostly little, and not longer than there are faults. */
function pauseMs(world: Disturbed): number {
  const ms = SHORTEST_PAUSE_MS + (LONGEST_PAUSE_MS - SHORTEST_PAUSE_MS) * world.random.next() ** 4;
  return Math.max(SHORTEST_PAUSE_MS, Math.min(ms, world.leftMs()));
}

const busy = new WeakSet<object>();

/** Runs a fault of a part, unless the part has another one. Resolves with true if there was something to disturb. */
async function alone(part: object, fault: () => Promise<boolean>): Promise<boolean> {
  if (busy.has(part)) return false;
  busy.add(part);
  try {
    return await fault();
  } finally {
    busy.delete(part);
  }
}

/** Injects one fault. Resolves with true when it is over, and with false if its place has another fault or no connection. */
export function disturb(kind: FaultKind, world: Disturbed): Promise<boolean> {
  const { random, broker, nodes, clients } = world;
  if (kind.startsWith("client ")) {
    const client = random.pick(clients);
    return alone(client, () => disturbClient(kind, client, random));
  }
  if (kind.startsWith("node ")) {
    const node = random.pick(nodes);
    return alone(node, () => noted(world, `${kind} (${node.run.run})`, () => disturbNode(kind, node, world)));
  }
  return alone(broker, () =>
    noted(world, kind, async () => {
      await duringAll(nodes, () => disturbBroker(kind, world), true);
      return true;
    }),
  );
}

async function noted(world: Disturbed, text: string, fault: () => Promise<boolean>): Promise<boolean> {
  world.note(text);
  const isDone = await fault();
  world.note(`${text}: ${isDone ? "over" : "nothing to disturb"}`);
  return isDone;
}

/** Runs a fault that concerns the connections of all nodes. `isUnseen`: see `NodeProcess.during`. */
function duringAll(nodes: readonly NodeProcess[], fault: () => Promise<void>, isUnseen = false): Promise<void> {
  const [first, ...others] = nodes;
  return first === undefined ? fault() : first.during(() => duringAll(others, fault, isUnseen), isUnseen);
}

async function disturbBroker(kind: FaultKind, world: Disturbed): Promise<void> {
  const { broker, random } = world;
  if (kind === "broker stopped") await broker.pause(pauseMs(world));
  else if (kind === "broker killed") await broker.restart(random.below(500), false);
  else if (kind === "broker killed after a snapshot") await broker.restart(300 + random.below(500), true);
  else if (kind === "broker emptied") await broker.empty();
  else if (kind === "broker kills clients") await broker.killClients();
  else if (kind === "slot moved") await broker.migrate();
  else await broker.failOver();
  await broker.untilOk();
}

async function disturbNode(kind: FaultKind, node: NodeProcess, world: Disturbed): Promise<boolean> {
  const { random, nodes } = world;
  if (kind === "node killed") {
    await node.kill();
    await after(random.below(1_000));
    await node.restart();
    return true;
  }
  if (kind === "node stopped") {
    await node.stop(pauseMs(world));
    return true;
  }
  const lines = node.relay.whole;
  if (lines.length === 0) return false;
  const line = random.pick(lines);
  const { isTroubled } = node;
  await node.during(async () => {
    if (kind === "node cut") line.cut();
    else if (kind === "node cut at a byte") line.cutAfter(1 + random.below(MOST_BYTES));
    else if (kind === "node cut for long") {
      node.relay.isRefusing = true;
      for (const one of lines) one.cut();
      await after(random.below(LONGEST_AWAY_MS));
      node.relay.isRefusing = false;
    } else if (kind === "node reads slowly") {
      for (const one of lines) one.stall(SHORTEST_PAUSE_MS);
      const other = nodes.find((one) => one !== node && one.port !== undefined) ?? node;
      // What others send at that time waits behind it.
      await duringAll(nodes, async () => void (await other.order({ kind: "flood", ...FLOOD })));
    } else if (kind === "node muted one way") {
      // Not each direction is noticed, because nothing may have to pass. Then the connection ends after a time.
      line.mute(random.pick(["client", "server"] as const));
      await after(random.below(NOTICED_MS));
      line.cut();
    } else {
      for (const one of lines) one.mute("client", "server");
      const isWhole = (): boolean => lines.every(({ isOpen }) => isOpen);
      const { run } = node;
      for (const until = Date.now() + NOTICED_MS; isWhole() && Date.now() < until;) await after(20);
      // A node that was connecting already had nothing to notice.
      if (isWhole() && node.run === run && !isTroubled) run.unnoticed.push(Date.now());
      for (const one of lines) one.cut();
    }
  });
  return true;
}

async function disturbClient(kind: FaultKind, member: Member, random: Random): Promise<boolean> {
  const { relay } = member;
  const line = relay.whole.at(-1);
  if (line === undefined) return false;
  if (kind === "client cut") line.cut();
  else if (kind === "client cut at a byte") line.cutAfter(1 + random.below(MOST_BYTES));
  else if (kind === "client cut for long") {
    relay.isRefusing = true;
    line.cut();
    await after(random.below(SESSION_MS * 1.5));
    relay.isRefusing = false;
  } else {
    member.disturbed();
    line.mute(...random.pick([["client"], ["server"], ["client", "server"]] as const));
    await after(random.below(2_000));
    line.cut();
  }
  return true;
}
