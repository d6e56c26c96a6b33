/** Credentials that change: functions for `url`, `headers` and `auth`, and `reauthenticate`. */
import type { IncomingMessage } from "node:http";
import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import {
  contract,
  open as openPeer,
  pair,
  type AnyPeer,
  type Attempt,
  type CloseInfo,
  type ConnectError,
} from "../../src/index.js";
import { connect as connectNode, open as openNode, serve, type Server } from "../../src/node.js";
import { AUTH_HELLO, AUTHENTICATED } from "../../src/session/frames.js";
import { pass, useFakeClock } from "../support/clock.js";
import { gate, Outcomes, rejection, turn } from "../support/turns.js";
import { bareServer, confirmed, describeClients, event, record, type Connect } from "./clients.js";
import { Relay } from "./relay.js";
import { connectVirtual, HELLO, METHODS, network, says, useVirtualServer } from "./virtual.js";

interface User {
  user: string;
  n?: number;
}

type UserServer = Server<any, any, any>;

/** Takes `{ user, n }` as `auth`, and refuses the user "eve". Serves the `auth` of a peer. */
function serveUsers(options: object = {}): Promise<UserServer> {
  return serve<any, any, any>({
    port: 0,
    authenticate: (_request: IncomingMessage, auth: unknown) =>
      (auth as User | undefined)?.user === "eve" ? null : auth,
    principal: ({ user }: User) => user,
    methods: { auth: (_params: unknown, { peer }: { peer: AnyPeer }) => peer.auth } as never,
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

describeClients("credentials of a client", (connect: Connect, isNode) => {
  const open = (url: unknown, options?: object): Promise<AnyPeer> => connect(url as string, options);

  it("come from functions that get the number of the attempt, and why the one before ended", async () => {
    await using server = await serve({ port: 0 });
    await using relay = await Relay.to(server.url);
    const { source, attempts } = supplied<unknown>(relay.url, new URL(relay.url));
    await using peer = await confirmed(open as never, source as never);
    expect(attempts).toEqual([{ number: 1, reason: undefined }]);
    await relay.close();
    await vi.waitFor(() => expect(attempts.length).toBeGreaterThanOrEqual(3), 10_000);
    const back = event(peer, "resume");
    await relay.open();
    await back;
    expect(attempts[1]).toEqual({ number: 1, reason: { code: 1006, reason: "" } });
    for (const [i, { number, reason }] of attempts.slice(2).entries()) {
      expect(number).toBe(i + 2);
      expect(reason).toMatchObject({ name: "ConnectError" });
    }
    // It was connected, so the count begins again.
    const { length } = attempts;
    const again = event(peer, "resume");
    relay.cut();
    await again;
    expect(attempts[length]).toMatchObject({ number: 1, reason: { code: 1006 } });
  });

  it("can lead to another server", async () => {
    await using first = await serveUsers();
    await using second = await serveUsers();
    const { source } = supplied(first.url, second.url);
    await using peer = await confirmed(open as never, source as never, { auth: { user: "ada" }, reconnect: true });
    const back = event(peer, "resume");
    await first.close();
    await back;
    expect(await peer.request("auth")).toEqual({ user: "ada" });
    expect(second.peers.size).toBe(1);
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
    await using server = await serve({ port: 0 });
    const ways = [[source], [server.url, { auth: source }]] as const;
    for (const [url, options] of isNode ? ([...ways, [server.url, { headers: source }]] as const) : ways) {
      const error = await rejection(open(url, options));
      expect(error).toMatchObject({ name: "ConnectError", status: undefined, cause });
      expect(error.message).toContain("`url`, `headers` or `auth` failed");
    }
    expect(server.stats().opened).toBe(0);
  });

  it.each([
    ["url", () => "mailto:ada"],
    ["auth", () => 1n],
    ["auth", () => ({ roles: new Set(["admin"]) })],
  ])("fail the attempt if the function `%s` returns a value that cannot be used", async (name, source) => {
    await using server = await serve({ port: 0 });
    const error = await rejection(name === "url" ? open(source) : open(server.url, { auth: source }));
    expect(error).toMatchObject({ name: "ConnectError", cause: { name: "TypeError" } });
  });

  it("are reported as `error` if a function fails when the client reconnects, which then tries again", async () => {
    await using server = await serveUsers();
    await using relay = await Relay.to(server.url);
    let isFailing = false;
    let failures = 0;
    const auth = (): User => {
      if (isFailing && ++failures < 3) throw new Error("no token");
      return { user: "ada" };
    };
    await using peer = await confirmed(open as never, relay.url, { auth });
    const errors: { cause?: unknown }[] = [];
    peer.on("error", (error) => errors.push(error as Error));
    isFailing = true;
    const back = event(peer, "resume");
    relay.cut();
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
      await using server = await serveUsers({
        authenticate: (request: IncomingMessage, given: unknown) => (requests.push(request), given),
      });
      await using peer = await open(server.url, { auth });
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 1 });
      expect(requests).toHaveLength(1);
      const { url, rawHeaders } = requests[0]!;
      expect(`${url} ${rawHeaders.join(" ")}`).not.toContain("ada");
      expect(rawHeaders).toContain("reciproc.v1,reciproc.auth");
    });

    it("is null for the server if the function returns undefined", async () => {
      await using server = await serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => ({ auth }),
        principal: undefined,
      });
      await using peer = await open(server.url, { auth: () => undefined });
      expect(await peer.request("auth")).toEqual({ auth: null });
    });

    it("is new for each attempt, so that a session resumes with the result of a fresh one", async () => {
      await using server = await serveUsers();
      await using relay = await Relay.to(server.url);
      const refreshed: unknown[] = [];
      server.on("refresh", ({ auth }, old) => refreshed.push([auth, old]));
      const { source } = supplied({ user: "ada", n: 1 }, { user: "ada", n: 2 });
      await using peer = await confirmed(open as never, relay.url, { auth: source });
      const emitted = record(peer);
      const back = event(peer, "resume");
      relay.cut();
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
      await using server = await serveUsers();
      await using relay = await Relay.to(server.url);
      const { source } = supplied({ user: "ada" }, { user: "bob" });
      await using peer = await confirmed(open as never, relay.url, { auth: source });
      const emitted = record(peer);
      const back = event(peer, "resume");
      relay.cut();
      await back;
      expect(await peer.request("auth")).toEqual({ user: "bob" });
      expect(emitted).toEqual(["suspend", "lost", "resume"]);
    });

    it.each([
      ["without authenticate", { authenticate: undefined, principal: undefined }],
      ["without authenticate and sessions", { authenticate: undefined, principal: undefined, session: false }],
      ["that is plain", { authenticate: () => "by request", principal: undefined, link: "plain" }],
    ])("is not needed by a server %s", async (_what, options) => {
      await using server = await serveUsers(options);
      await using peer = await open(server.url, { auth: "token" });
      expect(await peer.request("auth")).toEqual(options.authenticate === undefined ? null : "by request");
    });

    it('is not sent to a server that is not reciproc, or by `link: "plain"`', async () => {
      const authentications: unknown[][] = [];
      await using server = await serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => authentications.push([auth]),
        principal: undefined,
      });
      await using peer = await open(server.url, { auth: "token", link: "plain" });
      expect(await peer.request("auth")).toBe(1);
      expect(authentications).toEqual([[undefined]]);
      await using bare = await bareServer();
      const frames: string[] = [];
      await using other = await open(bare.url, { auth: "token" });
      for (const webSocket of bare.webSockets) webSocket.on("message", (data: Buffer) => frames.push(data.toString()));
      expect(await other.request("echo", [1])).toEqual([1]);
      expect(bare.offers).toEqual(["reciproc.v1,reciproc.auth", ""]);
      expect(frames.join("")).not.toContain("token");
    });

    it("works with sessions off at the client, and off at the server", async () => {
      await using server = await serveUsers();
      await using sessionless = await serveUsers({ session: false });
      for (const [url, options] of [
        [server.url, { reconnect: false }],
        [sessionless.url, {}],
      ] as const) {
        await using peer = await open(url, { auth: { user: "ada" }, ...options });
        expect(await peer.request("auth")).toEqual({ user: "ada" });
      }
    });
  });

  describe("a 401", () => {
    it("is final if nothing is a function", async () => {
      let asked = 0;
      await using server = await serveUsers({ authenticate: () => (asked++, null), principal: undefined });
      for (const options of [{}, { auth: "token" }, { auth: "token", reconnect: { initial: true } }]) {
        asked = 0;
        expect(await rejection(open(server.url, options))).toMatchObject({ status: 401 });
        expect(asked).toBe(1);
      }
    });

    it.each(isNode ? ["url", "headers", "auth"] : ["url", "auth"])(
      "makes a client try once more, and no more, if `%s` is a function",
      async (name) => {
        let refusals = 0;
        let asked = 0;
        await using server = await serveUsers({
          authenticate: () => (++asked <= refusals ? null : { user: "ada" }),
        });
        const { source, attempts } = supplied<unknown>(name === "url" ? server.url : {});
        const url = name === "url" ? source : server.url;
        const options = name === "url" ? {} : { [name]: source };
        refusals = 1;
        await using peer = await open(url, options);
        expect(await peer.request("auth")).toEqual({ user: "ada" });
        expect(attempts).toMatchObject([{ number: 1 }, { number: 2, reason: { name: "ConnectError" } }]);
        refusals = 99;
        attempts.length = 0;
        expect(await rejection(open(url, options))).toMatchObject({ name: "ConnectError" });
        expect(attempts).toHaveLength(2);
      },
    );

    it("lets a session resume with the second credentials, and closes for good after the second refusal", async () => {
      await using server = await serveUsers();
      await using relay = await Relay.to(server.url);
      const { source, attempts } = supplied<User>(
        { user: "ada" },
        { user: "eve" },
        { user: "ada", n: 2 },
        { user: "eve" },
      );
      const peer = await confirmed(open as never, relay.url, { auth: source });
      const emitted = record(peer);
      const tries: unknown[] = [];
      peer.on("attempt", ({ number, delayMs, error }) =>
        tries.push([number, delayMs, (error as Partial<ConnectError>).status]),
      );
      const back = event(peer, "resume");
      relay.cut();
      await back;
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
      expect(attempts[2]).toMatchObject({ number: 2, reason: { status: 401 } });
      expect(tries).toEqual([
        [1, 0, undefined],
        [2, 0, 401],
      ]);
      relay.cut();
      expect(await peer.closed).toMatchObject({ code: 4401, error: { status: 401 } });
      expect(attempts).toHaveLength(5);
      expect(emitted).toEqual(["suspend", "resume", "suspend", "close 4401"]);
    });
  });

  describe("reauthenticate", () => {
    it("sends a fresh `auth`, and resolves when the server has refreshed its result", async () => {
      await using server = await serveUsers();
      const { source, attempts } = supplied({ user: "ada", n: 1 }, { user: "ada", n: 2 });
      await using peer = await open(server.url, { auth: source });
      expect(await peer.reauthenticate()).toBe(undefined);
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
      expect(attempts).toEqual([
        { number: 1, reason: undefined },
        { number: 0, reason: undefined },
      ]);
    });

    it("is not checked as the method of that name in a contract", async () => {
      const methods = { reauthenticate: () => "by a method" };
      await using server = await serveUsers({ methods });
      const remote = contract({ reauthenticate: { result: z.string() } });
      await using peer = await open(server.url, { auth: { user: "ada" }, remote, check: "both" });
      expect(await peer.request("reauthenticate")).toBe("by a method");
      await expect(peer.reauthenticate()).resolves.toBeUndefined();
    });

    it("can be called before another message, and without a session", async () => {
      await using server = await serveUsers({ session: false });
      await using peer = await open(server.url, { auth: { user: "ada" } });
      await peer.reauthenticate();
      expect(await peer.request("auth")).toEqual({ user: "ada" });
    });

    it("shares one exchange between the calls of one time", async () => {
      let asked = 0;
      await using server = await serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => (asked++, auth),
      });
      const { source, attempts } = supplied({ user: "ada" });
      await using peer = await open(server.url, { auth: source });
      await Promise.all([peer.reauthenticate(), peer.reauthenticate(), peer.reauthenticate()]);
      expect([asked, attempts.length]).toEqual([2, 2]);
      await peer.reauthenticate();
      expect([asked, attempts.length]).toEqual([3, 3]);
    });

    it.each(["authenticate refuses it", "the principal would change"])(
      "ends with the connection if %s",
      async (why) => {
        await using server = await serveUsers();
        const { source } = supplied({ user: "ada" }, { user: why.startsWith("auth") ? "eve" : "bob" });
        const peer = await open(server.url, { auth: source });
        const error = await rejection(peer.reauthenticate());
        expect(error).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown", method: "$/reauthenticate" });
        expect(await peer.closed).toMatchObject({ code: 4401 });
        expect(server.peers.size).toBe(0);
      },
    );

    it("rejects with what the function threw, and leaves the connection open", async () => {
      await using server = await serveUsers();
      let isFailing = false;
      const auth = (): User => {
        if (isFailing) throw new Error("no token");
        return { user: "ada" };
      };
      await using peer = await open(server.url, { auth });
      isFailing = true;
      expect(await rejection(peer.reauthenticate())).toEqual(new Error("no token"));
      isFailing = false;
      await peer.reauthenticate();
      expect(peer.state).toBe("open");
    });

    it("rejects after timeoutMs, and when its signal aborts", async () => {
      const open401 = gate<unknown>();
      let asked = 0;
      await using server = await serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => (asked++ === 0 ? auth : open401.promise),
      });
      await using peer = await open(server.url, { auth: { user: "ada" } });
      expect(await rejection(peer.reauthenticate({ timeoutMs: 50 }))).toMatchObject({
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
      await using server = await serveUsers();
      const late = gate<User>();
      let renewals = 0;
      const auth = ({ number }: Attempt): User | Promise<User> => {
        if (number > 0) return { user: "ada" };
        return ++renewals === 1 ? late.promise : { user: "ada", n: renewals };
      };
      await using peer = await open(server.url, { auth });
      expect(await rejection(peer.reauthenticate({ timeoutMs: 50 }))).toMatchObject({
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
      await using server = await serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => (asked++, auth),
      });
      const late = gate<User>();
      await using peer = await open(server.url, {
        auth: ({ number }: Attempt) => (number > 0 ? { user: "ada" } : late.promise),
      });
      expect(await rejection(peer.reauthenticate({ timeoutMs: 50 }))).toMatchObject({ outcome: "not-sent" });
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
      await using server = await serveUsers();
      await using relay = await Relay.to(server.url);
      const auth = ({ number }: Attempt): User | Promise<User> => {
        if (number > 0) return { user: "ada", n: 1 };
        if (++renewals === 1) return new Promise<User>((_resolve, reject) => (failOld = reject));
        called.resolve();
        return answered.promise;
      };
      await using peer = await confirmed(open as never, relay.url, { auth });
      const outcomes = new Outcomes().watch("renewed", peer.reauthenticate());
      await vi.waitFor(() => expect(renewals).toBe(1));
      relay.cut();
      await called.promise;
      failOld(new Error("no token"));
      await turn();
      expect(outcomes.list).toEqual([]);
      answered.resolve({ user: "ada", n: 2 });
      await vi.waitFor(() => expect(outcomes.list).toEqual([{ name: "renewed", value: undefined }]));
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
    });

    it("waits while the connection is suspended, and sends it on the next socket", async () => {
      await using server = await serveUsers();
      await using relay = await Relay.to(server.url);
      const { source } = supplied({ user: "ada", n: 1 }, { user: "ada", n: 2 }, { user: "ada", n: 3 });
      await using peer = await confirmed(open as never, relay.url, { auth: source });
      const down = event(peer, "suspend");
      await relay.close();
      await down;
      const outcomes = new Outcomes().watch("renewed", peer.reauthenticate());
      await turn();
      expect(outcomes.list).toEqual([]);
      await relay.open();
      await vi.waitFor(() => expect(outcomes.list).toEqual([{ name: "renewed", value: undefined }]), 10_000);
    });

    it("is sent again if the socket is lost before the reply", async () => {
      const slow = gate<unknown>();
      const asked = gate();
      let isSlow = false;
      await using server = await serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => {
          if (!isSlow) return auth;
          isSlow = false;
          asked.resolve();
          return slow.promise;
        },
      });
      await using relay = await Relay.to(server.url);
      await using peer = await confirmed(open as never, relay.url, { auth: { user: "ada" } });
      isSlow = true;
      const renewed = peer.reauthenticate();
      await asked.promise;
      relay.cut();
      await renewed;
      expect(peer.state).toBe("open");
    });

    it("is sent once on a socket, though the function returns only after the loss of the socket before", async () => {
      const [first, called, verdict, asked] = [gate<User>(), gate(), gate<unknown>(), gate()];
      let renewals = 0;
      await using server = await serveUsers({
        authenticate: (_request: IncomingMessage, auth: User) =>
          auth.n === 2 ? (asked.resolve(), verdict.promise) : auth,
      });
      await using relay = await Relay.to(server.url);
      const auth = ({ number }: Attempt): User | Promise<User> => {
        if (number > 0) return { user: "ada", n: 1 };
        if (++renewals > 1) return { user: "ada", n: 2 };
        called.resolve();
        return first.promise;
      };
      await using peer = await confirmed(open as never, relay.url, { auth });
      const renewed = peer.reauthenticate();
      await called.promise;
      relay.cut();
      await asked.promise;
      first.resolve({ user: "ada", n: 3 });
      // A frame that the first result caused would arrive before the answer to this call.
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 1 });
      verdict.resolve({ user: "ada", n: 2 });
      await renewed;
      expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
    });

    it("rejects if the session is lost meanwhile, and sends nothing to the next server if that does not ask", async () => {
      await using server = await serveUsers();
      await using relay = await Relay.to(server.url);
      await using bare = await bareServer({ handleProtocols: undefined }, '{"jsonrpc":"2.0","method":"hi"}');
      const peer = await confirmed(open as never, relay.url, { auth: { token: "s3cret", user: "ada" } });
      const [down, back] = [event(peer, "suspend"), event(peer, "resume")];
      await relay.close();
      await down;
      const renewed = rejection(peer.reauthenticate());
      relay.redirect(bare.url);
      const frames: string[] = [];
      await relay.open();
      await back;
      for (const webSocket of bare.webSockets) webSocket.on("message", (data: Buffer) => frames.push(data.toString()));
      expect(await renewed).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent" });
      expect(await peer.request("echo", [1])).toEqual([1]);
      expect(frames.join("")).not.toContain("s3cret");
      await peer.close();
    });

    it("rejects when the peer closes, and at once on a closed peer", async () => {
      let asked = 0;
      await using server = await serveUsers({
        authenticate: (_request: IncomingMessage, auth: unknown) => (asked++ === 0 ? auth : new Promise(() => {})),
      });
      const peer = await open(server.url, { auth: { user: "ada" } });
      const renewed = rejection(peer.reauthenticate());
      await vi.waitFor(() => expect(asked).toBe(2));
      await peer.close();
      expect(await renewed).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
      expect(await rejection(peer.reauthenticate())).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent" });
    });

    it.each<[string, object, object]>([
      ["the client has no `auth`", {}, { authenticate: () => ({ user: "ada" }) }],
      ["the server has no authenticate", { auth: "x" }, { authenticate: undefined, principal: undefined }],
      ["the server is plain", { auth: "x" }, { authenticate: () => ({ user: "ada" }), link: "plain" }],
      ["the client is plain", { auth: "x", link: "plain" }, { authenticate: () => ({ user: "ada" }) }],
    ])("rejects with a TypeError if %s", async (_what, options, serverOptions) => {
      await using server = await serveUsers(serverOptions);
      await using peer = await open(server.url, options);
      const error = await rejection(peer.reauthenticate());
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toContain("`auth`");
      expect(peer.state).toBe("open");
      const [one] = [...server.peers];
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
    await using server = await serveUsers();
    const { source } = supplied({ user: "ada", n: 1 }, { user: "ada", n: 2 });
    await using peer = openNode<any, any>(server.url, { auth: source });
    await peer.reauthenticate();
    expect(peer.state).toBe("open");
    expect(await peer.request("auth")).toEqual({ user: "ada", n: 2 });
  });

  it("rejects with a TypeError when its server does not ask, and at once without `auth`", async () => {
    await using server = await serve<any, any, any>({ port: 0 });
    await using peer = openNode(server.url, { auth: "x" });
    expect((await rejection(peer.reauthenticate())).message).toContain("`auth`");
    await peer.opened;
    await using other = openNode("ws://localhost:1", { reconnect: { initial: true } });
    expect(await rejection(other.reauthenticate())).toBeInstanceOf(TypeError);
  });

  it("rejects when the peer closes before: nothing was sent", async () => {
    const peer = openNode("ws://localhost:1", { auth: "x", reconnect: { initial: true } });
    const error = rejection(peer.reauthenticate());
    await peer.close();
    expect(await error).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent" });
  });
});

