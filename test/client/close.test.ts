/**
 * Closing a client while it is suspended, during an attempt, or inside a listener: it ends at once, and leaves nothing.
 */
import { inspect as show } from "node:util";
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { AnyPeer, Caller } from "../../src/index.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { inspect } from "../../src/peer/peer.js";
import { pass, useFakeClock } from "../support/clock.js";
import { gate, rejection } from "../support/turns.js";
import {
  type Answer,
  dismiss,
  HELLO,
  live,
  METHODS,
  network,
  plainEcho,
  refuse,
  says,
  server,
  useVirtualServer,
} from "./virtual.js";

useFakeClock();

useVirtualServer(METHODS);
beforeEach(() => void vi.spyOn(Math, "random").mockReturnValue(0.5));

/** Asserts that nothing of the client is left, and that it does nothing more. */
async function expectOver(peer: AnyPeer, emitted: string[]): Promise<void> {
  expect(peer.state).toBe("closed");
  expect(emitted.filter((name) => name.startsWith("close"))).toEqual(["close 1000"]);
  expect(emitted.at(-1)).toBe("close 1000");
  expect(inspect(peer)).toMatchObject({ pending: 0, openBatches: 0, running: 0, streams: 0, progress: 0 });
  await server.close();
  expect(countDeadlines().waiting, "deadlines").toBe(0);
  await pass(0);
  expect(network.lines.size, "sockets").toBe(0);
  expect(vi.getTimerCount(), "timers").toBeLessThanOrEqual(1);
  const { length } = network.attempts;
  const { length: times } = emitted;
  await pass(100_000);
  expect(network.attempts, "tries").toHaveLength(length);
  expect(emitted, "events").toHaveLength(times);
}

const hangs: Answer = () => {};

describe("close()", () => {
  it("settles at once while suspended", async () => {
    const { peer, emitted } = await live();
    network.answer = refuse;
    const call = rejection(peer.request("never"));
    await pass(1);
    network.cut();
    await pass(10);
    const waiting = rejection(peer.request("echo"));
    await peer.close();
    expect(await call).toMatchObject({ outcome: "unknown" });
    expect(await waiting).toMatchObject({ outcome: "not-sent" });
    await expectOver(peer, emitted);
  });

  it.each([
    ["that hangs", hangs],
    ["that opened, and waits for a hello", says()],
    ["that may fail for its offer", refuse],
    ["that waits for `resumed`", says(HELLO)],
  ])("settles at once during an attempt %s", async (_name, answer) => {
    for (const options of [{}, { reconnect: true, link: "plain" }, { onOpen: () => {} }]) {
      network.answer = server.answer;
      const { peer, emitted } = await live(options);
      network.answer = answer;
      const { length } = network.attempts;
      network.cut();
      await pass(0);
      expect(network.attempts.length).toBeGreaterThan(length);
      await peer.close();
      expect(emitted.at(-1)).toBe("close 1000");
      await expectOver(peer, emitted);
    }
  });

  it("opens no other socket during an attempt to a server that never sent hello", async () => {
    network.answer = plainEcho;
    const { peer, emitted } = await live({ onOpen: () => {} });
    network.answer = hangs;
    network.cut();
    await pass(0);
    const { length } = network.attempts;
    await peer.close();
    await pass(10);
    expect(network.attempts).toHaveLength(length);
    await expectOver(peer, emitted);
  });

  describe.each(["suspend", "lost", "resume"] as const)("inside a listener of `%s`", (name) => {
    /** How the connection causes that event: each way has its own code. */
    const ways: Record<string, () => Promise<void>> = {
      "a cut that a restart follows": async () => {
        server.restart();
        network.cut();
        await pass(1);
      },
      "a session whose time is up": async () => {
        network.answer = refuse;
        network.cut();
        await pass(60_010);
        network.answer = server.answer;
        await pass(20_000);
      },
      "a bye": async () => {
        network.last.line.near.message('{"bye":{"code":1001,"reason":"","retryMs":10}}');
        network.last.line.end({ code: 1001, reason: "" });
        await pass(20);
      },
      "a server that is now plain": async () => {
        network.answer = says('{"jsonrpc":"2.0","method":"hi"}');
        network.cut();
        await pass(1);
      },
      "a server without sessions": async () => {
        network.answer = says('{"hello":{}}');
        network.cut();
        await pass(1);
      },
    };

    const cases = Object.keys(ways).flatMap((way) => [[way, "with onOpen"] as const, [way, "without"] as const]);
    it.each(cases)("settles at once after %s, %s", async (way, how) => {
      let opened = how === "without" ? -1 : 0;
      const { peer, emitted } = await live(how === "without" ? { reconnect: true } : { onOpen: () => void opened++ });
      let closing: Promise<void> | undefined;
      let after: string | undefined;
      peer.on(name, () => {
        closing = peer.close();
        after = peer.state;
      });
      const call = rejection(peer.request("never", [], { timeoutMs: Infinity }));
      await pass(1);
      await ways[way]!();
      await closing;
      expect(closing).toBeDefined();
      expect(after).toBe("closed");
      expect(await call).toMatchObject({ name: "ConnectionLostError" });
      const before = { suspend: ["suspend"], lost: ["suspend", "lost"], resume: ["suspend", "lost", "resume"] }[name];
      expect(emitted).toEqual([...before, "close 1000"]);
      // `onOpen` must not run on a connection that has ended.
      expect(opened).toBe(how === "without" ? -1 : name === "resume" ? 2 : 1);
      await expectOver(peer, emitted);
    });
  });

  it("settles inside `resume` of a resumed session", async () => {
    const { peer, emitted } = await live();
    let closing: Promise<void> | undefined;
    peer.on("resume", () => (closing = peer.close()));
    network.cut();
    await pass(1);
    await closing;
    expect(emitted).toEqual(["suspend", "resume", "close 1000"]);
    await expectOver(peer, emitted);
  });

  it("rejects the calls of a running onOpen without an `error`, and queued calls as not sent", async () => {
    network.answer = plainEcho;
    const opening = gate();
    let failed: Promise<any> | undefined;
    const onOpen = async (caller: Caller<any>): Promise<void> => {
      if (network.attempts.length <= 2) return;
      const call = caller.request("never", []);
      failed = rejection(call);
      opening.resolve();
      await call;
    };
    const { peer, emitted } = await live({ onOpen });
    network.cut();
    await pass(1);
    await opening.promise;
    const waiting = rejection(peer.request("echo", []));
    await peer.close();
    expect(await failed).toMatchObject({ outcome: "unknown" });
    expect(await waiting).toMatchObject({ outcome: "not-sent" });
    expect(emitted).toEqual(["suspend", "lost", "close 1000"]);
    await expectOver(peer, emitted);
  });

  it("settles inside the `error` of a failed onOpen", async () => {
    network.answer = plainEcho;
    let runs = 0;
    const onOpen = (): void => {
      if (++runs === 2) throw new Error("not again");
    };
    const { peer, emitted } = await live({ onOpen });
    let closing: Promise<void> | undefined;
    peer.on("error", () => (closing = peer.close()));
    network.cut();
    await pass(1);
    await closing;
    expect(emitted).toEqual(["suspend", "lost", "error not again", "close 1000"]);
    await expectOver(peer, emitted);
  });
});

