/** Plays the world over an engine in memory whose connections have faults, in virtual time. */
import { EngineError, type Engine } from "../../src/node.js";
import type { Figures } from "./oracle.js";
import { FaultyEngine, type FaultyLink } from "./faulty.js";
import { settled } from "./nodes.js";
import { after, LEASE_MS, World, type Fault as FaultOf, type Misuse, type Place } from "./world.js";

/** How late a slow broker answers. */
const SLOW_MS = 500;
/** After so long, nothing is repeated of what was said before. */
const REST_MS = 61_000;

/** Runs a fault of the connection of one node. */
const ofOne =
  (fault: (link: FaultyLink, world: World<FaultyLink>) => Promise<void>): FaultOf<FaultyLink> =>
  (world, one) =>
    world.during(async () => {
      await fault(one.link, world);
      one.link.release();
      one.link.up();
    }, one);

/** The faults of a node, of its connection, and of the broker. Each resolves when it is over. */
export const FAULTS = {
  cut: ofOne(async (link, { random }) => {
    link.down();
    await after(random.below(2_000));
  }),
  /** The connection ends while a command is on its way, before or after the broker has done it. */
  "cut at a command": ofOne(async (link, { random }) => {
    const when = random.pick(["before", "after"] as const);
    link[when] = () => {
      link[when] = () => {};
      link.down();
      throw new EngineError("faulty: lost", "unknown");
    };
    await after(random.below(1_000));
    link[when] = () => {};
  }),
  late: ofOne(async (link, { random }) => {
    link.hold();
    await after(random.below(2_000));
  }),
  /** What others send arrives in any order, if its frames name their order. */
  reordered: ofOne(async (link, { random }) => {
    link.hold();
    await after(random.below(1_000));
    link.release((count) => random.below(count));
  }),
  /** Frames are lost before the connection ends. */
  lost: ofOne(async (link, { random }) => {
    link.loses = () => random.chance(0.5);
    await after(random.below(2_000));
    link.down();
    link.loses = () => false;
  }),
  /** Nothing is answered, until the node connects again, because its own beats do not come back (SCALING.md, "When something fails"). */
  swallowed: ofOne(async (link, { oracle }) => {
    const { length } = link.losses;
    const isLost = (): boolean => link.losses.length > length;
    const untilLost = async (): Promise<void> => {
      while (!isLost()) await after(10);
      throw new EngineError("faulty: lost", "unknown");
    };
    [link.before, link.loses] = [() => (isLost() ? undefined : untilLost()), () => !isLost()];
    await after(2 * LEASE_MS);
    if (!isLost()) oracle.breach("N4", `node ${link.node} keeps a connection without an answer`);
    link.down();
    [link.before, link.loses] = [() => {}, () => false];
  }),
  /** The other nodes do not hear this one, although its connection works. Then they hear it again. */
  unheard: ofOne(async ({ engine, node }) => {
    engine.unheard.add(node);
    await after(2 * LEASE_MS);
    engine.unheard.delete(node);
  }),
  /** The broker answers late what it has done at once. No connection ends, and no member leaves. */
  slow: async (_world, { link }) => {
    link.after = (command) => (command === "send" ? after(SLOW_MS) : undefined);
    await after(3 * LEASE_MS);
    link.after = () => {};
  },
  killed: (world, one) => world.kill(one),
  emptied: (world, { link }) => world.during(() => link.engine.restart(), "logs"),
} satisfies Record<string, FaultOf<FaultyLink>>;

export type Fault = keyof typeof FAULTS;

export interface Plan {
  readonly seed: number;
  readonly clients: number;
  /** The faults, each three times: two nodes have faults at a time, and the broker is emptied meanwhile. */
  readonly faults?: readonly Fault[] | undefined;
  /** What happens when nothing else happens any more. */
  readonly atRest?: Fault | undefined;
  /** How long there is traffic without a fault, in milliseconds. */
  readonly ms?: number;
  /** Returns the engine of a node. Default: the one with faults. */
  readonly bend?: ((engine: Engine) => Engine) | undefined;
  readonly misuse?: Misuse | undefined;
}

/** More than the waits of a world, in steps of `settled`. */
const MOST_STEPS = 4_000;

/** Plays three nodes. Rejects with a `Breach` if a rule is broken. `act`: what happens besides the faults. */
export async function play(
  { seed, clients, faults = [], atRest, ms = 0, bend = (engine) => engine, misuse }: Plan,
  act: (world: World<FaultyLink>) => Promise<void> = async () => {},
): Promise<{ figures: Figures; world: World<FaultyLink> }> {
  const engine = new FaultyEngine({ leaseMs: LEASE_MS });
  const start: Place<FaultyLink>["start"] = async ({ serve }) => ({
    node: serve(bend(engine)),
    link: engine.links.at(-1)!,
  });
  const world = new World(seed, clients, { start, noticeMs: 0, patienceMs: 50_000, hasLogs: true }, misuse);
  const disturb = async (): Promise<void> => {
    const all = [...faults, ...faults, ...faults];
    const ofNodes = all.filter((name) => name !== "emptied");
    const halves = [0, 1].map((half) => ofNodes.filter((_, i) => i % 2 === half));
    const sequences = [...halves, all.filter((name) => name === "emptied")];
    await world.disturb(...sequences.map((names) => names.map((name) => FAULTS[name])));
    await after(ms);
    await act(world);
  };
  const rest = async (): Promise<void> => {
    if (atRest === undefined) return;
    await after(REST_MS);
    await FAULTS[atRest](world, world.any);
  };
  const figures = await settled(world.play(3, disturb, rest), MOST_STEPS).finally(() => world.restore());
  await settled(world.close());
  return { figures, world };
}