it("sends the headers of a function, new ones for each attempt", async () => {
  const cookies: unknown[] = [];
  await using server = await serve<any, any, any>({
    port: 0,
    authenticate: ({ headers }: IncomingMessage) => (cookies.push(headers.cookie), {}),
  });
  await using relay = await Relay.to(server.url);
  await using peer = await confirmed(connectNode as never, relay.url, {
    headers: ({ number, reason }: Attempt) => ({ cookie: `${number} ${(reason as CloseInfo | undefined)?.code}` }),
  });
  const back = event(peer, "resume");
  relay.cut();
  await back;
  expect(cookies).toEqual(["1 undefined", "1 1006"]);
});

describe("with a clock", () => {
  useFakeClock();
  useVirtualServer(METHODS);

  it("bounds the functions by openTimeoutMs, and opens nothing afterwards", async () => {
    const late = gate<string>();
    const outcomes = new Outcomes();
    outcomes.watch("auth", connectVirtual({ auth: () => late.promise, openTimeoutMs: 1_000 }));
    outcomes.watch("url", connectVirtual({ openTimeoutMs: 1_000 }, (() => late.promise) as never));
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
    outcomes.watch("auth", connectVirtual({ auth: () => new Promise(() => {}), signal: controller.signal }));
    await pass(10);
    controller.abort(new Error("enough"));
    await pass(0);
    expect(outcomes.list).toEqual([{ name: "auth", reason: new Error("enough") }]);
    expect(network.attempts).toEqual([]);
  });

  it("sends no `auth` to a server of reciproc.v1 that does not ask for it, in no frame", async () => {
    network.answer = says(HELLO);
    const connecting = connectVirtual({ auth: "s3cret" });
    await pass(10);
    const peer = await connecting;
    void rejection(peer.request("echo", [1]));
    await pass(10);
    expect(network.last.protocols).toEqual(["reciproc.v1", "reciproc.auth"]);
    expect(network.last.line.sent.length).toBeGreaterThan(0);
    expect(network.last.line.sent.join("")).not.toContain("s3cret");
    expect(network.last.line.sent.join("")).not.toContain("auth");
  });

  it("sends `auth` first, and nothing else until the server's next hello", async () => {
    let greet!: () => void;
    network.answer = ({ line }) => {
      const socket = line.accept("reciproc.v1");
      socket.send(AUTH_HELLO);
      greet = () => void socket.send(HELLO);
    };
    const outcomes = new Outcomes();
    const connecting = connectVirtual({ auth: { token: 1 } });
    outcomes.watch("connect", connecting);
    await pass(5_000);
    expect(network.last.line.sent).toEqual(['{"hello":{"auth":{"token":1}}}']);
    expect(outcomes.list).toEqual([]);
    greet();
    await pass(10);
    const peer = await connecting;
    void rejection(peer.request("echo", [1]));
    await pass(1);
    expect(network.last.line.sent[1]).toMatch(/^\{"hello":\{"session":true,"limits":\{[^{]*\}\}\}$/);
    expect(network.last.line.sent.slice(1).join("")).not.toContain("token");
  });

  it("has no delay before its second attempt after `reconnect()` during the first", async () => {
    network.answer = ({ line }) => void setTimeout(() => line.refuse(), 100);
    const peer = openPeer("ws://server.test/", { link: "plain", reconnect: { initial: true } });
    const delays: number[] = [];
    peer.on("attempt", ({ delayMs }) => delays.push(delayMs));
    await pass(50);
    expect(peer.reconnect()).toBe(true);
    await pass(100);
    expect(delays).toEqual([0]);
    await peer.close();
  });

  it("waits for the first frame of reciproc.v1 until openTimeoutMs, and sends nothing before", async () => {
    network.answer = ({ line }) => {
      const socket = line.accept("reciproc.v1");
      setTimeout(() => socket.send(AUTH_HELLO), 9_000);
      setTimeout(() => socket.send(HELLO), 9_100);
    };
    const connecting = connectVirtual({ auth: "token" });
    await pass(8_990);
    expect(network.last.line.sent).toEqual([]);
    await pass(20);
    expect(network.last.line.sent).toEqual(['{"hello":{"auth":"token"}}']);
    await pass(200);
    expect((await connecting).state).toBe("open");
    network.answer = says();
    const refused = rejection(connectVirtual({ auth: "token" }));
    await pass(10_010);
    expect(await refused).toMatchObject({ name: "ConnectError" });
    expect(network.last.line.sent).toEqual([]);
  });

  it("sends no fresh `auth` on a socket whose server does not ask for it, though the session resumes there", async () => {
    network.answer = says(AUTH_HELLO, HELLO);
    const connecting = connectVirtual({ auth: "s3cret" });
    await pass(10);
    const peer = await connecting;
    peer.notify("hello");
    await pass(10);
    const resumed = { resumed: { token: "next", received: 1 } };
    network.answer = says(HELLO, JSON.stringify(resumed));
    network.last.line.freeze();
    network.cut();
    const renewed = rejection(peer.reauthenticate({ timeoutMs: 1_000 }));
    await pass(500);
    expect(peer.state).toBe("open");
    expect(await renewed).toBeInstanceOf(TypeError);
    expect(network.last.line.sent.join("")).not.toContain("s3cret");
  });

  it("ignores a reply to `auth` that it did not send", async () => {
    network.answer = says(AUTH_HELLO, HELLO, AUTHENTICATED);
    const connecting = connectVirtual({ auth: "token" });
    await pass(10);
    expect((await connecting).state).toBe("open");
  });
});
