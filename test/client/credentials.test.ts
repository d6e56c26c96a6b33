import type { IncomingMessage } from "node:http";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { contract, renewal, type AnyPeer, type Attempt, type ConnectError } from "../../src/index.js";
import { testServer, type TestServer } from "../../src/testing/index.js";
import { AUTH_HELLO, AUTHENTICATED } from "../../src/session/frames.js";
import { gate, Outcomes, pass, raising, rejection, turn, useVirtualClock } from "../support/time.js";
import { connectPage, HELLO, live, network, openPage, plainEcho, refuse, says, URL, useNetwork } from "./attempts.js";
import { confirmed, record, type Connect } from "./clients.js";

useVirtualClock();
useNetwork();

/** Lets the 50 ms of a call pass. Returns what it rejects with. */
async function afterTimeout(call: Promise<unknown>): Promise<any> {
  const [error] = await Promise.all([rejection(call), pass(50)]);
  return error;
}

interface User {
  user: string;
  n?: number;
}

type Users = TestServer<any, any, any>;

let asked: number;
beforeEach(() => void (asked = 0));

/** Takes `{ user, n }` as `auth`, and refuses the user "eve". Serves the `auth` of a peer. */
function serveUsers(options: object = {}): Users {
  return testServer<any, any, any>({
    heartbeat: false,
    authenticate: (_request: IncomingMessage, auth: unknown) => {
      asked++;
      return (auth as User | undefined)?.user === "eve" ? null : auth;
    },
    principal: ({ user }: User) => user,
    methods: { auth: (_params: unknown, { peer }: { peer: AnyPeer }) => peer.auth },
    ...options,
  });
}

/** Returns a function that records its attempts, and returns `values` one after the other, the last one again and again. */
function supplied<T>(...values: T[]): { source: (attempt: Attempt) => Promise<T>; attempts: Attempt[] } {
  const attempts: Attempt[] = [];
  const source = async (attempt: Attempt): Promise<T> => {
    attempts.push(attempt);
    return values[Math.min(attempts.length, values.length) - 1]!;
  };
  return { source, attempts };
}

const thrown = new Error("no token");
const thrower = raising(thrown);

