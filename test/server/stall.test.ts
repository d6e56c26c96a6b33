import { describe, expect, it } from "vitest";
import { connect, serve, TimeoutError } from "../../src/node.js";
import { rejection } from "../support/turns.js";

/** Stops the whole process, as a long computation or a suspended laptop does. */
function block(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

const TIMEOUT_MS = 150;

describe("a process that stalls beyond the timeout of a call", () => {
  it("still takes the answer that waits in the socket's buffer", async () => {
    await using server = await serve({
      port: 0,
      // Once the answer is on its way, and before anybody can read it.
      methods: { m: () => (process.nextTick(block, 2 * TIMEOUT_MS), "in time") },
    });
    await using peer = await connect(server.url);
    expect(await peer.request("m", [], { timeoutMs: TIMEOUT_MS })).toBe("in time");
  });

  it("rejects the call whose answer is not there", async () => {
    await using server = await serve({
      port: 0,
      methods: { m: () => (process.nextTick(block, 2 * TIMEOUT_MS), new Promise(() => {})) },
    });
    await using peer = await connect(server.url);
    expect(await rejection(peer.request("m", [], { timeoutMs: TIMEOUT_MS }))).toBeInstanceOf(TimeoutError);
  });
});
