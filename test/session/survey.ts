/**
 * The oracle, exhaustively: every state that a bounded number of messages and losses can lead to. States are emitted apart by what
 * both ends show of theirs, by what is under way on the lines, and by what the oracle knows.
 */
import { expect, it } from "vitest";
import { World, type End, type Fault, type Side } from "./oracle.js";

/** How much may happen on the way to a state. */
export interface Bounds {
  /** Messages that each end sends. */
  readonly messages: number;
  /** Lines that an end loses. */
  readonly losses: number;
  /** Whether the time of suspended sessions may pass, once. */
  readonly expires: boolean;
  /** Whether the client's application may close, once, while messages flow or while it waits for `resumed`. */
  readonly closes: boolean;
  /** How many states are visited, in the order of their depth. Default: all. */
  readonly mostStates?: number | undefined;
}

/** What was found. */
export interface Survey {
  readonly states: number;
  readonly steps: number;
  /** The most steps that it takes to come to a state. */
  readonly depth: number;
}

/** One thing that can happen. */
type Step = readonly [kind: "send" | "deliver" | "cut" | "reconnect" | "expire" | "close", side: Side, which: number];

/** One way to a state, and what has happened on it of what is bounded. */
interface Path {
  readonly steps: readonly Step[];
  readonly sent: Readonly<Record<Side, number>>;
  readonly losses: number;
  readonly hasExpired: boolean;
  readonly hasClosed: boolean;
}

const LONG_MS = 36_000_000;
const SIDES: readonly Side[] = ["client", "server"];

function perform(world: World, [kind, side, which]: Step): void {
  world.perform(() => {
    if (kind === "send") world.send(side);
    else if (kind === "deliver") world.deliver(side, which);
    else if (kind === "cut") world.cut(side);
    else if (kind === "reconnect") world.reconnect();
    else if (kind === "close") world.close(side);
    else world.expire();
  });
}

/** Visits every state once. Throws what the oracle finds, on the way there or when all is mended from there. */
export function survey(bounds: Bounds, fault?: Fault): Survey {
  const seen = new Set<string>();
  let paths: Path[] = [{ steps: [], sent: { client: 0, server: 0 }, losses: 0, hasExpired: false, hasClosed: false }];
  let [steps, depth] = [0, 0];
  for (; paths.length > 0; depth++) {
    const further: Path[] = [];
    for (const path of paths) {
      steps++;
      try {
        const world = new World(0, fault);
        for (const step of path.steps) perform(world, step);
        const key = keyOf(world, path);
        if (seen.has(key)) continue;
        if (seen.size === bounds.mostStates) return { states: seen.size, steps, depth };
        seen.add(key);
        for (const next of nextOf(path, world, bounds)) further.push(next);
        world.finish(seen.size % 2 === 0 ? "client" : "server");
      } catch (error) {
        throw new Error(`${String(error)} after ${path.steps.map((step) => step.join(" ")).join(", ") || "nothing"}`, {
          cause: error,
        });
      }
    }
    paths = further;
  }
  return { states: seen.size, steps, depth: depth - 1 };
}

/** Returns what can happen next. */
function nextOf(path: Path, world: World, { messages, losses, expires, closes }: Bounds): Path[] {
  const paths: Path[] = [];
  const add = (step: Step, change: Partial<Path> = {}): void => {
    paths.push({ ...path, ...change, steps: [...path.steps, step] });
  };
  for (const side of SIDES) {
    const count = path.sent[side];
    if (count < messages && !path.hasClosed) add(["send", side, 0], { sent: { ...path.sent, [side]: count + 1 } });
    if (path.losses < losses && world.end(side)?.line !== undefined) add(["cut", side, 0], { losses: path.losses + 1 });
  }
  for (const [which, line] of world.lines.entries()) {
    if (line === world.client.line && line.client.underWay.length > 0) add(["deliver", "client", which]);
    if (line.server.underWay.length > 0) add(["deliver", "server", which]);
  }
  // The next connection begins like the first one, and `finish` opens it.
  if (world.client.line === undefined && !path.hasClosed) add(["reconnect", "client", 0]);
  if (expires && !path.hasExpired) add(["expire", "client", 0], { hasExpired: true });
  const { kind } = world.client.endpoint.state;
  if (closes && !path.hasClosed && (kind === "live" || kind === "resuming"))
    add(["close", "client", 0], { hasClosed: true });
  return paths;
}

/** Returns a text that two worlds share if they are alike in everything that what follows can depend on. */
function keyOf(world: World, { sent, losses, hasExpired, hasClosed }: Path): string {
  const { client, servers, lines } = world;
  const number = (end: End | undefined): number =>
    end === undefined ? -1 : end === client ? 0 : servers.indexOf(end as never) + 1;
  const endKey = (end: End): unknown => {
    const { state, queuedLength } = end.endpoint;
    const { session } = state;
    return [
      state.kind,
      session,
      session?.last,
      session?.owes,
      queuedLength,
      end.line === undefined ? -1 : lines.indexOf(end.line),
      number(end.pair.client),
      number(end.pair.server),
      end.pair.reason !== undefined,
      Object.values(end.pair.flows).map(({ sent: messages, got }) => [
        got,
        messages.map(({ label, handle }) => label + handle.sent),
      ]),
    ];
  };
  // Leaves out the lines of sockets that no end reads any more.
  const live = lines.filter(
    (line) => line === client.line || line.server.underWay.length > 0 || line.end?.line === line,
  );
  return JSON.stringify([
    sent,
    losses,
    hasExpired,
    hasClosed,
    endKey(client),
    client.hello !== undefined,
    servers
      .filter(({ hasEnded }) => !hasEnded)
      .map((end) => [endKey(end), end.tokens.confirmed, end.tokens.next, end.tokens.attempt]),
    live.map((line) => [
      line.returns,
      line.isRefused,
      line.isAnswered,
      line.hasSpoken,
      line.client.open,
      line.server.open,
      line === client.line ? line.client.underWay : 0,
      line.server.underWay,
      number(line.end),
      number(line.closed?.server),
    ]),
  ]);
}

/** Tests that so many states, or all, keep the rules. */
export function describeSurvey(mostStates?: number): void {
  const [messages, losses, expires, closes] = JSON.parse(
    process.env["RECIPROC_SESSION_BOUNDS"] ?? "[1,2,true,true]",
  ) as [number, number, boolean, boolean];
  // For bounds that are given: they may be wide.
  it(
    "keeps the rules of a session in every state that a message of each end, lost sockets, an expiry and a close can lead to",
    { timeout: LONG_MS },
    () => {
      const found = survey({ messages, losses, expires, closes, mostStates });
      // Not fewer: a survey that stops early proves nothing.
      if (mostStates !== undefined) expect(found.states).toBe(mostStates);
      else expect(found.states).toBeGreaterThan(messages + losses < 3 ? 1_000 : 50_000);
      expect(found.depth).toBeGreaterThanOrEqual(mostStates !== undefined || messages + losses < 3 ? 9 : 20);
    },
  );
}
