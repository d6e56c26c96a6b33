import { beforeEach, describe, expect, it, vi } from "vitest";
import { ConnectError, mcp } from "../../src/index.js";
import { countedSignal, pass, rejection, useVirtualClock } from "../support/time.js";
import {
  connectPage,
  expectEcho,
  hang,
  HELLO,
  helloWith,
  live,
  network,
  plainEcho,
  refuse,
  says,
  useNetwork,
  type Script,
} from "./attempts.js";

const REASON = new Error("the user went elsewhere");

useVirtualClock();
useNetwork();

describe("a WebSocket that does not open", () => {
  // Node 20 and 22 emit nothing after the `error`.
  const cause = new TypeError("Received network error or non-101 status code.");
  const ENDED = { message: expect.stringContaining("1006") as string };
  it.each<[string, string, object, object]>([
    ["an `error` with the runtime's error", "error", { error: cause, message: cause.message }, cause],
    ["an `error` with a message", "error", { message: "connection refused" }, { message: "connection refused" }],
    ["an `error` with nothing, as in a browser", "error", {}, ENDED],
    ["a `close`, without an `error`", "close", { code: 0, reason: "" }, ENDED],
  ])("rejects with a cause at %s", async (_what, type, members, expected) => {
    network.script = (webSocket) => queueMicrotask(() => webSocket.fire(type, members));
    const error = await rejection(connectPage({ link: "plain" }, "ws://127.0.0.1:1/rpc?token=s3cret"));
    expect(error).toBeInstanceOf(ConnectError);
    expect(error).toMatchObject({ url: "ws://127.0.0.1:1/rpc", cause: expected });
  });

  it("is retried once without the offer, at once", async () => {
    network.script = plainEcho;
    const peer = await connectPage({ heartbeat: false });
    expect(network.attempts.map(({ at, protocols }) => [at - network.attempts[0]!.at, protocols])).toEqual([
      [0, ["reciproc.v1"]],
      [0, []],
    ]);
    expect(peer.state).toBe("open");
  });
});

it("does not end at an `error` after `open`: `close` follows", async () => {
  network.script = plainEcho;
  const peer = await connectPage({ link: "plain", heartbeat: false });
  network.scripted.dispatchEvent(new Event("error"));
  await pass(0);
  expect(peer.state).toBe("open");
  network.scripted.fire("close", { code: 1006, reason: "" });
  expect(await peer.closed).toMatchObject({ code: 1006 });
});

describe("a socket on which no messages begin to flow", () => {
  it.each<[string, Script]>([
    ["never opens", hang],
    ["opens and sends nothing", says()],
    ["sends only hello", says(HELLO)],
  ])("is replaced after openTimeoutMs: %s", async (_name, script) => {
    const { peer, emitted } = await live({ openTimeoutMs: 2000 });
    network.script = script;
    const from = performance.now();
    network.cut();
    await pass(2379);
    expect(network.times(from)).toEqual([0]);
    network.script = undefined;
    await pass(10);
    expect(network.times(from)).toEqual([0, 2380]);
    expect(emitted).toEqual(["suspend", "resume"]);
    // The abandoned socket is gone.
    expect(network.openCount).toBe(1);
    await expectEcho(peer);
  });

  it("is replaced at once if it is lost before the server has sent a frame", async () => {
    const { peer, emitted } = await live();
    network.script = (webSocket) => {
      webSocket.accept("reciproc.v1");
      webSocket.end();
      network.script = undefined;
    };
    const { length } = network.attempts;
    network.cut();
    await pass(500);
    expect(network.attempts).toHaveLength(length + 2);
    expect(emitted).toEqual(["suspend", "resume"]);
    await expectEcho(peer);
  });

  it("never drops its offer after a hello: it retries while a server ignores subprotocols", async () => {
    const { peer, emitted } = await live();
    const { length } = network.attempts;
    network.script = plainEcho;
    network.cut();
    await pass(5000);
    expect(network.attempts.length).toBeGreaterThan(length + 2);
    const offers = network.attempts.slice(length).map(({ protocols }) => protocols.join());
    expect(new Set(offers)).toEqual(new Set(["reciproc.v1,reciproc.resume"]));
    network.script = undefined;
    await pass(10_000);
    expect(emitted).toEqual(["suspend", "resume"]);
    await expectEcho(peer);
  });

  it("offers its dialect's subprotocol each time", async () => {
    const { peer, emitted } = await live({ dialect: mcp });
    network.cut();
    await pass(10);
    // A server of the dialect that is not reciproc.
    network.script = (webSocket, attempt) => plainEcho(webSocket, { ...attempt, protocols: [] }, "mcp");
    network.cut();
    await pass(500);
    expect(network.attempts.map(({ protocols }) => protocols)).toEqual([
      ["reciproc.v1", "mcp"],
      ["reciproc.v1", "reciproc.resume", "mcp"],
      ["reciproc.v1", "reciproc.resume", "mcp"],
    ]);
    expect(emitted).toEqual(["suspend", "resume", "suspend", "lost", "resume"]);
    await expectEcho(peer);
  });
});

