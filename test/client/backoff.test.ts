/** When a client retries, by a fake clock. */
import { describe, expect, it, vi } from "vitest";
import { ConnectError, type AnyPeer } from "../../src/index.js";
import { Backoff } from "../../src/client/backoff.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { pass, useFakeClock } from "../support/clock.js";
import { rejection } from "../support/turns.js";
import { Random } from "../faults/random.js";
import { record } from "./clients.js";
import {
  type Answer,
  connectVirtual,
  dismiss,
  HELLO,
  METHODS,
  network,
  refuse,
  says,
  server,
  URL,
  useVirtualServer,
} from "./virtual.js";

useFakeClock();

/** Sets the value that `Math.random` returns from now on. */
function draw(...values: number[]): void {
  let i = 0;
  vi.spyOn(Math, "random").mockImplementation(() => values[i++ % values.length]!);
}

const CAPS_MS = [500, 1000, 2000, 4000, 8000, 16_000, 20_000, 20_000, 20_000];

/** The server refuses further attempts, and goes away with a bye that asks its client to reconnect within 4 s. */
function closeWithRetry(): void {
  network.answer = refuse;
  const { line } = network.last;
  line.near.message('{"bye":{"code":1001,"reason":"the server is closing","retryMs":4000}}');
  line.end({ code: 1001, reason: "the server is closing" });
}

describe("the delays of a reconnecting client", () => {
  it("retries at once, and then after delays whose cap doubles from 500 ms to 20 s", () => {
    const least = new Backoff(() => 0);
    const most = new Backoff(() => 1 - Number.EPSILON);
    expect([least.nextDelayMs(), most.nextDelayMs()]).toEqual([0, 0]);
    for (const cap of CAPS_MS) {
      expect(least.nextDelayMs()).toBe(100);
      expect(most.nextDelayMs()).toBeCloseTo(cap, 3);
    }
  });

  it("draws one random number for each delay, after the cap", () => {
    const random = vi.fn<() => number>(() => 0.25);
    const backoff = new Backoff(random);
    backoff.nextDelayMs();
    expect(random).not.toHaveBeenCalled();
    expect(CAPS_MS.map(() => backoff.nextDelayMs())).toEqual(CAPS_MS.map((cap) => 100 + 0.25 * (cap - 100)));
    expect(random).toHaveBeenCalledTimes(CAPS_MS.length);
  });

  it("resets its delay after a connection of 5 seconds, and not after a shorter one", async () => {
    const backoff = new Backoff(() => 0.5);
    for (let i = 0; i < 5; i++) backoff.nextDelayMs();
    backoff.opened();
    await pass(4_999);
    expect(backoff.nextDelayMs()).toBe(100 + 0.5 * 7900);
    await pass(60_000);
    // Time without a connection does not count as connected.
    expect(backoff.nextDelayMs()).toBe(100 + 0.5 * 15_900);
    backoff.opened();
    await pass(5_000);
    expect(backoff.nextDelayMs()).toBe(0);
    expect(backoff.nextDelayMs()).toBe(300);
  });
});

useVirtualServer(METHODS);

/** Cuts all connections. Returns the times of the attempts in the next two seconds. */
async function lose(): Promise<number[]> {
  const from = performance.now();
  network.cut();
  await pass(2000);
  return network.times(from);
}

