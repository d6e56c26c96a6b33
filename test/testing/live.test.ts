/** What applications need of live connections, in memory and without a real timer: credentials, the newest messages, votes, bytes. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { bytes, bytesOf, contract, type AnyPeer, type Attempt } from "../../src/index.js";
import { testServer, type TestServer, type TestServerOptions } from "../../src/testing/index.js";
import { pass, useVirtualClock } from "../support/time.js";
import { rejection, turn } from "../support/turns.js";

type Kit<D = unknown> = TestServer<any, any, D>;

useVirtualClock();

/** Connects a client whose session both sides have confirmed. Returns both its peers, and the events of the client. */
async function joined(
  kit: Kit<any>,
  options: object = {},
): Promise<{ client: AnyPeer; peer: AnyPeer; events: unknown[] }> {
  const coming = new Promise<AnyPeer>((resolve) => kit.server.once("peer", (one) => resolve(one)));
  const client: AnyPeer = await kit.connect(kit.server.url, options);
  const peer = await coming;
  for (let i = 0; i < 2; i++) await rejection(client.request("no such method"));
  const events: unknown[] = [];
  for (const name of ["suspend", "lost", "resume", "close"] as const) client.on(name, () => events.push(name));
  client.on("missed", ({ count }) => events.push(`missed ${count}`));
  return { client, peer, events };
}

interface User {
  readonly name: string;
  readonly n: number;
}

/** Accepts a user whose number is positive. */
function usersOf(options: Partial<TestServerOptions<any, any, User>> = {}): Kit<User> & { refreshed: unknown[] } {
  const kit = testServer<any, any, User>({
    authenticate: (_request, auth) => (((auth as User | undefined)?.n ?? 0) > 0 ? (auth as User) : null),
    principal: ({ name }) => name,
    ...options,
  });
  const refreshed: unknown[] = [];
  kit.server.on("refresh", (peer, old) => refreshed.push([old.n, peer.auth.n]));
  return { ...kit, refreshed };
}

/** Returns a function that returns these users one after another, and the attempts that it was called for. */
function inTurn(...users: User[]): { auth: (attempt: Attempt) => Promise<User>; attempts: unknown[] } {
  const attempts: unknown[] = [];
  const auth = async ({ number, reason }: Attempt): Promise<User> => {
    attempts.push([
      number,
      (reason as { status?: number; code?: number } | undefined)?.status ??
        (reason as { code?: number } | undefined)?.code,
    ]);
    const user = users.shift();
    if (user === undefined) throw new Error("no user is left");
    return user;
  };
  return { auth, attempts };
}

const ada = (n: number): User => ({ name: "ada", n });

