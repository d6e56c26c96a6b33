/** One connection attempt: how a WebSocket fails, servers that are silent or changed, addresses, and `signal`. */
import { getEventListeners } from "node:events";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { ConnectError, mcp } from "../../src/index.js";
import { pass, timersSet, useVirtualClock } from "../support/time.js";
import { Outcomes, rejection } from "../support/turns.js";
import {
  connectPage,
  draw,
  expectEcho,
  hang,
  HELLO,
  helloWith,
  live,
  network,
  plainEcho,
  refuse,
  says,
  served,
  URL,
  useNetwork,
  type Script,
} from "./attempts.js";
import { record } from "./clients.js";

const REASON = new Error("the user went elsewhere");

useVirtualClock();
useNetwork();

/** Connects without an offer to a WebSocket that fires one event. Returns the error. */
async function failureOf(members: object, type = "error"): Promise<ConnectError> {
  network.script = (webSocket) => queueMicrotask(() => webSocket.fire(type, members));
  return rejection(connectPage({ link: "plain" }, "ws://127.0.0.1:1/rpc?token=s3cret"));
}

describe("a WebSocket that does not open", () => {
  it("rejects at its `error`, after which Node 20 and 22 emit nothing, with the runtime's error as cause", async () => {
    const cause = new TypeError("Received network error or non-101 status code.");
    const error = await failureOf({ error: cause, message: cause.message });
    expect(error).toBeInstanceOf(ConnectError);
    expect(error).toMatchObject({ url: "ws://127.0.0.1:1/rpc", cause });
  });

  it.each([
    ["a message only", { message: "connection refused" }, "connection refused"],
    ["nothing, as in a browser", {}, "closed with 1006"],
  ])("has a cause also if the event holds %s", async (_what, members, message) => {
    expect(await failureOf(members)).toMatchObject({ cause: { message } });
  });

  it("rejects at its `close` if there is no `error`", async () => {
    expect(await failureOf({ code: 0, reason: "" }, "close")).toMatchObject({ cause: { message: "closed with 1006" } });
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
  beforeEach(() => draw(0.5));

  const silent: Record<string, Script> = {
    "never opens": hang,
    "opens and sends nothing": says(),
    "sends only hello": says(HELLO),
  };

  it.each(Object.entries(silent))("is replaced after openTimeoutMs: %s", async (_name, script) => {
    const { peer, emitted } = await live({ openTimeoutMs: 2000 });
    network.script = script;
    const from = performance.now();
    network.cut();
    await pass(2299);
    expect(network.times(from)).toEqual([0]);
    network.script = undefined;
    await pass(10);
    expect(network.times(from)).toEqual([0, 2300]);
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

  it("offers its dialect's subprotocol each time", async () => {
    const { peer, emitted } = await live({ dialect: mcp });
    network.cut();
    await pass(10);
    // A server of the dialect that is not reciproc.
    network.script = (webSocket) => {
      webSocket.onSend = (frame) => {
        const { id, params } = JSON.parse(frame) as { id: number; params: unknown };
        webSocket.say(JSON.stringify({ jsonrpc: "2.0", id, result: params }));
      };
      webSocket.accept("mcp");
    };
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

  it("continues as a new session if the old one is refused, whatever the server sends after that", async () => {
    const { emitted } = await live({ openTimeoutMs: 2000, onOpen: () => {} });
    network.script = (webSocket) => {
      webSocket.onSend = (frame) => {
        if (frame.startsWith('{"resume"')) webSocket.say('{"resumed":{"refused":"unknown-session"}}');
      };
      webSocket.accept("reciproc.v1", HELLO);
    };
    network.cut();
    await pass(2299);
    // No other frame is due before messages flow.
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
    expect(network.last.sent.map((frame) => Object.keys(JSON.parse(frame) as object)[0])).toEqual(["resume", "hello"]);
    expect(network.openCount).toBe(1);
  });

  it("starts a session even if it is lost right after the hello, and another server does not know that session", async () => {
    network.script = silent["sends only hello"]!;
    const peer = await connectPage();
    const emitted = record(peer);
    const call = rejection(peer.request("echo", [1]));
    await pass(10);
    network.script = undefined;
    network.cut();
    await pass(10);
    expect(await call).toMatchObject({ outcome: "unknown" });
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
    await expectEcho(peer);
  });

  it("has no timeout if openTimeoutMs is Infinity", async () => {
    const peer = await connectPage({ openTimeoutMs: Infinity });
    await pass(10);
    network.script = silent["opens and sends nothing"]!;
    const { length } = network.attempts;
    network.cut();
    await pass(50_000);
    expect(network.attempts).toHaveLength(length + 1);
    expect(peer.state).toBe("suspended");
  });

  it("rejects connect if it is the first, and leaves nothing", async () => {
    network.script = silent["never opens"]!;
    const failed = rejection(connectPage({ openTimeoutMs: 2000 }));
    await pass(2000);
    expect(await failed).toMatchObject({ message: `could not connect to ${URL}: not open within 2000 ms` });
    await pass(1000);
    expect(network.attempts).toHaveLength(1);
    expect([network.openCount, timersSet()]).toEqual([0, 0]);
  });
});

/** Makes a signal, a function that aborts it, and one that counts its listeners. */
function stopper(): { signal: AbortSignal; abort: () => void; listeners: () => number } {
  const controller = new AbortController();
  const { signal } = controller;
  return {
    signal,
    abort: () => controller.abort(REASON),
    listeners: () => getEventListeners(signal, "abort").length,
  };
}

async function expectNothingLeft(): Promise<void> {
  await pass(1000);
  expect(network.openCount).toBe(0);
  expect(timersSet()).toBe(0);
}

describe("connect with a signal", () => {
  it("rejects with its reason if it is already aborted, and opens nothing", async () => {
    const { signal, abort, listeners } = stopper();
    abort();
    for (const reconnect of [undefined, { initial: true }])
      expect(await rejection(connectPage({ signal, reconnect }))).toBe(REASON);
    expect(network.attempts).toEqual([]);
    expect(listeners()).toBe(0);
  });

  it.each<[string, Script, object]>([
    ["that does not open", hang, {}],
    ["that does not open, and has for ever to do so", hang, { openTimeoutMs: Infinity }],
    ["whose server agrees and says nothing", says(), {}],
  ])("stops an attempt %s", async (_name, script, options) => {
    const { signal, abort, listeners } = stopper();
    network.script = script;
    const outcomes = new Outcomes().watch("connect", connectPage({ ...options, signal }));
    await pass(50);
    expect(outcomes.list).toEqual([]);
    abort();
    await pass(0);
    expect(outcomes.list).toEqual([{ name: "connect", reason: REASON }]);
    expect(listeners()).toBe(0);
    await expectNothingLeft();
    await pass(60_000);
    expect(network.attempts).toHaveLength(1);
  });

  it("stops the delay between two attempts of `initial`, and the attempts", async () => {
    const { signal, abort, listeners } = stopper();
    network.script = refuse;
    const connecting = rejection(connectPage({ signal, reconnect: { initial: true } }));
    await pass(100_000);
    const { length } = network.attempts;
    expect(length).toBeGreaterThan(3);
    // One listener, however many attempts there were.
    expect(listeners()).toBe(1);
    abort();
    await pass(0);
    expect(await connecting).toBe(REASON);
    expect(listeners()).toBe(0);
    await expectNothingLeft();
    await pass(100_000);
    expect(network.attempts).toHaveLength(length);
  });

  it("rejects or resolves with an open peer, whichever microtask aborts it", async () => {
    const ends = new Set<string>();
    for (let moment = 0; moment < 60; moment++) {
      const { signal, abort, listeners } = stopper();
      const connecting = connectPage({ signal }).then(
        (peer) => peer,
        (reason: unknown) => reason,
      );
      for (let i = 0; i < moment; i++) await Promise.resolve();
      abort();
      await pass(0);
      const end: any = await connecting;
      ends.add(end === REASON ? "rejects" : "resolves");
      if (end !== REASON) {
        expect(end.state).toBe("open");
        expect(network.openCount).toBe(1);
        await end.close();
        await pass(0);
      }
      expect(listeners()).toBe(0);
      expect(network.openCount).toBe(0);
    }
    expect(ends).toEqual(new Set(["rejects", "resolves"]));
  });

  it("ends a running `onOpen`, and closes its connection", async () => {
    const { signal, abort, listeners } = stopper();
    const calls: Promise<unknown>[] = [];
    const onOpen = async (remote: any): Promise<void> => {
      calls.push(rejection(remote.request("never")));
      await new Promise(() => {});
    };
    const connecting = rejection(connectPage({ signal, onOpen }));
    await pass(1000);
    expect(calls).toHaveLength(1);
    abort();
    await pass(0);
    expect(await connecting).toBe(REASON);
    expect(await calls[0]).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    expect(served.map(({ state }) => state)).toEqual(["closed"]);
    expect(listeners()).toBe(0);
    await expectNothingLeft();
  });

  it("has no effect once it has resolved, and has no listener after it has settled", async () => {
    const { signal, abort, listeners } = stopper();
    const peer = await connectPage({ signal, onOpen: () => {} });
    expect(listeners()).toBe(0);
    await pass(10);
    abort();
    network.cut();
    await pass(1000);
    expect(peer.state).toBe("open");
    const other = stopper();
    network.script = refuse;
    expect(await rejection(connectPage({ signal: other.signal }))).toMatchObject({ code: "CONNECT_FAILED" });
    const failing = { signal: other.signal, onOpen: () => Promise.reject(REASON) };
    network.script = undefined;
    expect(await rejection(connectPage(failing))).toBe(REASON);
    expect(other.listeners()).toBe(0);
    await pass(1);
    // That of the peer.
    expect(network.openCount).toBe(1);
  });
});

const { URL: StandardURL } = globalThis;

/** The URL of React Native: it has no setters, and most getters throw. */
class ReadonlyURL {
  readonly #href: string;
  constructor(url: string, base?: string) {
    this.#href = new StandardURL(url, base).href;
  }
  get href(): string {
    return this.#href;
  }
  toString(): string {
    return this.#href;
  }
}
for (const name of ["protocol", "host", "hostname", "port", "pathname", "search", "searchParams", "hash", "origin"])
  Object.defineProperty(ReadonlyURL.prototype, name, {
    get: () => {
      throw new Error(`URL.${name} is not implemented`);
    },
  });

describe("a client in a runtime without `TextDecoder`, and whose `URL` has only `href`", () => {
  let connect: (url: unknown, options?: object) => Promise<any>;
  beforeEach(async () => {
    vi.stubGlobal("TextDecoder", undefined);
    vi.stubGlobal("URL", ReadonlyURL);
    vi.resetModules();
    ({ connect } = (await import("../../src/index.js")) as any);
  });

  it.each([
    ["ws://server.test/rpc", undefined, "ws://server.test/rpc"],
    ["http://server.test/rpc#part", undefined, "ws://server.test/rpc"],
    ["https://server.test/", undefined, "wss://server.test/"],
    ["/rpc?room=a%20b", "https://server.test/page?x=1", "wss://server.test/rpc?room=a%20b"],
    [new StandardURL("http://server.test/rpc"), undefined, "ws://server.test/rpc"],
  ])("connects to %s", async (url, page, address) => {
    vi.stubGlobal("location", page && { href: page });
    network.script = plainEcho;
    const peer = await connect(url);
    await pass(1);
    expect(network.last.url).toBe(address);
    expect(await Promise.all([peer.request("echo", [1]), pass(1)])).toMatchObject([[1], undefined]);
    await peer.close(3000, "ü".repeat(100));
  });

  it.each([
    ["ws://server.test/rpc", "ws://server.test/rpc?node=n7"],
    ["ws://server.test/rpc?signed=a+b%20c", "ws://server.test/rpc?signed=a+b%20c&node=n7"],
  ])("resumes a session with its route: %s", async (url, resumed) => {
    network.script = says(helloWith({ route: "n7" }));
    const peer = await connect(url);
    await pass(1);
    network.cut();
    await pass(1);
    expect(network.last.url).toBe(resumed);
    await peer.close();
    await pass(0);
  });

  it("shows no secret of its URL in an error", async () => {
    network.script = refuse;
    const failed = rejection(connect("ws://user:s3cret@server.test/rpc?token=s3cret"));
    await pass(0);
    expect(await failed).toMatchObject({ name: "ConnectError", url: "ws://server.test/rpc" });
  });
});

describe("a function `url` that returns no URL", () => {
  it.each([
    [undefined, "`undefined`"],
    [null, "`null`"],
    [7, "`7` (number)"],
    [{}, "an object"],
    ["", "`not a URL` (string)"],
    ["ftp://s3cret", "`ftp:` (string)"],
  ])("fails the attempt, and shows what it returned: %j", async (url, shown) => {
    // A page has a base, on which `new URL(undefined, base)` is the path "undefined".
    if (typeof url !== "string") vi.stubGlobal("location", { href: "https://server.test/page" });
    const { connect } = await import("../../src/index.js");
    const failed = await rejection(connect((() => url) as () => string));
    expect(failed).toMatchObject({
      name: "ConnectError",
      cause: { message: `Expected \`url\` to be a ws, wss, http or https URL, got ${shown}` },
    });
    expect(network.attempts).toEqual([]);
  });
});