describe("a client that lost its socket", () => {
  it("resets its delays after 5 s of flowing messages, and not after less", async () => {
    draw(0.5);
    await connectVirtual();
    await pass(10_000);
    // The first attempt has no delay.
    expect(await lose()).toEqual([0]);
    // The socket was open for 2 s: the next delay is that of a second attempt.
    expect(await lose()).toEqual([300]);
    expect(await lose()).toEqual([550]);
    await pass(5000);
    expect(await lose()).toEqual([0]);
  });

  it("does not reset its delays after a socket on which no message flowed", async () => {
    draw(0.5);
    await connectVirtual({ openTimeoutMs: 6000 });
    await pass(10_000);
    // This socket opens, and sends nothing.
    network.answer = says();
    const from = performance.now();
    network.cut();
    await pass(20_000);
    expect(network.times(from)).toEqual([0, 6300, 12_850, 19_900]);
  });

  it("reconnects at a random moment within the time that the server names, and retries as usual if that fails", async () => {
    draw(0.75);
    const peer = await connectVirtual();
    const emitted = record(peer);
    await pass(1000);
    const from = performance.now();
    closeWithRetry();
    await pass(5000);
    expect(network.times(from)).toEqual([3000, 3400, 4180]);
    expect(emitted).toEqual(["suspend", "lost"]);
  });

  it("waits for that moment also if the network is back earlier, and for no later attempt", async () => {
    draw(0.75);
    const page = new EventTarget();
    vi.stubGlobal("addEventListener", page.addEventListener.bind(page));
    vi.stubGlobal("removeEventListener", page.removeEventListener.bind(page));
    const peer = await connectVirtual();
    await pass(1000);
    const from = performance.now();
    closeWithRetry();
    await pass(2000);
    page.dispatchEvent(new Event("online"));
    await pass(1001);
    expect(network.times(from)).toEqual([3000]);
    page.dispatchEvent(new Event("online"));
    await pass(0);
    expect(network.times(from)).toEqual([3000, 3001]);
    await peer.close();
  });

  it.each([undefined, 0, 1, 5, 400])(
    "tries less and less often while a server closes each connection at once, whatever it asks for (retryMs: %s)",
    async (retryMs) => {
      draw(0.5);
      await connectVirtual();
      await pass(1000);
      const from = performance.now();
      network.answer = ({ line }) => {
        const socket = line.accept("reciproc.v1");
        socket.send(HELLO);
        socket.send(JSON.stringify({ bye: { code: 1001, reason: "", retryMs } }));
        socket.close(1001);
      };
      network.cut();
      await pass(5000);
      expect(network.times(from)).toEqual([0, 300, 850, 1900, 3950]);
    },
  );

  it.each([1_200_000, 2 ** 31, Number.MAX_SAFE_INTEGER])(
    "reconnects within 10 minutes, whatever the server asks for: %i ms",
    async (retryMs) => {
      draw(0.999);
      const peer = await connectVirtual();
      await pass(1000);
      const from = performance.now();
      const { line } = network.last;
      line.near.message(JSON.stringify({ bye: { code: 1001, reason: "the server is closing", retryMs } }));
      line.end({ code: 1001, reason: "the server is closing" });
      await pass(599_399);
      expect(network.times(from)).toEqual([]);
      await pass(601);
      expect(network.times(from)).toEqual([599_400]);
      expect(peer.state).toBe("open");
    },
  );

  it.each([1000, 4400, 4401, 4499])("does not reconnect after a close with %i", async (code) => {
    const peer = await connectVirtual({ reconnect: true, onOpen: () => {} });
    const emitted = record(peer);
    await pass(1000);
    const call = rejection(peer.request("never"));
    await pass(0);
    const before = network.attempts.length;
    network.last.line.near.message(`{"bye":{"code":${code},"reason":"no more"}}`);
    network.last.line.end({ code, reason: "no more" });
    await pass(60_000);
    await call;
    expect(await peer.closed).toMatchObject({ code, reason: "no more" });
    expect(emitted).toEqual([`close ${code}`]);
    expect(network.attempts).toHaveLength(before);
    expect(countDeadlines().waiting).toBe(0);
  });

  it.each([1001, 1002, 1006, 1009, 1011, 1012, 1013, 3000, 4000, 4399, 4500, 4999])(
    "reconnects after a close with %i",
    async (code) => {
      const peer = await connectVirtual();
      await pass(1000);
      const { length } = network.attempts;
      network.last.line.end({ code, reason: "" });
      await pass(0);
      expect(network.attempts).toHaveLength(length + 1);
      await pass(10);
      expect(peer.state).toBe("open");
      expect(await peer.request("echo", [1])).toEqual([1]);
    },
  );
});

describe("a client that could not connect", () => {
  it("rejects at once without `reconnect.initial`", async () => {
    network.answer = refuse;
    expect(await rejection(connectVirtual({ reconnect: true }))).toMatchObject({ code: "CONNECT_FAILED" });
    // One attempt with the offer, and one without.
    expect(network.attempts.map(({ protocols }) => protocols)).toEqual([["reciproc.v1"], []]);
  });

  it("retries like a client that lost its socket with `reconnect.initial`, and then behaves like any other", async () => {
    draw(0.5);
    network.answer = refuse;
    const from = performance.now();
    const connecting = connectVirtual({ reconnect: { initial: true } });
    await pass(2200);
    expect([...new Set(network.times(from))]).toEqual([0, 300, 850, 1900]);
    network.answer = server.answer;
    await pass(2050);
    const peer = await connecting;
    const emitted = record(peer);
    await pass(10);
    expect(await peer.request("echo", [1])).toEqual([1]);
    network.cut();
    await pass(10);
    expect(await peer.request("echo", [2])).toEqual([2]);
    expect(emitted).toEqual(["suspend", "resume"]);
  });

  it.each([401, 403])("does not retry if a server refuses it with %i", async (status) => {
    network.answer = dismiss(4000 + status, "not you");
    const connecting = rejection(connectVirtual({ reconnect: { initial: true } }));
    await pass(0);
    expect(await connecting).toMatchObject({ code: "CONNECT_FAILED", status });
    expect(network.attempts).toHaveLength(1);
  });

  it("retries if the server is full", async () => {
    network.answer = dismiss(4503, "full");
    const connecting = connectVirtual({ reconnect: { initial: true } });
    await pass(1000);
    expect(network.attempts.length).toBeGreaterThan(1);
    network.answer = server.answer;
    await pass(20_000);
    await connecting;
  });

  it.each([
    [4001, undefined],
    [4399, undefined],
    [4400, 400],
    [4599, 599],
    [4600, undefined],
    [4999, undefined],
  ])("reports the HTTP status that the code of a bye stands for: %i", async (code, status) => {
    network.answer = dismiss(code, "not you");
    const error = await rejection(connectVirtual());
    expect(error).toBeInstanceOf(ConnectError);
    expect((error as ConnectError).status).toBe(status);
  });

  it("does not retry if the runtime has no WebSocket", async () => {
    vi.stubGlobal("WebSocket", undefined);
    expect(await rejection(connectVirtual({ reconnect: { initial: true } }))).toBeInstanceOf(TypeError);
  });

  it("retries at once when the network is back", async () => {
    draw(0.5);
    const page = new EventTarget();
    vi.stubGlobal("addEventListener", page.addEventListener.bind(page));
    vi.stubGlobal("removeEventListener", page.removeEventListener.bind(page));
    network.answer = refuse;
    const connecting = connectVirtual({ reconnect: { initial: true } });
    await pass(3000);
    network.answer = server.answer;
    page.dispatchEvent(new Event("online"));
    await pass(1);
    await connecting;
  });
});

