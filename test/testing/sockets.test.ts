/** Imports `testing/pipe`, `testing/wire`: a socket in memory is a socket like others below the links. */
import { describe, expect, it, vi } from "vitest";
import { ConnectError, type CloseInfo } from "../../src/index.js";
import type { Flow } from "../../src/testing/pipe.js";
import { Wire } from "../../src/testing/wire.js";
import { overTestNetwork, overTestNetworkServer } from "../sockets/joins.js";
import { describeBytes, describeSocket } from "../sockets/suite.js";
import { pass, useVirtualClock } from "../support/time.js";
import { rejection, turn } from "../support/turns.js";

/** Makes an accepted connection. */
async function joined(maxBytes = 2 ** 20, flow: Flow = { isStopped: false, bytesPerSecond: Infinity }) {
  const over = vi.fn<(wire: Wire) => void>();
  const wire = new Wire({ flow, arrived() {}, over }, new URL("ws://test/"), true, maxBytes);
  const opening = wire.request(() => {});
  const server = wire.accept("chosen", maxBytes);
  return { wire, opening, client: wire.client, server, over, flow };
}

describeSocket("in a test network", overTestNetwork, { tooLarge: 1009 });
describeSocket("in a test network, on a server", overTestNetworkServer, { tooLarge: 1009 });
describeBytes("in a test network", overTestNetwork);
describeBytes("in a test network, on a server", overTestNetworkServer);