describe("credentials in a test server", () => {
  it("come from a function, once more after a refusal, and for good after the second", async () => {
    await using kit = usersOf();
    const { auth, attempts } = inTurn(ada(0), ada(1), ada(0), ada(-1), ada(3));
    const connecting = kit.connect(kit.server.url, { auth });
    await pass(10);
    expect((await connecting).state).toBe("open");
    const refused = rejection(kit.connect(kit.server.url, { auth }));
    await pass(10);
    expect(await refused).toMatchObject({ name: "ConnectError", status: 401 });
    expect(attempts).toEqual([
      [1, undefined],
      [2, 401],
      [1, undefined],
      [2, 401],
    ]);
    expect([...kit.server.peers].map((one) => one.auth)).toEqual([ada(1)]);
  });

  it("are refreshed by `reauthenticate()` and by a resume, and the server emits `refresh`", async () => {
    await using kit = usersOf();
    const { auth, attempts } = inTurn(ada(1), ada(2), ada(3));
    const { client, peer, events } = await joined(kit, { auth });
    await client.reauthenticate();
    expect(peer.auth).toEqual(ada(2));
    kit.network.cut();
    await pass(0);
    await kit.network.settle();
    expect(peer.auth).toEqual(ada(3));
    expect(events).toEqual(["suspend", "resume"]);
    expect(kit.refreshed).toEqual([
      [1, 2],
      [2, 3],
    ]);
    expect(attempts).toEqual([
      [1, undefined],
      [0, undefined],
      [1, 1006],
    ]);
  });

  it.each([
    ["another principal", { name: "bo", n: 1 }],
    ["refused credentials", ada(0)],
  ])("close the connection with 4401 if they become those of %s", async (_what, other) => {
    await using kit = usersOf();
    const { auth } = inTurn(ada(1), other);
    const { client } = await joined(kit, { auth });
    expect(await rejection(client.reauthenticate())).toMatchObject({ code: "CONNECTION_LOST" });
    expect(await client.closed).toMatchObject({ code: 4401 });
    expect(kit.refreshed).toEqual([]);
  });

  it("of another principal begin another session when the client connects again", async () => {
    await using kit = usersOf();
    const { auth } = inTurn(ada(1), { name: "bo", n: 1 });
    const { client, peer, events } = await joined(kit, { auth });
    kit.network.cut();
    await pass(0);
    await kit.network.settle();
    expect(events).toEqual(["suspend", "lost", "resume"]);
    expect([client.state, peer.state, kit.refreshed]).toEqual(["open", "suspended", []]);
  });

  it("may fail: the client emits `error`, and tries again after a delay", async () => {
    await using kit = usersOf();
    let isOffline = true;
    const client = kit.open(kit.server.url, {
      reconnect: { initial: true },
      auth: async () => {
        if (isOffline) throw new Error("no token");
        return ada(1);
      },
    });
    const errors: unknown[] = [];
    client.on("error", (error) => errors.push((error as Error).cause));
    const attempts: unknown[] = [];
    client.on("attempt", ({ number }) => attempts.push(number));
    await pass(0);
    await turn();
    expect(errors).toEqual([new Error("no token")]);
    isOffline = false;
    await pass(1_000);
    await client.opened;
    expect([attempts, client.state]).toEqual([[2], "open"]);
  });
});

describe("a client of `open` in a test server", () => {
  it("queues calls while nothing passes, connects at once by `reconnect()`, and ends by its signal", async () => {
    await using kit = testServer({ methods: { add: ([a, b]) => a + b } });
    kit.network.stop();
    const controller = new AbortController();
    const { signal } = controller;
    const client = kit.open(kit.server.url, { reconnect: { initial: true }, openTimeoutMs: 1_000, signal });
    const attempts: unknown[] = [];
    client.on("attempt", ({ number, error }) => attempts.push([number, error.name]));
    const sum = client.request("add", [1, 2]);
    await pass(1_000);
    expect([client.state, attempts]).toEqual(["connecting", [[2, "ConnectError"]]]);
    kit.network.start();
    expect(client.reconnect()).toBe(true);
    await client.opened;
    expect(await sum).toBe(3);
    controller.abort("enough");
    expect(await client.closed).toMatchObject({ code: 1000 });
    expect(client.reconnect()).toBe(false);
  });
});

