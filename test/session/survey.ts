/** The oracle, exhaustively: every state of the ends, the lines and the oracle that some messages and losses can lead to. */
import { expect, it } from "vitest";
import { Oracle, stateOf, type End, type Side } from "./oracle.js";

const ACTS = {
  send(oracle: Oracle, side: Side, which: number) {
    oracle.sendsAtOnce = which === 1;
    oracle.send(side);
    // What is queued is sent in another step.
    oracle.sendsAtOnce = false;
  },
  deliver: (oracle: Oracle, side: Side, which: number) => void oracle.deliver(side, which),
  cut: (oracle: Oracle, side: Side) => oracle.cut(side),
  reconnect: (oracle: Oracle) => oracle.reconnect(),
  expire: (oracle: Oracle) => oracle.expire(),
  close: (oracle: Oracle, side: Side) => oracle.close(side),
};

type Step = readonly [kind: keyof typeof ACTS, side: Side, which: number];

/** How many messages each end sends, and how many lines are lost. Suspended sessions expire once, and the client may close. */
const [MESSAGES, LOSSES] = [1, 2];
const SIDES: readonly Side[] = ["client", "server"];

/** Returns how often something has happened on the way to a state. */
function count(path: readonly Step[], kind: Step[0], of?: Side): number {
  return path.filter((step) => step[0] === kind && step[1] === (of ?? step[1])).length;
}

/** Visits every state once, or so many, by depth. Throws what the oracle finds on the way, or when all is mended from there. */
function survey(mostStates: number | undefined): { states: number; depth: number } {
  const seen = new Set<string>();
  let depth = 0;
  for (let paths: Step[][] = [[]]; paths.length > 0; depth++) {
    const further: Step[][] = [];
    for (const path of paths) {
      try {
        const oracle = new Oracle();
        for (const [kind, side, which] of path) oracle.perform(() => ACTS[kind](oracle, side, which));
        const key = keyOf(oracle, path);
        if (seen.has(key)) continue;
        if (seen.size === mostStates) return { states: seen.size, depth };
        seen.add(key);
        further.push(...nextOf(path, oracle).map((step) => [...path, step]));
        oracle.finish(SIDES[seen.size % 2 === 0 ? 0 : 1]);
      } catch (cause) {
        throw new Error(`${String(cause)} after ${path.map((step) => step.join(" ")).join(", ")}`, { cause });
      }
    }
    paths = further;
  }
  return { states: seen.size, depth: depth - 1 };
}

function nextOf(path: readonly Step[], oracle: Oracle): Step[] {
  const { client, lines } = oracle;
  const { kind } = client.endpoint.state;
  const hasClosed = count(path, "close") > 0;
  const next: [can: boolean, ...step: Step][] = [];
  for (const side of SIDES) {
    const canSend = count(path, "send", side) < MESSAGES && !hasClosed;
    next.push([canSend, "send", side, 0], [canSend, "send", side, 1]);
    next.push([count(path, "cut") < LOSSES && oracle.end(side)?.line !== undefined, "cut", side, 0]);
  }
  for (const [which, line] of lines.entries()) {
    next.push([line === client.line && line.client.underWay.length > 0, "deliver", "client", which]);
    next.push([line.server.underWay.length > 0, "deliver", "server", which]);
  }
  // The next connection begins like the first one, and `finish` opens it.
  next.push([client.line === undefined && !hasClosed, "reconnect", "client", 0]);
  next.push([count(path, "expire") === 0, "expire", "client", 0]);
  next.push([!hasClosed && (kind === "live" || kind === "resuming"), "close", "client", 0]);
  return next.flatMap(([can, ...step]) => (can ? [step] : []));
}

/** Returns a text that two oracles share if they are alike in everything that what follows can depend on. */
function keyOf(oracle: Oracle, path: readonly Step[]): string {
  const { client, servers, lines } = oracle;
  const ends: readonly (End | undefined)[] = [client, ...servers];
  const endKey = ({ endpoint, line, pair }: End): unknown => [
    ...stateOf(endpoint),
    lines.indexOf(line!),
    ends.indexOf(pair.client),
    ends.indexOf(pair.server),
    pair.reason !== undefined,
    Object.values(pair.flows).map(({ sent, got }) => [got, sent.map(({ label, handle }) => label + handle.sent)]),
  ];
  // Leaves out the lines of sockets that no end reads any more.
  const live = lines.filter(
    (line) => line === client.line || line.server.underWay.length > 0 || line.end?.line === line,
  );
  return JSON.stringify([
    SIDES.map((side) => count(path, "send", side)),
    (["cut", "expire", "close"] as const).map((kind) => count(path, kind)),
    endKey(client),
    client.hello !== undefined,
    servers
      .filter(({ hasEnded }) => !hasEnded)
      .map((end) => [endKey(end), end.confirmedHash, end.nextHash, end.attempt]),
    live.map((line) => [
      [line.returns, line.isRefused, line.isAnswered, line.hasSpoken, line.client.open, line.server.open],
      line === client.line ? line.client.underWay : 0,
      line.server.underWay,
      ends.indexOf(line.end),
      ends.indexOf(line.closed?.server),
    ]),
  ]);
}

/** Tests that so many states, or all, keep the rules. */
export function describeSurvey(mostStates?: number): void {
  it("keeps the rules of a session in every state that messages and losses lead to", { timeout: 3_000_000 }, () => {
    const { states, depth } = survey(mostStates);
    // Not fewer: a survey that stops early proves nothing.
    expect(states).toBeGreaterThanOrEqual(mostStates ?? 50_000);
    expect(depth).toBeGreaterThanOrEqual(mostStates === undefined ? 20 : 9);
  });
}