/** Records the frames and the end of a socket. */
class Recorder {
  readonly frames: string[] = [];
  readonly ends: CloseInfo[] = [];
  #onEnd!: (info: CloseInfo) => void;
  readonly ended = new Promise<CloseInfo>((resolve) => (this.#onEnd = resolve));

  frame(text: string): void {
    this.frames.push(text);
  }

  closed(info: CloseInfo): void {
    this.ends.push(info);
    this.#onEnd(info);
  }
}

describe("a connection of a test network", () => {
  it("reports its end once to its line, and to the gate, when both ends are closed", async () => {
    const { wire, client, server, over } = await joined();
    const closed = vi.fn<() => void>();
    wire.on("close", closed);
    const [here, there] = [new Recorder(), new Recorder()];
    client.start(here);
    server.start(there);
    client.close(4000, "done");
    expect(over).not.toHaveBeenCalled();
    await Promise.all([here.ended, there.ended]);
    expect([here.ends, there.ends]).toEqual([[{ code: 4000, reason: "done" }], [{ code: 4000, reason: "done" }]]);
    expect([over.mock.calls, closed.mock.calls]).toEqual([[[wire]], [[]]]);
  });

  it("reports 1006 at both ends inside `destroy`, and delivers nothing that was under way", async () => {
    const { wire, client, server } = await joined();
    const [here, there] = [new Recorder(), new Recorder()];
    client.start(here);
    server.start(there);
    client.send("lost");
    server.send("lost");
    wire.destroy();
    expect([here.ends, there.ends].flat()).toEqual([
      { code: 1006, reason: "" },
      { code: 1006, reason: "" },
    ]);
    await turn();
    expect([...here.frames, ...there.frames]).toEqual([]);
    expect([client.send("x"), server.send("x")]).toEqual([false, false]);
  });

  it("rejects the client if it is cut before the answer", async () => {
    const wire = new Wire(
      { flow: { isStopped: true, bytesPerSecond: Infinity }, arrived() {}, over() {} },
      new URL("ws://user:secret@test/path?token=1"),
      true,
      100,
    );
    const { opened } = wire.request(() => {});
    wire.destroy();
    const error = await rejection(opened);
    expect(error).toBeInstanceOf(ConnectError);
    expect(error.message).toContain("the connection was lost");
    expect(error.message).not.toContain("secret");
    expect(wire.destroyed).toBe(true);
  });
});

describe("the speed of a connection", () => {
  useVirtualClock();

  it("delivers each frame when its last byte has passed, in order, and counts it as unsent until then", async () => {
    const { client, server } = await joined(100, { isStopped: false, bytesPerSecond: 100 });
    const there = new Recorder();
    server.start(there);
    await pass(0);
    for (const text of ["x".repeat(50), "é".repeat(25), "x".repeat(10)]) client.send(text);
    expect(client.unsentBytes).toBe(110);
    await pass(499);
    expect([there.frames.length, client.unsentBytes]).toEqual([0, 110]);
    await pass(1);
    expect([there.frames.length, client.unsentBytes]).toEqual([1, 60]);
    await pass(500);
    expect([there.frames.length, client.unsentBytes]).toEqual([2, 10]);
    await pass(99);
    expect(there.frames).toHaveLength(2);
    await pass(1);
    expect([there.frames.length, client.unsentBytes]).toEqual([3, 0]);
    client.close();
    await pass(0);
  });

  it("does not count the time before a frame was sent", async () => {
    const { client, server } = await joined(100, { isStopped: false, bytesPerSecond: 100 });
    const there = new Recorder();
    server.start(there);
    await pass(60_000);
    client.send("x".repeat(100));
    await pass(999);
    expect(there.frames).toEqual([]);
    await pass(1);
    expect(there.frames).toHaveLength(1);
    client.close();
    await pass(0);
  });

  it("can change while a frame passes, and whatever has passed counts", async () => {
    const { wire, client, server, flow } = await joined(1000, { isStopped: false, bytesPerSecond: 100 });
    const there = new Recorder();
    server.start(there);
    await pass(0);
    client.send("x".repeat(300));
    await pass(1000);
    flow.isStopped = true;
    wire.flowChanged();
    await pass(60_000);
    expect([there.frames.length, client.unsentBytes]).toEqual([0, 300]);
    flow.isStopped = false;
    flow.bytesPerSecond = 400;
    wire.flowChanged();
    await pass(499);
    expect(there.frames).toHaveLength(0);
    await pass(1);
    expect(there.frames).toHaveLength(1);
    client.close();
    await pass(0);
  });

  it("stops a frame that was sent and has not arrived", async () => {
    const { wire, client, server, flow } = await joined();
    const there = new Recorder();
    server.start(there);
    await pass(0);
    client.send("late");
    flow.isStopped = true;
    wire.flowChanged();
    await pass(1_000);
    expect([there.frames, client.unsentBytes]).toEqual([[], 4]);
    flow.isStopped = false;
    wire.flowChanged();
    await pass(0);
    expect([there.frames, client.unsentBytes]).toEqual([["late"], 0]);
    client.close();
    await pass(0);
  });

  it("ends a close that the other end does not answer after 5 s, and leaves no timer", async () => {
    const { client, server, flow, wire, over } = await joined();
    const [here, there] = [new Recorder(), new Recorder()];
    client.start(here);
    server.start(there);
    await pass(0);
    flow.isStopped = true;
    client.close(4000, "unheard");
    await pass(4_999);
    expect(here.ends).toEqual([]);
    await pass(1);
    expect(here.ends).toMatchObject([{ code: 1006 }]);
    expect(there.ends).toEqual([]);
    flow.isStopped = false;
    wire.flowChanged();
    await pass(0);
    expect(there.ends).toMatchObject([{ code: 4000, reason: "unheard" }]);
    expect(over).toHaveBeenCalledOnce();
  });

  it("calls `afterRead` when the other end has got everything that was sent before", async () => {
    const { client } = await joined(100, { isStopped: false, bytesPerSecond: 100 });
    await pass(0);
    const read = vi.fn<() => void>();
    client.send("x".repeat(100));
    expect(client.afterRead(read)).toBe(true);
    await pass(999);
    expect(read).not.toHaveBeenCalled();
    await pass(1);
    expect(read).toHaveBeenCalledOnce();
    client.close();
    expect(client.afterRead(read)).toBe(false);
    await pass(0);
  });

  it("counts the bytes of frames", async () => {
    const { client, server } = await joined();
    client.send("é");
    server.send("12345");
    await pass(0);
    expect(client.traffic).toEqual({ sent: 2, received: 5 });
    expect(server.traffic).toEqual({ sent: 5, received: 2 });
    client.close();
    await pass(0);
  });
});