describe("messages to a client that is away, in a test server", () => {
  it("are the newest of each key, all ordinary ones, no volatile one, and the count of those that were dropped", async () => {
    const heard: unknown[] = [];
    await using kit = testServer({ limits: { maxUnsentBytes: 40_000 } });
    const missed: unknown[] = [];
    kit.server.on("missed", (_peer, method) => missed.push(method));
    const methods = Object.fromEntries(
      ["moved", "said", "blinked"].map((name) => [
        name,
        ([value]: unknown[]) => void heard.push(`${name} ${String(value).slice(0, 4)}`),
      ]),
    );
    const { peer, events } = await joined(kit, { methods });
    kit.network.stop();
    kit.network.cut();
    for (let i = 1; i <= 50; i++) {
      kit.server.peers.notify("moved", [`a${i}`], { latest: "a" });
      peer.notify("moved", [`b${i}`], { latest: "b" });
      peer.notify("blinked", [i], { volatile: true });
    }
    kit.server.peers.notify("said", ["one"]);
    // Too long for what is queued of broadcasts.
    for (let i = 0; i < 3; i++) kit.server.peers.notify("said", ["x".repeat(9_000)]);
    kit.server.peers.notify("moved", ["a51"], { latest: "a" });
    const { dropped } = peer.stats();
    expect(dropped).toBeGreaterThan(0);
    kit.network.start();
    await pass(30_000);
    await kit.network.settle();
    const said = Array.from({ length: 3 - dropped }, () => "said xxxx");
    expect(heard).toEqual(["moved b50", "said one", ...said, "moved a51"]);
    expect(missed).toEqual(Array.from({ length: dropped }, () => "said"));
    expect(events).toEqual(["suspend", "resume", `missed ${dropped}`]);
  });

  it("are at most 1,024 keys, of which the oldest are dropped and counted", async () => {
    const heard: unknown[] = [];
    await using kit = testServer({});
    const { peer, events } = await joined(kit, { methods: { moved: ([key]: unknown[]) => void heard.push(key) } });
    kit.network.stop();
    kit.network.cut();
    for (let key = 0; key < 1_030; key++) peer.notify("moved", [key], { latest: String(key) });
    kit.network.start();
    await pass(30_000);
    await kit.network.settle();
    expect(heard).toEqual(Array.from({ length: 1_024 }, (_, i) => i + 6));
    expect(events).toContain("missed 6");
  });
});

it("a topic of a test server is called as one: with an outcome for a member that answers, refuses, and is late", async () => {
  const theirs = contract({ vote: { params: z.tuple([z.string()]), result: z.boolean() } });
  await using kit = testServer<any, any, unknown>({ remote: theirs, check: "both" } as object);
  const topic = kit.server.topic("den");
  const changes: unknown[] = [];
  topic.on("join", () => changes.push("join")).on("leave", (_peer, reason) => changes.push(reason));
  for (const vote of [() => true, () => "perhaps", () => new Promise(() => {})])
    topic.add((await joined(kit, { methods: { vote } })).peer);
  const voting = topic.request("vote", ["?"], { timeoutMs: 5_000 });
  await pass(5_000);
  expect(await voting).toMatchObject([
    { status: "fulfilled", value: true },
    { status: "rejected", reason: { name: "ProtocolError" } },
    { status: "rejected", reason: { name: "TimeoutError" } },
  ]);
  await kit.server.close();
  expect(changes).toEqual(["join", "join", "join", "closed", "closed", "closed"]);
});

describe("bytes in a test server", () => {
  it("arrive as a view, in calls and streams, and count towards a slow network", async () => {
    await using kit = testServer({
      methods: {
        echo: ([value]: [unknown]) => [value instanceof Uint8Array, bytes(bytesOf(value))],
        async *download() {
          yield new Uint8Array([1, 2, 3]);
        },
        upload: async ([file]: [never], { peer }: { peer: AnyPeer }) => {
          let size = 0;
          for await (const part of peer.iterate(file)) size += bytesOf(part).length;
          return size;
        },
      },
    });
    const { client } = await joined(kit);
    const data = Uint8Array.from({ length: 10_000 }, (_, i) => i);
    expect(await client.request("echo", [bytes(data)])).toEqual([true, data]);
    const parts: unknown[] = [];
    for await (const part of client.stream("download")) parts.push(part);
    expect(parts).toEqual([Uint8Array.of(1, 2, 3)]);
    expect(await client.request("upload", [client.offer(new Blob([data]).stream())])).toBe(10_000);
    kit.network.slow(1_000);
    const slow = client.request("echo", [bytes(data)]);
    await pass(9_900);
    expect(client.stats().unsentBytes).toBeGreaterThan(10_000);
    await pass(20_000);
    expect(await slow).toEqual([true, data]);
  });

  it("are base64 for a client without them", async () => {
    await using kit = testServer({
      methods: { echo: ([value]: [unknown]) => [typeof value, bytes(bytesOf(value))] },
    });
    const { client } = await joined(kit, { link: "plain" });
    expect(await client.request("echo", [bytes(Uint8Array.of(1, 2, 3))])).toEqual(["string", "AQID"]);
  });
});
