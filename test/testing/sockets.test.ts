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

/** Makes a connection of that speed whose server records what it gets. */
async function slowly(bytesPerSecond: number) {
  const flow = { isStopped: false, bytesPerSecond };
  const ends = await joined(2 ** 20, flow);
  const there = new Recorder();
  ends.server.start(there);
  const change = (members: Partial<Flow>): void => {
    Object.assign(flow, members);
    ends.wire.flowChanged();
  };
  await pass(60_000);
  return { ...ends, there, change };
}

describe("the speed of a connection", () => {
  useVirtualClock();

  it("delivers each frame when its last byte has passed, in order, and counts it as unsent until then", async () => {
    const { client, server, there } = await slowly(100);
    const read: number[] = [];
    for (const text of ["x".repeat(50), "é".repeat(25), "x".repeat(10)]) {
      client.send(text);
      expect(client.afterRead(() => read.push(there.frames.length))).toBe(true);
    }
    expect(client.unsentBytes).toBe(110);
    for (const [ms, frames, unsent] of [
      [499, 0, 110],
      [1, 1, 60],
      [500, 2, 10],
      [99, 2, 10],
      [1, 3, 0],
    ] as const) {
      await pass(ms);
      expect([there.frames.length, client.unsentBytes, read.length]).toEqual([frames, unsent, frames]);
    }
    expect(read).toEqual([1, 2, 3]);
    expect([client.traffic, server.traffic]).toEqual([
      { sent: 110, received: 0 },
      { sent: 0, received: 110 },
    ]);
    client.close();
    expect(client.afterRead(() => {})).toBe(false);
    await pass(0);
  });

  it("can change while a frame passes, and whatever has passed counts", async () => {
    const { client, there, change } = await slowly(100);
    client.send("x".repeat(300));
    await pass(1000);
    change({ isStopped: true });
    await pass(60_000);
    expect([there.frames.length, client.unsentBytes]).toEqual([0, 300]);
    change({ isStopped: false, bytesPerSecond: 400 });
    await pass(499);
    expect(there.frames).toHaveLength(0);
    await pass(1);
    expect(there.frames).toHaveLength(1);
    // At full speed too, a frame that has not arrived stops.
    change({ bytesPerSecond: Infinity });
    client.send("late");
    change({ isStopped: true });
    await pass(1_000);
    expect([there.frames.length, client.unsentBytes]).toEqual([1, 4]);
    change({ isStopped: false });
    await pass(0);
    expect([there.frames.at(-1), client.unsentBytes]).toEqual(["late", 0]);
    client.close();
    await pass(0);
  });

  it("ends a close that the other end does not answer after 5 s, and leaves no timer", async () => {
    const { client, there, change, over } = await slowly(Infinity);
    const here = new Recorder();
    client.start(here);
    change({ isStopped: true });
    client.close(4000, "unheard");
    await pass(4_999);
    expect(here.ends).toEqual([]);
    await pass(1);
    expect([here.ends, there.ends]).toMatchObject([[{ code: 1006 }], []]);
    change({ isStopped: false });
    await pass(0);
    expect(there.ends).toMatchObject([{ code: 4000, reason: "unheard" }]);
    expect(over).toHaveBeenCalledOnce();
  });
});