describe("credentials of a client", () => {
  it("come from functions that get the number of the attempt, and why the one before ended", async () => {
    const { source, attempts } = supplied<unknown>("ws://first.test/", new globalThis.URL("ws://second.test/"));
    const connecting = connectPage({}, source);
    await pass(10);
    const peer = await connecting;
    expect(attempts).toEqual([{ number: 1, reason: undefined }]);
    network.script = refuse;
    network.cut();
    await pass(25_000);
    expect(attempts.length).toBeGreaterThanOrEqual(3);
    expect(attempts[1]).toEqual({ number: 1, reason: { code: 1006, reason: "" } });
    for (const [i, { number, reason }] of attempts.slice(2).entries()) {
      expect(number).toBe(i + 2);
      expect(reason).toMatchObject({ name: "ConnectError" });
    }
    network.script = undefined;
    await pass(25_000);
    expect(peer.state).toBe("open");
    // It was connected, so the count begins again.
    network.cut();
    await pass(1);
    expect(attempts.at(-1)).toMatchObject({ number: 1, reason: { code: 1006 } });
    const [first, ...others] = network.attempts.map(({ url }) => url);
    expect([first, ...new Set(others)]).toEqual(["ws://first.test/", "ws://second.test/"]);
  });

  it.each([
    ["url", thrower],
    ["headers", thrower],
    ["auth", thrower],
    ["auth", () => Promise.reject(thrown)],
  ])("fail the attempt if the function `%s` fails, with its error as the cause", async (name, source) => {
    await using server = serveUsers({ authenticate: undefined, principal: undefined });
    const [url, options] = name === "url" ? [source as never, {}] : [URL, { [name]: source }];
    const error = await rejection(server.connect(url, options));
    expect(error).toMatchObject({ name: "ConnectError", status: undefined, cause: thrown });
    expect(error.message).toContain("`url`, `headers` or `auth` failed");
    expect(server.server.stats().opened).toBe(0);
  });

  it.each([
    ["url", undefined, "got `undefined`"],
    ["url", null, "got `null`"],
    ["url", 7, "got `7` (number)"],
    ["url", {}, "got an object"],
    ["url", "", "got `not a URL` (string)"],
    ["url", "ftp://s3cret", "got `ftp:` (string)"],
    ["auth", 1n, ""],
    ["auth", { roles: new Set(["admin"]) }, ""],
  ])("fail the attempt if the function `%s` returns %s", async (name, value, shown) => {
    // A page has a base, on which `new URL(undefined, base)` is the path "undefined".
    if (typeof value !== "string") vi.stubGlobal("location", { href: "https://server.test/page" });
    const error = await rejection(name === "url" ? connectPage({}, () => value) : connectPage({ auth: () => value }));
    expect(error).toMatchObject({ name: "ConnectError", cause: { name: "TypeError" } });
    expect(error.cause.message.endsWith(shown)).toBe(true);
    expect(network.attempts).toEqual([]);
  });

  it("are reported as `error` if a function fails when the client reconnects, which then tries again", async () => {
    await using server = serveUsers();
    const auth = vi.fn<() => User>(() => ({ user: "ada" }));
    await using peer = await confirmed(server.connect as Connect, URL, { auth });
    const errors: { cause?: unknown }[] = [];
    peer.on("error", (error) => errors.push(error as Error));
    auth.mockImplementationOnce(thrower).mockImplementationOnce(thrower);
    server.network.cut();
    await pass(1500);
    expect(errors).toMatchObject([{ cause: thrown }, { cause: thrown }]);
    expect(await peer.request("auth")).toEqual({ user: "ada" });
  });

  describe("auth", () => {
    it.each([
      ["a value", { user: "ada", n: 1 }],
      ["a function", () => ({ user: "ada", n: 1 })],
      ["a function that returns undefined", () => undefined],
    ])("can be %s, and is neither in the URL nor in a header", async (what, auth) => {
      const requests: IncomingMessage[] = [];
      await using server = serveUsers({
        authenticate: (request: IncomingMessage, given: unknown) => {
          requests.push(request);
          return { given };
        },
        principal: undefined,
      });
      await using peer = await server.connect(URL, { auth, reconnect: false });
      expect(await peer.request("auth")).toEqual({ given: what.endsWith("undefined") ? null : { user: "ada", n: 1 } });
      expect(requests).toHaveLength(1);
      const { url, rawHeaders } = requests[0]!;
      expect(`${url} ${rawHeaders.join(" ")}`).not.toContain("ada");
      expect(rawHeaders).toContain("reciproc.v1,reciproc.auth");
    });

    it('is not sent to a server that does not ask for it, or by `link: "plain"`', async () => {
      const authentications: unknown[][] = [];
      await using server = serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => authentications.push([auth]),
        principal: undefined,
      });
      await using peer = await server.connect(URL, { auth: "token", link: "plain" });
      expect(await peer.request("auth")).toBe(1);
      expect(authentications).toEqual([[undefined]]);
      network.script = plainEcho;
      const other = await connectPage({ auth: "token" });
      expect(await other.request("echo", [1])).toEqual([1]);
      expect(network.attempts.map(({ protocols }) => protocols)).toEqual([["reciproc.v1", "reciproc.auth"], []]);
      // A server of reciproc.v1 that does not ask for it.
      network.script = says(HELLO);
      const { peer: packed } = await live({ auth: "token" });
      void rejection(packed.request("echo", [1]));
      await pass(10);
      expect(network.last.protocols).toEqual(["reciproc.v1", "reciproc.auth"]);
      expect(network.last.sent.length).toBeGreaterThan(0);
      expect(network.attempts.flatMap(({ sent }) => sent).join("")).not.toMatch(/token|auth/);
    });
  });

  describe("a 401", () => {
    it("is final if nothing is a function", async () => {
      await using server = serveUsers({ authenticate: () => (asked++, null), principal: undefined });
      for (const options of [{}, { auth: "token" }, { auth: "token", reconnect: { initial: true } }]) {
        asked = 0;
        expect(await rejection(server.connect(URL, options))).toMatchObject({ status: 401 });
        expect(asked).toBe(1);
      }
    });

    it.each(["url", "headers", "auth"])("makes a client try again, once, if `%s` is a function", async (name) => {
      let refusals = 0;
      await using server = serveUsers({
        authenticate: () => (++asked <= refusals ? null : { user: "ada" }),
      });
      const { source, attempts } = supplied<any>(name === "url" ? URL : {});
      const url = name === "url" ? source : URL;
      const options = name === "url" ? {} : { [name]: source };
      refusals = 1;
      const connecting = server.connect(url, options);
      await pass(10);
      await using peer = await connecting;
      expect(await peer.request("auth")).toEqual({ user: "ada" });
      expect(attempts).toMatchObject([{ number: 1 }, { number: 2, reason: { name: "ConnectError" } }]);
      refusals = 99;
      attempts.length = 0;
      const refused = rejection(server.connect(url, options));
      await pass(10);
      expect(await refused).toMatchObject({ name: "ConnectError" });
      expect(attempts).toHaveLength(2);
    });

    it("lets a session resume with the second credentials, and closes for good after the second refusal", async () => {
      await using server = serveUsers();
      const { source, attempts } = supplied<User>(
        { user: "ada" },
        { user: "eve" },
        { user: "ada", n: 2 },
        { user: "eve" },
      );
      const peer = await confirmed(server.connect as Connect, URL, { auth: source });
      const emitted = record(peer);
      const tries: unknown[] = [];
      peer.on("attempt", ({ number, delayMs, error }) =>
        tries.push([number, delayMs, (error as Partial<ConnectError>).status]),
      );
      server.network.cut();
      await pass(10);
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
      expect(attempts[2]).toMatchObject({ number: 2, reason: { status: 401 } });
      expect(tries).toEqual([
        [1, 0, undefined],
        [2, 0, 401],
      ]);
      server.network.cut();
      await pass(1000);
      expect(await peer.closed).toMatchObject({ code: 4401, error: { status: 401 } });
      expect(attempts).toHaveLength(5);
      expect(emitted).toEqual(["suspend", "resume", "suspend", "close 4401"]);
    });
  });

  describe("reauthenticate", () => {
    it.each([{}, { session: false }])("sends fresh `auth`, and resolves when it is accepted (%j)", async (options) => {
      await using server = serveUsers(options);
      const { source, attempts } = supplied({ user: "ada", n: 1 }, { user: "ada", n: 2 });
      await using peer = await server.connect(URL, { auth: source });
      expect(await peer.reauthenticate()).toBe(undefined);
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
      expect(attempts).toEqual([
        { number: 1, reason: undefined },
        { number: 0, reason: undefined },
      ]);
    });

    it("is not checked as the method of that name in a contract", async () => {
      const methods = { reauthenticate: () => "by a method" };
      await using server = serveUsers({ methods });
      const remote = contract({ reauthenticate: { result: z.string() } });
      await using peer = await server.connect(URL, { auth: { user: "ada" }, remote, check: "both" });
      expect(await peer.request("reauthenticate")).toBe("by a method");
      await expect(peer.reauthenticate()).resolves.toBeUndefined();
    });

    it("shares one exchange between the calls of one time", async () => {
      await using server = serveUsers();
      const { source, attempts } = supplied({ user: "ada" });
      await using peer = await server.connect(URL, { auth: source });
      await Promise.all([peer.reauthenticate(), peer.reauthenticate(), peer.reauthenticate()]);
      expect([asked, attempts.length]).toEqual([2, 2]);
      await peer.reauthenticate();
      expect([asked, attempts.length]).toEqual([3, 3]);
    });

    it("rejects with what the function threw, and leaves the connection open", async () => {
      await using server = serveUsers();
      const auth = vi.fn<() => User>(() => ({ user: "ada" }));
      await using peer = await server.connect(URL, { auth });
      auth.mockImplementationOnce(thrower);
      expect(await rejection(peer.reauthenticate())).toBe(thrown);
      await peer.reauthenticate();
      expect(peer.state).toBe("open");
    });

    it("rejects after timeoutMs, and when its signal aborts", async () => {
      const open401 = gate<unknown>();
      await using server = serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => (asked++ === 0 ? auth : open401.promise),
      });
      await using peer = await server.connect(URL, { auth: { user: "ada" } });
      expect(await afterTimeout(peer.reauthenticate({ timeoutMs: 50 }))).toMatchObject({
        code: "TIMEOUT",
        outcome: "unknown",
        method: "$/reauthenticate",
      });
      const signal = AbortSignal.abort(new Error("enough"));
      expect(await rejection(peer.reauthenticate({ signal }))).toEqual(new Error("enough"));
      expect(await rejection(peer.reauthenticate({ timeoutMs: -1 }))).toBeInstanceOf(TypeError);
      const shared = peer.reauthenticate();
      open401.resolve({ user: "ada", n: 7 });
      await shared;
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 7 });
      expect(asked).toBe(2);
    });

    it("works again after a function that settled too late, or never: each exchange calls it anew", async () => {
      await using server = serveUsers();
      const late = [gate<User>(), gate<User>()];
      let renewals = 0;
      const auth = ({ number }: Attempt): User | Promise<User> =>
        number > 0 ? { user: "ada" } : (late[renewals++]?.promise ?? { user: "ada", n: renewals });
      await using peer = await server.connect(URL, { auth });
      for (let i = 0; i < 2; i++) {
        const error = await afterTimeout(peer.reauthenticate({ timeoutMs: 50 }));
        expect(error).toMatchObject({ code: "TIMEOUT", outcome: "not-sent" });
        if (i === 0) late[0]!.resolve({ user: "ada", n: 98 });
        await turn();
        // A frame with `auth` would arrive before this call.
        expect(await peer.request("auth")).toEqual({ user: "ada" });
      }
      await peer.reauthenticate();
      late[1]!.resolve({ user: "ada", n: 99 });
      await turn();
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 3 });
      expect(asked).toBe(2);
    });

    it.each(["resolves", "rejects"])("ignores a function of an earlier socket that %s", async (how) => {
      const [first, called, verdict, arrived] = [gate<User>(), gate(), gate<unknown>(), gate()];
      let renewals = 0;
      await using server = serveUsers({
        authenticate: (_request: IncomingMessage, auth: User) =>
          auth.n === 2 ? (arrived.resolve(), verdict.promise) : auth,
      });
      const auth = ({ number }: Attempt): User | Promise<User> => {
        if (number > 0) return { user: "ada", n: 1 };
        if (++renewals > 1) return { user: "ada", n: 2 };
        called.resolve();
        return first.promise;
      };
      await using peer = await confirmed(server.connect as Connect, URL, { auth });
      const renewed = peer.reauthenticate();
      await called.promise;
      server.network.cut();
      await pass(1);
      await arrived.promise;
      if (how === "resolves") first.resolve({ user: "ada", n: 3 });
      else first.reject(new Error("no token"));
      await turn();
      // A frame that the first result caused would arrive before the answer to this call.
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 1 });
      verdict.resolve({ user: "ada", n: 2 });
      await renewed;
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
    });

    it.each<[string, string[], object]>([
      [
        "that has lost its session",
        ['{"jsonrpc":"2.0","method":"hi"}'],
        { code: "CONNECTION_LOST", outcome: "not-sent" },
      ],
      ["that resumes its session", [HELLO, '{"resumed":{"token":"next","received":1}}'], { name: "TypeError" }],
    ])("rejects for a client %s at a server that does not ask, and sends nothing", async (_what, frames, error) => {
      network.script = says(AUTH_HELLO, HELLO);
      const { peer } = await live({ auth: { token: "s3cret" }, use: [renewal] });
      peer.notify("hello");
      await pass(10);
      network.script = says(...frames);
      network.cut();
      const renewed = rejection(peer.reauthenticate());
      await pass(500);
      expect(peer.state).toBe("open");
      expect(await renewed).toMatchObject(error);
      expect(network.last.sent.join("")).not.toContain("s3cret");
    });

    it("rejects when the peer closes, and at once on a closed peer", async () => {
      const late = gate<unknown>();
      await using server = serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => (asked++ === 0 ? auth : late.promise),
      });
      const peer = await server.connect(URL, { auth: { user: "ada" } });
      const renewed = rejection(peer.reauthenticate());
      await pass(1);
      expect(asked).toBe(2);
      await peer.close();
      expect(await renewed).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
      expect(await rejection(peer.reauthenticate())).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent" });
      late.resolve(null);
    });

    it.each<[string, object, object]>([
      ["the client has no `auth`", {}, { authenticate: () => ({ user: "ada" }) }],
      ["the server has no authenticate", { auth: "x" }, { authenticate: undefined, principal: undefined }],
      ["the server is plain", { auth: "x" }, { authenticate: () => ({ user: "ada" }), link: "plain" }],
      ["the client is plain", { auth: "x", link: "plain" }, { authenticate: () => ({ user: "ada" }) }],
    ])("rejects with a TypeError if %s", async (_what, options, serverOptions) => {
      await using server = serveUsers(serverOptions);
      await using peer = await server.connect(URL, options);
      const error = await rejection(peer.reauthenticate());
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toContain("`auth`");
      expect(peer.state).toBe("open");
      const [one] = [...server.server.peers];
      expect(await rejection(one!.reauthenticate())).toBeInstanceOf(TypeError);
    });
  });
});

