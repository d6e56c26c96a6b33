import { inspect as show } from "node:util";
import { describe, expect, it } from "vitest";
import type { AnyPeer, Caller } from "../../src/index.js";
import { expectEmpty } from "../support/pair.js";
import { gate, pass, rejection, timersSet, useVirtualClock } from "../support/time.js";
import {
  dismiss,
  hang,
  HELLO,
  live,
  network,
  plainEcho,
  refuse,
  RESUMES,
  says,
  served,
  test,
  useNetwork,
  type Script,
} from "./attempts.js";

useVirtualClock();

useNetwork();

/** Asserts that nothing of the client is left, and that it does nothing more. */
async function expectOver(peer: AnyPeer, emitted: string[]): Promise<void> {
  expect(peer.state).toBe("closed");
  expect(emitted.filter((name) => name.startsWith("close"))).toEqual(["close 1000"]);
  expect(emitted.at(-1)).toBe("close 1000");
  expectEmpty(peer);
  await test.server.close();
  await pass(1000);
  expect(network.openCount, "sockets").toBe(0);
  expect(timersSet(), "timers").toBe(0);
  const { length } = network.attempts;
  const { length: times } = emitted;
  await pass(100_000);
  expect(network.attempts, "tries").toHaveLength(length);
  expect(emitted, "events").toHaveLength(times);
}

function cutTo(script: Script): () => void {
  return () => {
    network.script = script;
    network.cut();
  };
}

describe("close()", () => {
  describe.each<[object, Script | undefined]>([
    [{}, undefined],
    [{ onOpen: () => {} }, undefined],
    // A server that never sent a hello.
    [{ reconnect: true }, plainEcho],
  ])("of a client with %j", (options, server) => {
    it.each([
      ["that hangs", hang],
      ["that opened, and waits for a hello", says()],
      ["that fails, and may do so for its offer", refuse],
      ["that waits for `resumed`", says(HELLO)],
    ])("settles at once during an attempt %s, and opens no other socket", async (_name, script) => {
      network.script = server;
      const { peer, emitted } = await live(options);
      network.script = script;
      const { length } = network.attempts;
      network.cut();
      await pass(0);
      expect(network.attempts.length).toBeGreaterThan(length);
      await peer.close();
      await expectOver(peer, emitted);
    });
  });

  describe.each(["suspend", "lost", "resume"] as const)("inside a listener of `%s`", (name) => {
    /** How the connection causes that event, and after which time: each way has its own code. */
    const ways: [string, () => unknown, number][] = [
      ["a cut that a restart follows", () => network.lose(), 1],
      ["a session whose time is up", cutTo(refuse), 60_010],
      ["a bye", () => served.at(-1)!.close(4001), 20],
      ["a server that is now plain", cutTo(says('{"jsonrpc":"2.0","method":"hi"}')), 1],
      ["a server without sessions", cutTo(says('{"hello":{}}')), 1],
    ];
    const cases = ways.flatMap(([way, act, ms]) =>
      ["with onOpen", "without"].map((how) => [way, how, act, ms] as const),
    );
    it.each(cases)("settles at once after %s, %s", async (_way, how, act, ms) => {
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
      void act();
      await pass(ms);
      network.script = undefined;
      await pass(20_000);
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

  it("rejects the calls of a running onOpen without an `error`, and queued calls as not sent", async () => {
    network.script = plainEcho;
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
    await Promise.all([failed, waiting]);
    expect(emitted).toEqual(["suspend", "lost", "close 1000"]);
    await expectOver(peer, emitted);
  });

  it("settles inside the `error` of a failed onOpen", async () => {
    network.script = plainEcho;
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

it("the token of a session appears in no event, error, address or description, however the session ends", async () => {
  const said: unknown[] = [];
  const { peer } = await live();
  for (const name of ["suspend", "resume", "lost", "close", "error"] as const) {
    peer.on(name, (...args: unknown[]) => void said.push(name, ...args));
  }
  const look = (): number => said.push(peer, peer.stats(), show(peer, { depth: 9, showHidden: true }));
  const lose = async (script: Script | undefined): Promise<void> => {
    look();
    network.script = script;
    network.cut();
    await pass(1);
    look();
    network.script = undefined;
    await pass(100_000);
    look();
  };
  const calls = [0, 1, 2].map(() => rejection(peer.request("never", [], { timeoutMs: Infinity })));
  await lose(undefined);
  await lose(refuse);
  // The server that the client resumes at receives the token, and can send it back.
  await lose((webSocket, { protocols }) => {
    expect(protocols).toContain(RESUMES);
    webSocket.onSend = (frame) => {
      webSocket.say(frame);
      webSocket.end({ code: 4000, reason: "no" });
    };
    webSocket.accept("reciproc.v1", HELLO);
  });
  network.lose();
  await lose(undefined);
  await lose(dismiss(4401, "go away"));
  said.push(await peer.closed, ...(await Promise.all(calls)));
  const text = said.map((one) => `${show(one, { depth: 9, showHidden: true })} ${String(one)}`).join("\n");
  const frames = network.attempts.flatMap(({ sent }) => sent.map((frame) => JSON.parse(frame)));
  const tokens = new Set<string>(frames.filter(({ resume }) => resume).map(({ resume }) => resume.token));
  expect(tokens.size).toBeGreaterThanOrEqual(4);
  const addresses = network.attempts.map(({ url }) => url).join();
  for (const token of tokens) expect(`${addresses} ${text}`).not.toContain(token);
  expect(text).toContain("go away");
});
