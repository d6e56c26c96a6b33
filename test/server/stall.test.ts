import { describe, expect, it } from "vitest";
import { connect, serve, TimeoutError } from "../../src/node.js";
import { busyFor } from "../support/busy.js";
import { rejection } from "../support/turns.js";

const TIMEOUT_MS = 150;

describe("a process that stalls beyond the timeout of a call", () => {
  it("still reads the response from the socket's buffer", async () => {
    await using server = await serve({
      port: 0,
      // The response is in flight, and not read yet.
      methods: { m: () => (process.nextTick(busyFor, 2 * TIMEOUT_MS), "in time") },
    });
    await using peer = await connect(server.url);
    expect(await peer.request("m", [], { timeoutMs: TIMEOUT_MS })).toBe("in time");
  });

  it("rejects a call whose response has not arrived", async () => {
    await using server = await serve({
      port: 0,
      methods: { m: () => (process.nextTick(busyFor, 2 * TIMEOUT_MS), new Promise(() => {})) },
    });
    await using peer = await connect(server.url);
    expect(await rejection(peer.request("m", [], { timeoutMs: TIMEOUT_MS }))).toBeInstanceOf(TimeoutError);
  });
});