describe("the token of a session", () => {
  it("appears in no event, error, address or description, however the session ends", async () => {
    const said: unknown[] = [];
    const { peer } = await live();
    for (const name of ["suspend", "resume", "lost", "close", "error"] as const) {
      peer.on(name, (...args: unknown[]) => void said.push(name, ...args));
    }
    const look = (): number => said.push(peer, peer.stats(), show(peer, { depth: 9, showHidden: true }));
    const lose = async (answer: Answer): Promise<void> => {
      look();
      network.answer = answer;
      network.cut();
      await pass(1);
      look();
      network.answer = server.answer;
      await pass(100_000);
      look();
    };
    const calls = [0, 1, 2].map(() => rejection(peer.request("never", [], { timeoutMs: Infinity })));
    await lose(server.answer);
    await lose(refuse);
    // The server that the client resumes at receives the token, and can send it back.
    await lose(({ line, protocols }) => {
      const socket = line.accept("reciproc.v1");
      expect(protocols).toContain("reciproc.resume");
      socket.send(HELLO);
      const frame = (text: string): void => {
        socket.send(text);
        socket.close(4000, "no");
      };
      socket.start({ frame, closed() {} });
    });
    server.restart();
    await lose(server.answer);
    await lose(dismiss(4401, "go away"));
    said.push(await peer.closed, ...(await Promise.all(calls)));
    const text = said.map((one) => `${show(one, { depth: 9, showHidden: true })} ${String(one)}`).join("\n");
    // Each hello offers a token, and each of the three `resumed` gives one.
    expect(server.tokens).toBe(8);
    expect(network.attempts.map(({ line }) => line.near.url).join()).not.toContain("secret-");
    expect(text).not.toContain("secret-");
    expect(text).toContain("go away");
  });
});