/**
 * Returns whether any 100 ms hold more than three times the mean. If the mean is a few, chance alone sometimes does.
 */
function expectSpread(times: readonly number[], attempt: number): void {
  const buckets = new Map<number, number>();
  for (const at of times) buckets.set(Math.floor(at / 100), (buckets.get(Math.floor(at / 100)) ?? 0) + 1);
  const mean = times.length / (Math.max(...buckets.keys()) - Math.min(...buckets.keys()) + 1);
  const most = mean > 50 ? 3 * mean : 3 * mean + 6 * Math.sqrt(mean);
  expect(Math.max(...buckets.values()), `attempt ${attempt}`).toBeLessThanOrEqual(most);
}

describe("a crowd of 10,000 clients of a restarted server", () => {
  it("spreads all its attempts except the first, which each client makes at once", { timeout: 120_000 }, async () => {
    const random = new Random(11);
    vi.spyOn(Math, "random").mockImplementation(() => random.next());
    const counts = new Map<string, number>();
    const open = async (i: number): Promise<AnyPeer> => {
      const peer = await connectVirtual({ heartbeat: false }, `${URL}${i}`);
      for (const name of ["suspend", "lost", "resume"] as const) {
        peer.on(name, () => counts.set(name, (counts.get(name) ?? 0) + 1));
      }
      return peer;
    };
    const peers: AnyPeer[] = [];
    while (peers.length < 10_000) {
      const { length } = peers;
      peers.push(...(await Promise.all(Array.from({ length: 100 }, (_, i) => open(length + i)))));
      // The fake clock searches all its timers for each that it fires.
      await pass(1);
    }
    await pass(6000);
    const from = performance.now();
    /** The times of the attempts of each client, the earliest first. */
    const tries: number[][] = [];
    const made = new Map<string, number>();
    const note: Answer = ({ line }) => {
      const { url } = line.near;
      const n = made.get(url) ?? 0;
      made.set(url, n + 1);
      (tries[n] ??= []).push(performance.now() - from);
    };
    network.answer = (attempt) => {
      note(attempt);
      attempt.line.refuse();
    };
    network.cut();
    await pass(6500);
    server.restart();
    network.answer = (attempt) => {
      note(attempt);
      server.answer(attempt);
    };
    // The longest delay.
    await pass(20_100);
    expect(new Set(tries[0])).toEqual(new Set([0]));
    expect(tries.length).toBeGreaterThanOrEqual(5);
    for (const [i, times] of tries.entries()) if (i > 0) expectSpread(times, i + 1);
    expect(tries.slice(0, 4).map((times) => times.length)).toEqual([10_000, 10_000, 10_000, 10_000]);
    expect(Object.fromEntries(counts)).toEqual({ suspend: 10_000, lost: 10_000, resume: 10_000 });
    // Again, with a server that names a time.
    await pass(6000);
    const again = performance.now();
    const returns: number[] = [];
    network.answer = (attempt) => {
      returns.push(performance.now() - again);
      server.answer(attempt);
    };
    for (const line of network.lines) {
      line.near.message('{"bye":{"code":1001,"reason":"","retryMs":5000}}');
      line.end({ code: 1001, reason: "" });
    }
    await pass(5100);
    expect(returns).toHaveLength(10_000);
    expectSpread(returns, 1);
    expect(peers.every(({ state }) => state === "open")).toBe(true);
  });
});
