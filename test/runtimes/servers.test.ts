import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import type { AnyPeer } from "../../src/node.js";
import { connect } from "../support/connect.js";
import { Relay } from "../support/relay.js";
import { RUNTIMES, serveIn, type Listening } from "./runtimes.js";

/** Eight times `maxUnsentBytes` of the server, one more message, and the overhead of the runtime for each frame. */
const MOST_UNSENT = 8 * 2 ** 20 + 2 ** 18;

describe.each(RUNTIMES)("%s", (runtime) => {
  let program: Listening;
  let url: string;
  /** Another client, which controls the server. */
  let control: AnyPeer;

  beforeAll(async () => {
    program = await serveIn(runtime);
    url = program.firstLine;
    control = await connect(url);
  });

  afterAll(async () => {
    await control.close();
    await program[Symbol.asyncDispose]();
  });

  async function named(name: string, link: "packed" | "plain", through = url): Promise<AnyPeer> {
    const options = { link, heartbeat: false, reconnect: false, methods: { inner: ([x]: [number]) => x + 1 } };
    const peer: AnyPeer = await connect(through, options as object);
    await peer.request("name", [name]);
    return peer;
  }

  it.each(["packed", "plain"] as const)("calls and is called, over a link that is %s", async (link) => {
    await using peer = await named(link, link);
    const heard: unknown[] = [];
    const last = new Promise<void>((resolve) => {
      peer.on("notification", (method, params) => {
        heard.push([method, ...(params as unknown[])]);
        if (method === "all") resolve();
      });
    });
    expect(await peer.request("outer", [41])).toBe(42);
    const values = Array.from({ length: 500 }, (_, i) => i);
    expect(await Promise.all(values.map((i) => peer.request("echo", [i])))).toEqual(values.map((i) => [i]));
    const long = "é".repeat(100_000);
    expect(await peer.request("echo", [long])).toEqual([long]);
    await peer.request("notify", [500]);
    await last;
    expect(heard).toEqual([...values.map((i) => ["n", i]), ["all", "é"]]);
    const ended = control.request("ended", [link]);
    await peer.close(4000, "done");
    expect(await ended).toEqual({ code: 4000, reason: "done" });
  });

  it("closes a client on a network that carries nothing, and reports a lost client, with 1006", async () => {
    await using relay = await Relay.to(url);
    await using dead = await named("dead", "packed", relay.url);
    await using lost = await named("lost", "plain", relay.url);
    const ended = control.request("ended", ["lost"]);
    relay.pause();
    expect(await control.request("close", ["dead"])).toEqual({ code: 1006 });
    relay.cut();
    expect(await ended).toMatchObject({ code: 1006 });
    for (const { closed } of [dead, lost]) expect(await closed).toMatchObject({ code: 1006 });
  });

  it("closes a client that does not read, and bounds its queue", async () => {
    using slow = await reader("slow");
    slow.webSocket.pause();
    const { state, mostUnsent } = (await control.request("flood", ["slow"])) as Record<string, any>;
    expect(state).toBe("closed");
    expect(mostUnsent).toBeGreaterThan(2 ** 18);
    expect(mostUnsent).toBeLessThan(MOST_UNSENT);
  });

  it("sends queued messages, in order, to a client that reads again", async () => {
    using late = await reader("late");
    late.webSocket.pause();
    const sent = (await control.request("fill", ["late"])) as number;
    late.webSocket.resume();
    await expect.poll(() => late.received.length).toBe(sent);
    expect(late.received).toEqual(Array.from({ length: sent }, (_, i) => i));
  });

  /** Connects a bare client under a name. It records the first param of each notification. */
  async function reader(name: string): Promise<{ webSocket: WebSocket; received: unknown[] } & Disposable> {
    const webSocket = new WebSocket(url);
    await once(webSocket, "open");
    webSocket.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "name", params: [name] }));
    await once(webSocket, "message");
    const received: unknown[] = [];
    webSocket.on("message", (data: Buffer) => {
      received.push((JSON.parse(data.toString()) as { params: unknown[] }).params[0]);
    });
    return { webSocket, received, [Symbol.dispose]: () => webSocket.terminate() };
  }
});
