/** Credentials that change: functions for `url`, `headers` and `auth`, and `reauthenticate`. */
import type { IncomingMessage } from "node:http";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { contract, pair, type AnyPeer, type Attempt, type ConnectError } from "../../src/index.js";
import { testServer, type TestServer } from "../../src/testing/index.js";
import { AUTH_HELLO, AUTHENTICATED } from "../../src/session/frames.js";
import { pass, useVirtualClock } from "../support/time.js";
import { gate, Outcomes, rejection, turn } from "../support/turns.js";
import { connectPage, HELLO, network, openPage, plainEcho, says, URL, useNetwork } from "./attempts.js";
import { confirmed, event, record, type Connect } from "./clients.js";

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

/** Takes `{ user, n }` as `auth`, and refuses the user "eve". Serves the `auth` of a peer. */
function serveUsers(options: object = {}): Users {
  return testServer<any, any, any>({
    heartbeat: false,
    authenticate: (_request: IncomingMessage, auth: unknown) =>
      (auth as User | undefined)?.user === "eve" ? null : auth,
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

describe("credentials of a client", () => {
  it("come from functions that get the number of the attempt, and why the one before ended", async () => {
    await using server = serveUsers({ authenticate: undefined, principal: undefined });
    const { source, attempts } = supplied<unknown>(URL, new globalThis.URL(URL));
    await using peer = await confirmed(server.connect as Connect, source as never);
    expect(attempts).toEqual([{ number: 1, reason: undefined }]);
    server.network.stop();
    server.network.cut();
    await pass(25_000);
    expect(attempts.length).toBeGreaterThanOrEqual(3);
    const back = event(peer, "resume");
    server.network.start();
    await pass(25_000);
    await back;
    expect(attempts[1]).toEqual({ number: 1, reason: { code: 1006, reason: "" } });
    for (const [i, { number, reason }] of attempts.slice(2).entries()) {
      expect(number).toBe(i + 2);
      expect(reason).toMatchObject({ name: "ConnectError" });
    }
    // It was connected, so the count begins again.
    const { length } = attempts;
    const again = event(peer, "resume");
    server.network.cut();
    await pass(1);
    await again;
    expect(attempts[length]).toMatchObject({ number: 1, reason: { code: 1006 } });
  });

  it("can lead to another server", async () => {
    const { source } = supplied("ws://first.test/", "ws://second.test/");
    const connecting = connectPage({ reconnect: true }, source);
    await pass(1);
    await connecting;
    network.cut();
    await pass(1);
    expect(network.attempts.map(({ url }) => url)).toEqual(["ws://first.test/", "ws://second.test/"]);
  });

  it.each<[string, () => unknown, object]>([
    [
      "throws",
      () => {
        throw new Error("no token");
      },
      new Error("no token"),
    ],
    ["rejects", () => Promise.reject(new Error("no token")), new Error("no token")],
  ])("fail the attempt if a function %s: connect rejects with the error as cause", async (_what, source, cause) => {
    await using server = serveUsers({ authenticate: undefined, principal: undefined });
    for (const error of await Promise.all([
      rejection(server.connect(source as never)),
      rejection(server.connect(URL, { auth: source })),
      rejection(server.connect(URL, { headers: source as never })),
    ])) {
      expect(error).toMatchObject({ name: "ConnectError", status: undefined, cause });
      expect(error.message).toContain("`url`, `headers` or `auth` failed");
    }
    expect(server.server.stats().opened).toBe(0);
  });

  it.each([
    ["url", () => "mailto:ada"],
    ["auth", () => 1n],
    ["auth", () => ({ roles: new Set(["admin"]) })],
  ])("fail the attempt if the function `%s` returns a value that cannot be used", async (name, source) => {
    await using server = serveUsers({ authenticate: undefined, principal: undefined });
    const error = await rejection(
      name === "url" ? server.connect(source as never) : server.connect(URL, { auth: source }),
    );
    expect(error).toMatchObject({ name: "ConnectError", cause: { name: "TypeError" } });
  });

  it("are reported as `error` if a function fails when the client reconnects, which then tries again", async () => {
    await using server = serveUsers();
    let isFailing = false;
    let failures = 0;
    const auth = (): User => {
      if (isFailing && ++failures < 3) throw new Error("no token");
      return { user: "ada" };
    };
    await using peer = await confirmed(server.connect as Connect, URL, { auth });
    const errors: { cause?: unknown }[] = [];
    peer.on("error", (error) => errors.push(error as Error));
    isFailing = true;
    const back = event(peer, "resume");
    server.network.cut();
    await pass(1);
    await pass(1000);
    await back;
    expect(errors).toMatchObject([{ cause: new Error("no token") }, { cause: new Error("no token") }]);
    expect(await peer.request("auth")).toEqual({ user: "ada" });
  });

  describe("auth", () => {
    it.each([
      ["a value", { user: "ada", n: 1 }],
      ["a function", () => ({ user: "ada", n: 1 })],
      ["an asynchronous function", async () => ({ user: "ada", n: 1 })],
    ])("can be %s, and is neither in the URL nor in a header", async (_what, auth) => {
      const requests: IncomingMessage[] = [];
      await using server = serveUsers({
        authenticate: (request: IncomingMessage, given: unknown) => (requests.push(request), given),
      });
      await using peer = await server.connect(URL, { auth });
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 1 });
      expect(requests).toHaveLength(1);
      const { url, rawHeaders } = requests[0]!;
      expect(`${url} ${rawHeaders.join(" ")}`).not.toContain("ada");
      expect(rawHeaders).toContain("reciproc.v1,reciproc.auth");
    });

    it("is null for the server if the function returns undefined", async () => {
      await using server = serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => ({ auth }),
        principal: undefined,
      });
      await using peer = await server.connect(URL, { auth: () => undefined });
      expect(await peer.request("auth")).toEqual({ auth: null });
    });

    it("is new for each attempt, so that a session resumes with the result of a fresh one", async () => {
      await using server = serveUsers();
      const refreshed: unknown[] = [];
      server.server.on("refresh", ({ auth }, old) => refreshed.push([auth, old]));
      const { source } = supplied({ user: "ada", n: 1 }, { user: "ada", n: 2 });
      await using peer = await confirmed(server.connect as Connect, URL, { auth: source });
      const emitted = record(peer);
      const back = event(peer, "resume");
      server.network.cut();
      await pass(1);
      await back;
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
      expect(refreshed).toEqual([
        [
          { user: "ada", n: 2 },
          { user: "ada", n: 1 },
        ],
      ]);
      expect(emitted).toEqual(["suspend", "resume"]);
    });

    it("loses the session if its principal is another one", async () => {
      await using server = serveUsers();
      const { source } = supplied({ user: "ada" }, { user: "bob" });
      await using peer = await confirmed(server.connect as Connect, URL, { auth: source });
      const emitted = record(peer);
      const back = event(peer, "resume");
      server.network.cut();
      await pass(1);
      await back;
      expect(await peer.request("auth")).toEqual({ user: "bob" });
      expect(emitted).toEqual(["suspend", "lost", "resume"]);
    });

    it.each([
      ["without authenticate", { authenticate: undefined, principal: undefined }],
      ["without authenticate and sessions", { authenticate: undefined, principal: undefined, session: false }],
      ["that is plain", { authenticate: () => "by request", principal: undefined, link: "plain" }],
    ])("is not needed by a server %s", async (_what, options) => {
      await using server = serveUsers(options);
      await using peer = await server.connect(URL, { auth: "token" });
      expect(await peer.request("auth")).toEqual(options.authenticate === undefined ? null : "by request");
    });

    it('is not sent to a server that is not reciproc, or by `link: "plain"`', async () => {
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
      expect(network.last.sent.join("")).not.toContain("token");
    });

    it("works with sessions off at the client, and off at the server", async () => {
      await using server = serveUsers();
      await using sessionless = serveUsers({ session: false });
      for (const [at, options] of [
        [server, { reconnect: false }],
        [sessionless, {}],
      ] as const) {
        await using peer = await at.connect(URL, { auth: { user: "ada" }, ...options });
        expect(await peer.request("auth")).toEqual({ user: "ada" });
      }
    });
  });

  describe("a 401", () => {
    it("is final if nothing is a function", async () => {
      let asked = 0;
      await using server = serveUsers({ authenticate: () => (asked++, null), principal: undefined });
      for (const options of [{}, { auth: "token" }, { auth: "token", reconnect: { initial: true } }]) {
        asked = 0;
        expect(await rejection(server.connect(URL, options))).toMatchObject({ status: 401 });
        expect(asked).toBe(1);
      }
    });

    it.each(["url", "headers", "auth"])(
      "makes a client try once more, and no more, if `%s` is a function",
      async (name) => {
        let refusals = 0;
        let asked = 0;
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
      },
    );

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
      const back = event(peer, "resume");
      server.network.cut();
      await pass(1);
      await pass(10);
      await back;
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
      expect(attempts[2]).toMatchObject({ number: 2, reason: { status: 401 } });
      expect(tries).toEqual([
        [1, 0, undefined],
        [2, 0, 401],
      ]);
      server.network.cut();
      await pass(1);
      await pass(1000);
      expect(await peer.closed).toMatchObject({ code: 4401, error: { status: 401 } });
      expect(attempts).toHaveLength(5);
      expect(emitted).toEqual(["suspend", "resume", "suspend", "close 4401"]);
    });
  });

  describe("reauthenticate", () => {
    it("sends a fresh `auth`, and resolves when the server has refreshed its result", async () => {
      await using server = serveUsers();
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

    it("can be called before another message, and without a session", async () => {
      await using server = serveUsers({ session: false });
      await using peer = await server.connect(URL, { auth: { user: "ada" } });
      await peer.reauthenticate();
      expect(await peer.request("auth")).toEqual({ user: "ada" });
    });

    it("shares one exchange between the calls of one time", async () => {
      let asked = 0;
      await using server = serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => (asked++, auth),
      });
      const { source, attempts } = supplied({ user: "ada" });
      await using peer = await server.connect(URL, { auth: source });
      await Promise.all([peer.reauthenticate(), peer.reauthenticate(), peer.reauthenticate()]);
      expect([asked, attempts.length]).toEqual([2, 2]);
      await peer.reauthenticate();
      expect([asked, attempts.length]).toEqual([3, 3]);
    });

    it.each(["authenticate refuses it", "the principal would change"])(
      "ends with the connection if %s",
      async (why) => {
        await using server = serveUsers();
        const { source } = supplied({ user: "ada" }, { user: why.startsWith("auth") ? "eve" : "bob" });
        const peer = await server.connect(URL, { auth: source });
        const error = await rejection(peer.reauthenticate());
        expect(error).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown", method: "$/reauthenticate" });
        expect(await peer.closed).toMatchObject({ code: 4401 });
        expect(server.server.peers.size).toBe(0);
      },
    );

    it("rejects with what the function threw, and leaves the connection open", async () => {
      await using server = serveUsers();
      let isFailing = false;
      const auth = (): User => {
        if (isFailing) throw new Error("no token");
        return { user: "ada" };
      };
      await using peer = await server.connect(URL, { auth });
      isFailing = true;
      expect(await rejection(peer.reauthenticate())).toEqual(new Error("no token"));
      isFailing = false;
      await peer.reauthenticate();
      expect(peer.state).toBe("open");
    });

    it("rejects after timeoutMs, and when its signal aborts", async () => {
      const open401 = gate<unknown>();
      let asked = 0;
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

    it("works again after a function that never settles: each exchange calls it anew", async () => {
      await using server = serveUsers();
      const late = gate<User>();
      let renewals = 0;
      const auth = ({ number }: Attempt): User | Promise<User> => {
        if (number > 0) return { user: "ada" };
        return ++renewals === 1 ? late.promise : { user: "ada", n: renewals };
      };
      await using peer = await server.connect(URL, { auth });
      expect(await afterTimeout(peer.reauthenticate({ timeoutMs: 50 }))).toMatchObject({
        code: "TIMEOUT",
        outcome: "not-sent",
      });
      await peer.reauthenticate();
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
      late.resolve({ user: "ada", n: 99 });
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
    });

    it("sends nothing for a call that has timed out before the function returned", async () => {
      let asked = 0;
      await using server = serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => (asked++, auth),
      });
      const late = gate<User>();
      await using peer = await server.connect(URL, {
        auth: ({ number }: Attempt) => (number > 0 ? { user: "ada" } : late.promise),
      });
      expect(await afterTimeout(peer.reauthenticate({ timeoutMs: 50 }))).toMatchObject({ outcome: "not-sent" });
      late.resolve({ user: "ada", n: 2 });
      await turn();
      // A frame with `auth` would arrive before this call.
      expect(await peer.request("auth")).toEqual({ user: "ada" });
      expect(asked).toBe(1);
    });

    it("is not rejected by a function that was called for an earlier socket", async () => {
      const [called, answered] = [gate(), gate<User>()];
      let failOld!: (error: Error) => void;
      let renewals = 0;
      await using server = serveUsers();
      const auth = ({ number }: Attempt): User | Promise<User> => {
        if (number > 0) return { user: "ada", n: 1 };
        if (++renewals === 1) return new Promise<User>((_resolve, reject) => (failOld = reject));
        called.resolve();
        return answered.promise;
      };
      await using peer = await confirmed(server.connect as Connect, URL, { auth });
      const outcomes = new Outcomes().watch("renewed", peer.reauthenticate());
      expect(renewals).toBe(1);
      server.network.cut();
      await pass(1);
      await called.promise;
      failOld(new Error("no token"));
      await turn();
      expect(outcomes.list).toEqual([]);
      answered.resolve({ user: "ada", n: 2 });
      await pass(1);
      expect(outcomes.list).toEqual([{ name: "renewed", value: undefined }]);
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
    });

    it("waits while the connection is suspended, and sends it on the next socket", async () => {
      await using server = serveUsers();
      const { source } = supplied({ user: "ada", n: 1 }, { user: "ada", n: 2 }, { user: "ada", n: 3 });
      await using peer = await confirmed(server.connect as Connect, URL, { auth: source });
      const down = event(peer, "suspend");
      server.network.stop();
      server.network.cut();
      await down;
      const outcomes = new Outcomes().watch("renewed", peer.reauthenticate());
      await turn();
      expect(outcomes.list).toEqual([]);
      server.network.start();
      await pass(1);
      expect(outcomes.list).toEqual([{ name: "renewed", value: undefined }]);
    });

    it("is sent again if the socket is lost before the reply", async () => {
      const slow = gate<unknown>();
      const asked = gate();
      let isSlow = false;
      await using server = serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => {
          if (!isSlow) return auth;
          isSlow = false;
          asked.resolve();
          return slow.promise;
        },
      });
      await using peer = await confirmed(server.connect as Connect, URL, { auth: { user: "ada" } });
      isSlow = true;
      const renewed = peer.reauthenticate();
      await asked.promise;
      server.network.cut();
      await pass(1);
      await renewed;
      expect(peer.state).toBe("open");
      slow.resolve(null);
    });

    it("is sent once on a socket, though the function returns only after the loss of the socket before", async () => {
      const [first, called, verdict, asked] = [gate<User>(), gate(), gate<unknown>(), gate()];
      let renewals = 0;
      await using server = serveUsers({
        authenticate: (_request: IncomingMessage, auth: User) =>
          auth.n === 2 ? (asked.resolve(), verdict.promise) : auth,
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
      await asked.promise;
      first.resolve({ user: "ada", n: 3 });
      // A frame that the first result caused would arrive before the answer to this call.
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 1 });
      verdict.resolve({ user: "ada", n: 2 });
      await renewed;
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
    });

    it("rejects if the session is lost meanwhile, and sends nothing to the next server if that does not ask", async () => {
      network.script = says(AUTH_HELLO, HELLO);
      const peer = await connectPage({ auth: { token: "s3cret" } });
      await pass(10);
      network.script = says('{"jsonrpc":"2.0","method":"hi"}');
      network.cut();
      const renewed = rejection(peer.reauthenticate());
      await pass(10);
      expect(await renewed).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent" });
      expect(peer.state).toBe("open");
      expect(network.last.sent.join("")).not.toContain("s3cret");
    });

    it("rejects when the peer closes, and at once on a closed peer", async () => {
      const late = gate<unknown>();
      let asked = 0;
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

it("rejects reauthenticate of a peer in memory with a TypeError", async () => {
  const [a, b] = pair({}, {});
  expect(await rejection(a.reauthenticate())).toBeInstanceOf(TypeError);
  await Promise.all([a.close(), b.close()]);
});

describe("reauthenticate of a peer that is not open yet", () => {
  it("waits until it is open, and then sends a fresh `auth`", async () => {
    await using server = serveUsers();
    const { source } = supplied({ user: "ada", n: 1 }, { user: "ada", n: 2 });
    await using peer = server.open(URL, { auth: source });
    await peer.reauthenticate();
    expect(peer.state).toBe("open");
    expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
  });

  it("rejects with a TypeError when its server does not ask, and at once without `auth`", async () => {
    await using server = serveUsers({ authenticate: undefined, principal: undefined });
    await using peer = server.open(URL, { auth: "x" });
    expect((await rejection(peer.reauthenticate())).message).toContain("`auth`");
    await peer.opened;
    await using other = openPage({ reconnect: { initial: true } });
    expect(await rejection(other.reauthenticate())).toBeInstanceOf(TypeError);
  });

  it("rejects when the peer closes before: nothing was sent", async () => {
    const peer = openPage({ auth: "x", reconnect: { initial: true } });
    const error = rejection(peer.reauthenticate());
    await peer.close();
    expect(await error).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent" });
  });
});

describe("with a clock", () => {
  it("bounds the functions by openTimeoutMs, and opens nothing afterwards", async () => {
    const late = gate<string>();
    const outcomes = new Outcomes();
    outcomes.watch("auth", connectPage({ auth: () => late.promise, openTimeoutMs: 1_000 }));
    outcomes.watch(
      "url",
      connectPage({ openTimeoutMs: 1_000 }, () => late.promise),
    );
    await pass(999);
    expect(outcomes.list).toEqual([]);
    await pass(1);
    expect(outcomes.list).toMatchObject([
      { reason: { name: "ConnectError", url: "ws://server.test/" } },
      {
        reason: { name: "ConnectError", url: "", message: "could not connect to the server: not open within 1000 ms" },
      },
    ]);
    late.resolve("ws://server.test/");
    await pass(10);
    expect(network.attempts).toEqual([]);
  });

  it("ends the functions by the signal of connect", async () => {
    const controller = new AbortController();
    const outcomes = new Outcomes();
    outcomes.watch("auth", connectPage({ auth: () => new Promise(() => {}), signal: controller.signal }));
    await pass(10);
    controller.abort(new Error("enough"));
    await pass(0);
    expect(outcomes.list).toEqual([{ name: "auth", reason: new Error("enough") }]);
    expect(network.attempts).toEqual([]);
  });

  it("sends no `auth` to a server of reciproc.v1 that does not ask for it, in no frame", async () => {
    network.script = says(HELLO);
    const connecting = connectPage({ auth: "s3cret" });
    await pass(10);
    const peer = await connecting;
    void rejection(peer.request("echo", [1]));
    await pass(10);
    expect(network.last.protocols).toEqual(["reciproc.v1", "reciproc.auth"]);
    expect(network.last.sent.length).toBeGreaterThan(0);
    expect(network.last.sent.join("")).not.toContain("s3cret");
    expect(network.last.sent.join("")).not.toContain("auth");
  });

  it("sends `auth` first, and nothing else until the server's next hello", async () => {
    network.script = says(AUTH_HELLO);
    const outcomes = new Outcomes();
    const connecting = connectPage({ auth: { token: 1 } });
    outcomes.watch("connect", connecting);
    await pass(5_000);
    expect(network.last.sent).toEqual(['{"hello":{"auth":{"token":1}}}']);
    expect(outcomes.list).toEqual([]);
    network.scripted.say(HELLO);
    await pass(10);
    const peer = await connecting;
    void rejection(peer.request("echo", [1]));
    await pass(1);
    expect(network.last.sent[1]).toMatch(/^\{"hello":\{"session":true,"limits":\{[^{]*\}\}\}$/);
    expect(network.last.sent.slice(1).join("")).not.toContain("token");
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

  it("waits for the first frame of reciproc.v1 until openTimeoutMs, and sends nothing before", async () => {
    network.script = (webSocket) => {
      webSocket.accept("reciproc.v1");
      setTimeout(() => webSocket.say(AUTH_HELLO), 9_000);
      setTimeout(() => webSocket.say(HELLO), 9_100);
    };
    const connecting = connectPage({ auth: "token" });
    await pass(8_990);
    expect(network.last.sent).toEqual([]);
    await pass(20);
    expect(network.last.sent).toEqual(['{"hello":{"auth":"token"}}']);
    await pass(200);
    expect((await connecting).state).toBe("open");
    network.script = says();
    const refused = rejection(connectPage({ auth: "token" }));
    await pass(10_010);
    expect(await refused).toMatchObject({ name: "ConnectError" });
    expect(network.last.sent).toEqual([]);
  });

  it("sends no fresh `auth` on a socket whose server does not ask for it, though the session resumes there", async () => {
    network.script = says(AUTH_HELLO, HELLO);
    const connecting = connectPage({ auth: "s3cret" });
    await pass(10);
    const peer = await connecting;
    peer.notify("hello");
    await pass(10);
    const resumed = { resumed: { token: "next", received: 1 } };
    network.script = says(HELLO, JSON.stringify(resumed));
    network.cut();
    const renewed = rejection(peer.reauthenticate({ timeoutMs: 1_000 }));
    await pass(500);
    expect(peer.state).toBe("open");
    expect(await renewed).toBeInstanceOf(TypeError);
    expect(network.last.sent.join("")).not.toContain("s3cret");
  });

  it("ignores a reply to `auth` that it did not send", async () => {
    network.script = says(AUTH_HELLO, HELLO, AUTHENTICATED);
    const connecting = connectPage({ auth: "token" });
    await pass(10);
    expect((await connecting).state).toBe("open");
  });
});
