/**
 * The model, exhaustively: every state that a bounded number of messages and losses can lead to, each step of which goes
 * through the oracle. States are told apart by all that the ends, their sockets and the oracle know, so none is passed by.
 */
import type { Modules } from "./rig.js";
import { World } from "./world.js";

/** How much may happen on the way to a state. */
export interface Bounds {
  /** Messages that each end sends. */
  readonly messages: number;
  /** Sockets that an end loses or leaves. */
  readonly losses: number;
  /** Whether the life of a session may pass, once. */
  readonly expires: boolean;
}

/** What was found. */
export interface Survey {
  readonly states: number;
  readonly steps: number;
  /** The most steps that it takes to come to a state. */
  readonly depth: number;
}

type Act = (world: World) => void;

/** One way to a state, and what is left of the bounds there. */
interface Path {
  readonly acts: readonly [name: string, act: Act][];
  readonly sent: { readonly client: number; readonly server: number };
  readonly losses: number;
  readonly hasExpired: boolean;
}

/** Visits every state once. Throws what the oracle finds, on the way there or when all is mended from there. */
export async function survey(modules: Modules, bounds: Bounds, advance: (ms: number) => void): Promise<Survey> {
  const seen = new Set<string>();
  let paths: Path[] = [{ acts: [], sent: { client: 0, server: 0 }, losses: 0, hasExpired: false }];
  let [steps, depth] = [0, 0];
  for (; paths.length > 0; depth++) {
    const further: Path[] = [];
    for (const path of paths) {
      steps++;
      const world = new World(modules, 0, advance);
      try {
        for (const [, act] of path.acts) await world.perform(act);
        const { sent, losses, hasExpired } = path;
        const key = fingerprint([world.state, sent, losses, hasExpired]);
        if (!seen.has(key)) {
          seen.add(key);
          further.push(...next(path, world, bounds));
          await world.finish(seen.size);
        }
      } catch (error) {
        const names = path.acts.map(([name]) => name).join(", ");
        throw new Error(`${String(error)} after ${names || "nothing"}`, { cause: error });
      } finally {
        world.discard();
      }
    }
    paths = further;
  }
  return { states: seen.size, steps, depth: depth - 1 };
}

/** What can happen next. */
function next(path: Path, world: World, { messages, losses, expires }: Bounds): Path[] {
  const paths: Path[] = [];
  const add = (name: string, act: Act, change: Partial<Path> = {}): void => {
    paths.push({ ...path, ...change, acts: [...path.acts, [name, act]] });
  };
  for (const side of ["client", "server"] as const) {
    const count = path.sent[side];
    const sent = { ...path.sent, [side]: count + 1 };
    if (count < messages) add(`${side} sends`, (there) => there.send(side, 1, 1), { sent });
  }
  for (const [to, which] of world.arrivals) add(`to ${to} ${which}`, (there) => there.deliver(to, which, 1));
  if (path.losses < losses) {
    const lost = { losses: path.losses + 1 };
    for (const [side, which] of world.cuttable) add(`cut ${side} ${which}`, (there) => there.cut(side, which), lost);
    if (world.hasSocket) add("leave", (there) => there.abandon(), lost);
  }
  if (!world.hasSocket) add("reconnect", (there) => there.reconnect());
  if (expires && !path.hasExpired) add("expire", (there) => there.pass(60_000), { hasExpired: true });
  return paths;
}

/** Times, which count from now; what is past, or was never set, is all the same. */
const TIMES = new Set(["deadline", "suspendedAt", "clientSuspendedAt"]);
/** What nothing that follows depends on: what was counted or kept for the test's own eyes. */
const HISTORY = new Set(["heard", "sent", "onSend", "onArrive", "closedWith"]);

/** A text that two worlds share when they are alike in everything they know. */
export function fingerprint(root: unknown): string {
  const names = new Map<object, number>();
  const show = (value: unknown, key: string): unknown => {
    if (typeof value === "number" && TIMES.has(key)) return Math.max(0, Math.round(value - performance.now()));
    if (typeof value === "function") return "function";
    if (typeof value !== "object" || value === null) return value === undefined ? "undefined" : value;
    const known = names.get(value);
    if (known !== undefined) return `#${known}`;
    names.set(value, names.size);
    if (Array.isArray(value)) return value.map((item) => show(item, key));
    if (value instanceof Map || value instanceof Set) return [...value].map((item: unknown) => show(item, key));
    const members = Object.entries(value).filter(([name]) => !isHistory(name, value));
    return Object.fromEntries(members.map(([name, member]) => [name, show(member, name)]));
  };
  return JSON.stringify(show(root, ""));
}

/** A flow's `sent` is what the oracle waits for, a socket's is history. */
function isHistory(name: string, owner: object): boolean {
  return HISTORY.has(name) && !(name === "sent" && !("underWay" in owner));
}
