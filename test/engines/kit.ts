/** The kit of the tests of engines: what the rules of engines need of vitest, and nodes that are closed after the test. */
import { describe, expect, it, onTestFinished } from "vitest";
import { logFrame, type Engine, type EngineError } from "../../src/topics/engine.js";
import {
  answered,
  describeEngine as describeRules,
  LOG,
  outcomeOf,
  page,
  TestNode as Node,
  TOPIC,
} from "../../src/testing/engine.js";
import type { EngineRig as Rig } from "../../src/testing/engine.js";

export { answered, LOG, logFrame, outcomeOf, page, TOPIC };
export type EngineRig = Rig & Required<Pick<Rig, "leftovers" | "close">>;

/** Runs the rules of engines over the rigs that `make` returns. */
export function describeEngine(name: string, make: () => Promise<EngineRig>): void {
  describeRules(name, async () => ({ ...(await make()), handles }), { describe, it, expect });
}

/** Disposes of something after the test: the last first. */
export function use<T extends AsyncDisposable>(one: T): T {
  onTestFinished(() => one[Symbol.asyncDispose]());
  return one;
}

/** One node of a fleet. */
export class TestNode extends Node {
  /** Opens a node, which is closed after the test. */
  static async open(engine: Engine, name?: string): Promise<TestNode> {
    return use(new TestNode(engine, name)).open();
  }
}

/** Resolves with the error with which a node over an engine does not open. */
export async function refusalOf(engine: Engine): Promise<EngineError> {
  return use(new TestNode(engine))
    .connection.open()
    .then(
      () => expect.fail("it is open"),
      (error: unknown) => error as EngineError,
    );
}

/** Resolves after what is written in this tick. */
export function written(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Returns the sockets and timers that keep this process running. */
function handles(): string[] {
  return process.getActiveResourcesInfo().filter((kind) => /^(Timeout|TCP|TLS)/.test(kind));
}

function countOf(kinds: readonly string[], kind: string): number {
  return kinds.filter((one) => one === kind).length;
}

/**
 * Returns a function that resolves when this process has no more timers and no more sockets than now. A socket of an earlier test may end
 * meanwhile, and does not make up for a timer.
 */
export function watchHandles(): () => Promise<void> {
  const before = handles();
  return async () => {
    // A check by `expect.poll` would set a timer itself.
    for (let now = handles(); now.some((kind) => countOf(now, kind) > countOf(before, kind)); now = handles())
      await written();
  };
}
