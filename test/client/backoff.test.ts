import { describe, expect, it, vi } from "vitest";
import { pass, useVirtualClock } from "../support/time.js";
import { bye, draw, HELLO, live, network, openPage, refuse, says, useNetwork } from "./attempts.js";

useVirtualClock();
useNetwork();

async function timesAfterCut(ms: number): Promise<number[]> {
  const from = performance.now();
  network.cut();
  await pass(ms);
  return network.times(from);
}

/** Connects to a scripted server, which then goes away and asks its client to reconnect within a time. */
async function dismissed(retryMs: number): Promise<{ emitted: string[]; from: number }> {
  network.script = says(HELLO);
  const { emitted } = await live();
  await pass(1000);
  network.dismiss({ code: 1001, reason: "the server is closing" }, retryMs);
  return { emitted, from: performance.now() };
}

describe("the delays of a client that reconnects", () => {
  it.each([
    [0, {}, [250, 500, 1000, 2000, 2500, 2500]],
    [0.25, {}, [320, 630, 1250, 2500, 3130, 3130]],
    [0.999, {}, [500, 1000, 2000, 4000, 5000, 5000]],
    [0.5, { minDelayMs: 1000, maxDelayMs: 20_000 }, [1500, 3000, 6000, 12_000, 15_000, 15_000]],
    [0.5, { minDelayMs: 4000 }, [6000, 6000, 6000]],
    [0.5, { minDelayMs: 1, maxDelayMs: 2 }, [10, 10, 10]],
  ])("are zero, then from a growing base to twice it, until `maxDelayMs` (%d, %j)", async (random, range, expected) => {
    draw(random);
    network.script = refuse;
    const delays: number[] = [];
    const peer = openPage({ link: "plain", reconnect: { initial: true, ...range } });
    peer.on("attempt", ({ delayMs }) => delays.push(delayMs));
    await pass(100_000);
    expect(delays.slice(0, expected.length)).toEqual(expected);
  });

  it.each([
    [{ minDelayMs: 0 }, "reconnect.minDelayMs"],
    [{ minDelayMs: Infinity }, "reconnect.minDelayMs"],
    [{ maxDelayMs: Infinity }, "reconnect.maxDelayMs"],
    [{ minDelayMs: 300, maxDelayMs: 599 }, "reconnect.maxDelayMs"],
    ["always", "reconnect"],
  ])("are refused if they are wrong: %j", (reconnect, name) => {
    expect(() => openPage({ reconnect: reconnect as never })).toThrow(`Expected \`${name}\` to be `);
  });

  it("reset after 5 s of flowing messages, and not after less", async () => {
    await live();
    await pass(10_000);
    // The first attempt has no delay.
    expect(await timesAfterCut(2000)).toEqual([0]);
    // The socket was open for 2 s: the next delay is that of a second attempt.
    expect(await timesAfterCut(2000)).toEqual([380]);
    expect(await timesAfterCut(750 + 4990)).toEqual([750]);
    expect(await timesAfterCut(1500 + 5000)).toEqual([1500]);
    expect(await timesAfterCut(2000)).toEqual([0]);
  });

  it("do not reset after a socket on which no message flowed", async () => {
    await live({ openTimeoutMs: 6000 });
    await pass(10_000);
    network.script = says();
    expect(await timesAfterCut(21_000)).toEqual([0, 6380, 13_130, 20_630]);
  });

  it.each([undefined, 0, 1, 5, 400])("tries ever less often while each is closed (retryMs: %s)", async (retryMs) => {
    await live();
    await pass(1000);
    network.script = (webSocket) => {
      webSocket.accept("reciproc.v1", HELLO, bye(1001, "", retryMs));
      webSocket.end({ code: 1001, reason: "" });
    };
    expect(await timesAfterCut(10_000)).toEqual([0, 380, 1130, 2630, 5630, 9380]);
  });
});

describe("a client whose server names a time", () => {
  it("reconnects at a random moment within that time, also if the network is back earlier, and retries as usual if that fails", async () => {
    draw(0.75);
    const events = new EventTarget();
    vi.stubGlobal("addEventListener", events.addEventListener.bind(events));
    vi.stubGlobal("removeEventListener", events.removeEventListener.bind(events));
    const { emitted, from } = await dismissed(4000);
    network.script = refuse;
    await pass(2000);
    events.dispatchEvent(new Event("online"));
    await pass(3000);
    expect(network.times(from)).toEqual([3000, 3440, 4320]);
    events.dispatchEvent(new Event("online"));
    await pass(0);
    expect(network.times(from)).toEqual([3000, 3440, 4320, 5000]);
    expect(emitted).toEqual(["suspend", "lost"]);
  });

  it.each([1_200_000, 2 ** 31, Number.MAX_SAFE_INTEGER])("reconnects within 10 minutes: %i ms", async (retryMs) => {
    draw(0.999);
    const { from, emitted } = await dismissed(retryMs);
    await pass(599_399);
    expect(network.times(from)).toEqual([]);
    await pass(601);
    expect(network.times(from)).toEqual([599_400]);
    expect(emitted.at(-1)).toBe("resume");
  });
});