it("connect with a signal rejects or resolves with an open peer, whichever microtask aborts it", async () => {
  const ends = new Set<string>();
  for (let moment = 0; moment < 60; moment++) {
    const { controller, signal, listeners } = countedSignal();
    const connecting = connectPage({ signal }).catch((reason: unknown) => reason);
    for (let i = 0; i < moment; i++) await Promise.resolve();
    controller.abort(REASON);
    await pass(0);
    const end: any = await connecting;
    ends.add(end === REASON ? "rejects" : "resolves");
    if (end !== REASON) {
      expect(end.state).toBe("open");
      expect(network.openCount).toBe(1);
      await end.close();
      await pass(0);
    }
    expect([listeners(), network.openCount]).toEqual([0, 0]);
  }
  expect(ends).toEqual(new Set(["rejects", "resolves"]));
});

const { URL: StandardURL } = globalThis;
const SECRET = "ws://user:s3cret@server.test/rpc?signed=a+b%20c~%2f";

/** The URL of React Native, of which only `href` can be read: it has no setters, and most getters throw. */
class ReadonlyURL {
  readonly href: string;
  constructor(url: string, base?: string) {
    ({ href: this.href } = new StandardURL(url, base));
  }
  toString(): string {
    return this.href;
  }
}

describe("a client in a runtime without `TextDecoder`, and whose `URL` has only `href`", () => {
  let connect: (url: unknown, options?: object) => Promise<any>;
  beforeEach(async () => {
    vi.stubGlobal("TextDecoder", undefined);
    vi.stubGlobal("URL", ReadonlyURL);
    vi.resetModules();
    ({ connect } = (await import("../../src/index.js")) as any);
  });

  it.each([
    [SECRET, undefined, SECRET],
    ["http://server.test/rpc#part", undefined, "ws://server.test/rpc"],
    ["/rpc?room=a%20b", "https://server.test/page?x=1", "wss://server.test/rpc?room=a%20b"],
    [new StandardURL("http://server.test/rpc"), undefined, "ws://server.test/rpc"],
  ])("connects to %s, adds its route to that URL when it resumes, and shows no secret", async (url, page, address) => {
    vi.stubGlobal("location", page && { href: page });
    network.script = says(helloWith({ route: "n7" }));
    const peer = await connect(url);
    await pass(1);
    for (let cuts = 0; cuts < 2; cuts++) {
      network.cut();
      await pass(1000);
    }
    const resumed = `${address}${address.includes("?") ? "&" : "?"}node=n7`;
    expect(network.attempts.map((attempt) => attempt.url).slice(0, 3)).toEqual([address, resumed, resumed]);
    await peer.close(3000, "ü".repeat(100));
    network.script = refuse;
    const failed = rejection(connect(url));
    await pass(0);
    const shown = address.replace("user:s3cret@", "").split("?")[0];
    expect(await failed).toMatchObject({ name: "ConnectError", url: shown });
  });
});