it("reauthenticates a peer that is not open yet when it is, or rejects as not sent if it closes before", async () => {
  await using server = serveUsers();
  const { source } = supplied({ user: "ada", n: 1 }, { user: "ada", n: 2 });
  await using peer = server.open(URL, { auth: source });
  await peer.reauthenticate();
  expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
  await using other = server.open(URL, { auth: source });
  const error = rejection(other.reauthenticate());
  await other.close();
  expect(await error).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent" });
});

describe("with a clock", () => {
  it("bounds the functions by openTimeoutMs and the signal, and opens nothing afterwards", async () => {
    const controller = new AbortController();
    const late = gate<string>();
    const outcomes = new Outcomes();
    outcomes.watch("auth", connectPage({ auth: () => late.promise, openTimeoutMs: 1_000 }));
    outcomes.watch(
      "url",
      connectPage({ openTimeoutMs: 1_000 }, () => late.promise),
    );
    outcomes.watch("signal", connectPage({ auth: () => late.promise, signal: controller.signal }));
    await pass(999);
    expect(outcomes.list).toEqual([]);
    await pass(1);
    expect(outcomes.list).toMatchObject([
      { reason: { name: "ConnectError", url: "ws://server.test/" } },
      { reason: { name: "ConnectError", url: "" } },
    ]);
    controller.abort(thrown);
    await pass(0);
    expect(outcomes.list.at(-1)).toEqual({ name: "signal", reason: thrown });
    late.resolve("ws://server.test/");
    await pass(10);
    expect(network.attempts).toEqual([]);
  });

  it("has no delay before its second attempt after `reconnect()` during the first", async () => {
    network.script = (webSocket) => void setTimeout(() => webSocket.end(), 100);
    const peer = openPage({ link: "plain", reconnect: { initial: true } });
    const delays: number[] = [];
    peer.on("attempt", ({ delayMs }) => delays.push(delayMs));
    await pass(50);
    expect(peer.reconnect()).toBe(true);
    await pass(100);
    expect(delays).toEqual([0]);
    await peer.close();
  });

  it("waits for the first frame until openTimeoutMs, sends `auth` first, and nothing else until the server's next hello", async () => {
    network.script = (webSocket) => {
      webSocket.accept("reciproc.v1");
      setTimeout(() => webSocket.say(AUTH_HELLO), 5_000);
      setTimeout(() => webSocket.say(HELLO, AUTHENTICATED), 9_100);
    };
    const connecting = connectPage({ auth: "token" });
    await pass(4_990);
    expect(network.last.sent).toEqual([]);
    await pass(4_000);
    expect(network.last.sent).toEqual(['{"hello":{"auth":"token"}}']);
    await pass(200);
    const peer = await connecting;
    // It ignores a reply to a later `auth`, which it did not send.
    expect(peer.state).toBe("open");
    void rejection(peer.request("echo", [1]));
    await pass(1);
    expect(network.last.sent[1]).toMatch(/^\{"hello":\{"session":true,"limits":\{[^{]*\}\}\}$/);
    expect(network.last.sent.slice(1).join("")).not.toContain("token");
    network.script = says();
    const refused = rejection(connectPage({ auth: "token" }));
    await pass(10_010);
    expect(await refused).toMatchObject({ name: "ConnectError" });
    expect(network.last.sent).toEqual([]);
  });
});
