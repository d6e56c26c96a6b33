/**
 * When an application learns what weakens a promise of its broker. `serve` of Node has one timer for all deadlines, which outlives
 * the clock of a test, so these tests share one clock and the others stand in `clock.test.ts`.
 */
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { attach, serve } from "../../src/node.js";
import { FaultyEngine } from "./faulty.js";

beforeAll(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] }));
afterAll(() => void vi.useRealTimers());

describe("a setting of the broker that weakens a promise", () => {
  const EVICTS = "the broker may evict logs";

  it("is emitted as `error` to a listener that is added after `await serve()` or `await attach()`", async () => {
    const engine = new FaultyEngine();
    engine.unmet = [EVICTS];
    const errors: unknown[] = [];
    const server = await serve({ port: 0, engine });
    server.on("error", (error) => errors.push(error));
    const worker = await attach({ engine });
    worker.on("error", (error) => errors.push(error));
    expect(errors).toEqual([]);
    await vi.advanceTimersByTimeAsync(1);
    expect(errors).toEqual([new Error(EVICTS), new Error(EVICTS)]);
    await Promise.all([server.close(), worker.close()]);
  });

  it("is emitted by no server that has closed before", async () => {
    const engine = new FaultyEngine();
    engine.unmet = [EVICTS];
    const errors: unknown[] = [];
    const server = await serve({ port: 0, engine });
    server.on("error", (error) => errors.push(error));
    await server.close();
    await vi.advanceTimersByTimeAsync(10);
    expect(errors).toEqual([]);
  });
});
