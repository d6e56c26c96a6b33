import { describe, expect, it } from "vitest";
import { memory } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { pass, useFakeClock } from "../support/clock.js";
import { countedSignal } from "../support/counting.js";
import { expectEmpty } from "../support/pair.js";
import { rawPeer, result, type RawPeer } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";

useFakeClock();

describe("aborting a call", () => {
  it.each([undefined, null, 0, ""])("rejects with the reason unchanged, `%s` included", async (reason) => {
    const { peer } = rawPeer();
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort(reason);
    expect(await rejection(call)).toBe(controller.signal.reason);
  });

  it.each([
    ["a string", "soon", "`soon` (string)"],
    ["null", null, "`null`"],
    ["an object without addEventListener", { aborted: false }, "an object"],
    ["an object without removeEventListener", { aborted: false, addEventListener: () => {} }, "an object"],
  ])("refuses %s as a signal", async (_kind, signal, shown) => {
    const { peer, sent } = rawPeer();
    const error = await rejection(peer.request("m", [], { signal: signal as AbortSignal }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe(`Expected \`signal\` to be an AbortSignal, got ${shown}`);
    expect(sent).toEqual([]);
    expectEmpty(peer);
  });
});

describe("many calls with one signal", () => {
  it("add one listener to it, over all connections, and remove it with the last", async () => {
    const raws = Array.from({ length: 12 }, () => rawPeer());
    const { controller, listeners } = countedSignal();
    const { signal } = controller;
    const calls = raws.flatMap(({ peer }) => [peer.request("m", [], { signal }), peer.request("n", [], { signal })]);
    const read = raws.map(({ peer }) => peer.stream("tail", [], { signal })[Symbol.asyncIterator]().next());
    const settled = Promise.allSettled([...calls, ...read]);
    await turn();
    expect(listeners()).toBe(1);
    for (const { feed } of raws) for (const id of [1, 2, 3]) feed(result(id, { values: [] }));
    await settled;
    expect(listeners()).toBe(0);
    const again = raws.map(({ peer }) => peer.request("m", [], { signal }));
    controller.abort("all");
    expect(await Promise.all(again.map(rejection))).toEqual(raws.map(() => "all"));
    expect(listeners()).toBe(0);
    for (const { peer } of raws) expectEmpty(peer);
  });

  it("print no warning of Node, of a fan-out in a handler to peers, topics, streams and remote peers", async () => {
    const warnings: unknown[] = [];
    const onWarning = (warning: unknown): void => void warnings.push(warning);
    process.on("warning", onWarning);
    const engine = memory();
    const fans = Array.from({ length: 12 });
    let signalled: AbortSignal | undefined;
    const methods = {
      fan: async (_params: unknown, { signal, peer }: any) => {
        signalled = signal;
        const topic = server.server.topic("all").add(peer);
        const options = { signal };
        const streams = fans.map(() => peer.stream("wait", [], options)[Symbol.asyncIterator]().next());
        const remote = server.server.peer(elsewhere);
        const calls = fans.flatMap(() => [
          peer.request("wait", [], options),
          remote.request("wait", [], options),
          topic.request("wait", [], options),
        ]);
        await Promise.allSettled([...streams, ...calls]);
      },
    };
    const server = testServer<any, any, any>({ engine, methods });
    const other = testServer<any, any, any>({ engine });
    const wait = { methods: { wait: () => new Promise(() => {}) } };
    const far = await other.connect(other.server.url, wait);
    const elsewhere = [...other.server.peers][0]!.id;
    const client = await server.connect(server.server.url, wait);
    const stop = new AbortController();
    const call = rejection(client.request("fan", [], { signal: stop.signal }));
    await turn();
    await turn();
    expect(signalled).toBeDefined();
    stop.abort("enough");
    expect(await call).toBe("enough");
    await turn();
    await Promise.all([client.close(), far.close()]);
    await Promise.all([server.server.close(), other.server.close()]);
    await turn();
    process.off("warning", onWarning);
    expect(warnings).toEqual([]);
  });
});

describe("a call's listener on its signal", () => {
  it.each<[string, (raw: RawPeer, controller: AbortController) => void | Promise<void>]>([
    ["an answer", (raw) => raw.feed(result(1, 1))],
    ["a timeout", () => pass(60_000)],
    ["the end of the connection", (raw) => raw.cut()],
    ["close()", (raw) => raw.peer.close()],
    ["the abort itself", (_raw, controller) => controller.abort("x")],
  ])("is removed after %s", async (_name, end) => {
    const raw = rawPeer();
    const { controller, listeners } = countedSignal();
    const outcomes = new Outcomes().watch("call", raw.peer.request("m", [], { signal: controller.signal }));
    expect(listeners()).toBe(1);
    await end(raw, controller);
    await turn();
    expect(listeners()).toBe(0);
    expect(outcomes.names).toEqual(["call"]);
  });

  it("is removed when the transport accepts no message", async () => {
    const { peer } = rawPeer({}, { onSend: () => false });
    const { controller, listeners } = countedSignal();
    await rejection(peer.request("m", [], { signal: controller.signal }));
    expect(listeners()).toBe(0);
  });
});
