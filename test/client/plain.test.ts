/** A client of a plain server reconnects only if `onOpen` is set or `reconnect` is true. */
import { beforeEach, describe, expect, it } from "vitest";
import type { Caller } from "../../src/index.js";
import { pass, useFakeClock } from "../support/clock.js";
import { gate, rejection } from "../support/turns.js";
import { live, network, plainEcho, refuse, says, server, useVirtualServer } from "./virtual.js";

useFakeClock();

/** The calls and notifications that the server got. */
const heard: string[] = [];
const note = (_params: unknown, { method }: { method: string }): void => void heard.push(method);
useVirtualServer({
  ...Object.fromEntries(["login", "ready", "done", "a", "b", "c", "d"].map((method) => [method, note])),
  never: () => new Promise(() => {}),
});
beforeEach(() => void (heard.length = 0));

async function logIn(remote: Caller<any>): Promise<void> {
  await remote.request("login", ["me"]);
  remote.notify("ready");
}

describe("a client of a plain server with onOpen", () => {
  it("runs it on the first open and after each loss, before queued calls and notifications", async () => {
    const { peer, emitted } = await live({ link: "plain", onOpen: logIn });
    await Promise.all([peer.request("a"), pass(1)]);
    expect(heard).toEqual(["login", "ready", "a"]);
    for (let round = 0; round < 2; round++) {
      heard.length = 0;
      const unanswered = rejection(peer.request("never"));
      await pass(1);
      network.answer = refuse;
      network.cut();
      expect(await unanswered).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
      expect(peer.state).toBe("suspended");
      const calls = [peer.request("b"), peer.request("c")];
      expect(peer.notify("d")).toBe(true);
      network.answer = server.answer;
      await pass(1000);
      await Promise.all(calls);
      expect(peer.state).toBe("open");
      expect(heard).toEqual(["login", "ready", "b", "c", "d"]);
      await pass(6000);
    }
    expect(emitted).toEqual(["suspend", "lost", "resume", "suspend", "lost", "resume"]);
  });

  it("queues calls until a slow one is done, but answers calls of the server", async () => {
    const go = gate();
    let runs = 0;
    const onOpen = async (remote: Caller<any>): Promise<void> => {
      if (++runs === 1) return;
      await remote.request("login");
      await go.promise;
      remote.notify("done");
    };
    const { peer, emitted } = await live({ link: "plain", onOpen, methods: { ask: () => "answered" } });
    network.cut();
    const call = peer.request("a");
    await pass(1);
    expect(peer.state).toBe("suspended");
    expect(await Promise.all([server.peers[1]!.request("ask"), pass(1)])).toEqual(["answered", undefined]);
    expect(heard).toEqual(["login"]);
    go.resolve();
    await Promise.all([call, pass(1)]);
    expect(heard).toEqual(["login", "done", "a"]);
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
  });

  it("retries without an event if the socket is lost during one", async () => {
    let runs = 0;
    const onOpen = async (remote: Caller<any>): Promise<void> => {
      if (++runs === 2) network.cut();
      await remote.request("login");
    };
    const { emitted } = await live({ link: "plain", onOpen });
    network.cut();
    await pass(1000);
    expect(emitted).toEqual(["suspend", "lost", "lost", "resume"]);
    expect(runs).toBe(3);
  });
});

it.each([
  ["ends with its socket without `onOpen` and `reconnect`", {}, ["close 1006"]],
  // A server that has never sent hello can do so after an update.
  ["makes the same offer again with `reconnect: true`", { reconnect: true }, ["suspend", "lost", "resume"]],
  ["makes the same offer again with `onOpen`", { onOpen: () => {} }, ["suspend", "lost", "resume"]],
])("a client of a plain server %s", async (_what, options, events) => {
  network.answer = plainEcho;
  const { peer, emitted } = await live(options);
  const call = rejection(peer.request("never"));
  await pass(1);
  network.cut();
  expect(await call).toMatchObject({ outcome: "unknown" });
  await pass(1000);
  expect(emitted).toEqual(events);
  const offers = [["reciproc.v1"], []];
  expect(network.attempts.map(({ protocols }) => protocols)).toEqual(
    events.length > 1 ? [...offers, ...offers] : offers,
  );
});

it.each(['{"jsonrpc":"2.0","method":"hi"}', '{"hello":{}}'])(
  "a client without `onOpen` and `reconnect` ends with its socket if the server's first frame is %s",
  async (frame) => {
    network.answer = says(frame);
    const { emitted } = await live();
    network.cut();
    await pass(1000);
    expect(emitted).toEqual(["close 1006"]);
  },
);
