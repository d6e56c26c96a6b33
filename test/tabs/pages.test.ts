/** Tabs and their shared worker, over doubles of what a browser gives them: ports, locks and the worker. */
import { expect, it, onTestFinished, vi } from "vitest";
import { TooLargeError, type AnyPeer, type Options } from "../../src/index.js";
import { openTab, shareConnection, tabs } from "../../src/tabs/index.js";
import { testServer } from "../../src/testing/index.js";
import { gate, pass, rejection, useVirtualClock } from "../support/time.js";

useVirtualClock();

class Port extends EventTarget {
  other: Port = this;
  readonly #queue: unknown[] = [];
  #state: "new" | "started" | "closed" = "new";

  start(): void {
    this.#state = "started";
    this.#flush();
  }

  postMessage(data: unknown): void {
    const copy: unknown = structuredClone(data);
    queueMicrotask(() => this.other.#flush(copy));
  }

  close(): void {
    this.#state = "closed";
  }

  #flush(...more: unknown[]): void {
    this.#queue.push(...more);
    while (this.#state === "started" && this.#queue.length > 0)
      this.dispatchEvent(Object.assign(new Event("message"), { data: this.#queue.shift() }));
  }
}

class Locks {
  readonly #held = new Map<string, Promise<unknown>>();
  #end = gate();

  /** Releases the locks of all tabs, as the end of their pages does. */
  endPages(): void {
    this.#end.resolve();
    this.#end = gate();
  }

  request(name: string, { signal }: { signal?: AbortSignal }, granted: () => unknown): Promise<unknown> {
    const before = this.#held.get(name) ?? Promise.resolve();
    const result = new Promise((resolve, reject) => {
      signal?.addEventListener("abort", () => reject(signal.reason as Error));
      // Only tabs have signals.
      const end = signal ? this.#end.promise : new Promise(() => {});
      void before.then(() => signal?.aborted === true || resolve(Promise.race([granted(), end])));
    });
    this.#held.set(name, Promise.allSettled([before, result]));
    return result;
  }
}

/** A server, a worker, and a function that opens a tab. */
function world(serving: object = {}, sharing: Parameters<typeof shareConnection>[1] = {}) {
  const kit = testServer<any, any, any>({
    use: [tabs],
    methods: {
      join: ({ room }, { peer, server }) => void server.topic(room).add(peer),
      echo: (params) => params.it,
      name: (_params, { peer }) => peer.auth,
    },
    ...serving,
  });
  let connect!: (event: object) => void;
  const workers: EventTarget[] = [];
  vi.stubGlobal("WebSocket", kit.WebSocket);
  vi.stubGlobal("SharedWorker", Port);
  const locks = new Locks();
  vi.stubGlobal("navigator", { locks });
  vi.stubGlobal("addEventListener", (type: string, listener: typeof connect) => {
    if (type === "connect") connect = listener;
  });
  shareConnection(kit.server.url, sharing);
  onTestFinished(async () => {
    await kit.server.close();
    vi.unstubAllGlobals();
  });
  const makeWorker = (isHung = false): SharedWorker => {
    const [port, inner] = [new Port(), new Port()];
    [port.other, inner.other] = [inner, port];
    if (!isHung) queueMicrotask(() => connect({ ports: [inner] }));
    workers.push(Object.assign(new EventTarget(), { port }));
    return workers.at(-1) as SharedWorker;
  };
  const open = (options: Options<any, any> = {}, make = makeWorker) => {
    const peer: AnyPeer = openTab(() => make(), options)!;
    const events: unknown[] = [];
    for (const event of ["suspend", "lost", "resume", "missed", "close"] as const)
      peer.on(event, (info?: unknown) => events.push(event === "missed" ? (info as { count: number }).count : event));
    return { peer, events };
  };
  return { ...kit, locks, workers, makeWorker, open };
}

const AGAIN = ["suspend", "lost", "resume"];

it("tabs continue after their session is lost, each with one peer at the server, whatever `retry` the connection has", async () => {
  const { server, network, open } = world({}, { retry: "always" });
  const [first, second] = [open(), open()];
  await Promise.all([first.peer.opened, second.peer.opened]);
  network.stop();
  network.cut();
  await pass(10);
  const third = open();
  await pass(10);
  network.lose();
  network.start();
  await pass(5_000);
  for (const { peer, events } of [first, second, third]) {
    expect(events).toEqual(peer === third.peer ? [] : AGAIN);
    expect([peer.state, await peer.request("echo", { it: 7 })]).toEqual(["open", 7]);
  }
  expect(server.peers.size).toBe(4);
});

it("tabs are suspended and resumed with their connection, whose credentials are theirs, and all learn what was dropped", async () => {
  let name = "Ada";
  const { server, network, open } = world(
    { authenticate: (_request: unknown, auth: unknown) => auth, limits: { maxUnsentBytes: 40_000 } },
    { auth: () => name, openTimeoutMs: 100, reconnect: { minDelayMs: 60_000, maxDelayMs: 120_000 } },
  );
  const said: unknown[] = [];
  const opened = [1, 2].map((tab) => open({ methods: { said: ({ n }) => void said.push(`${tab} ${n}`) } }));
  for (const { peer } of opened) await peer.request("join", { room: "den" });
  const attempts: unknown[] = [];
  opened[0]!.peer.on("attempt", ({ number, delayMs, error }) => attempts.push(number, delayMs, error.message));
  name = "Eve";
  network.stop();
  network.cut();
  await pass(200);
  for (const n of [1, 2]) for (const peer of server.topic("den")) peer.notify("said", { n }, { latest: "n" });
  for (const n of [3, 4]) server.topic("den").notify("said", { n, text: "x".repeat(5_500) });
  expect(opened.map(({ peer }) => peer.state)).toEqual(["suspended", "suspended"]);
  const seen: unknown[] = [];
  open().peer.on("attempt", ({ number, delayMs, error }) => seen.push(number, delayMs > 59_000, error.message));
  await pass(10);
  network.start();
  // The next attempt of the worker is more than a minute away.
  expect(opened[1]!.peer.reconnect()).toBe(true);
  await pass(5_000);
  const late: unknown = expect.stringContaining("not open within 100 ms");
  expect(attempts).toEqual([1, 0, expect.any(String), 2, expect.any(Number), late]);
  expect(seen).toEqual([2, true, late]);
  // The room of the queue, a quarter of the limit, has no place for three of these broadcasts.
  expect(said).toEqual(["1 2", "2 2", "1 3"]);
  for (const { peer, events } of opened) {
    expect(events).toEqual(["suspend", "resume", 3]);
    expect(await peer.request("name")).toBe("Eve");
  }
});

it("the unsent bytes of tabs are those of their connection, and count once in the sum of a server", async () => {
  const { server, network, open } = world();
  for (const { peer } of [open(), open()]) await peer.request("join", { room: "den" });
  network.stop();
  server.topic("den").notify("said", {});
  await pass(10);
  const unsent = [server, ...server.peers].map((one) => one.stats().unsentBytes);
  expect([unsent.length, unsent[0]! > 0, new Set(unsent).size]).toEqual([4, true, 1]);
});

it("a tab that queues too much while its connection is suspended has lost that alone; if the server does, all tabs continue", async () => {
  const { server, network, open } = world({ limits: { maxUnsentBytes: 4_000 } });
  const [first, second] = [open({ limits: { maxUnsentBytes: 2_000 } }), open()];
  for (const { peer } of [first, second]) await peer.request("join", { room: "den" });
  for (const isServer of [false, true]) {
    network.stop();
    network.cut();
    await pass(10);
    const from = isServer ? [...server.topic("den")][0]! : first.peer;
    for (let i = 0; i < 3; i++) from.notify("echo", { it: "x".repeat(900) });
    await pass(10);
    network.start();
    await pass(5_000);
    for (const { peer } of [first, second]) expect(await peer.request("echo", { it: 7 })).toBe(7);
    expect(server.peers.size).toBe(3);
    expect(first.events.splice(0)).toEqual(AGAIN);
    expect(second.events.splice(0)).toEqual(isServer ? AGAIN : ["suspend", "resume"]);
  }
});

it("a tab closes by itself, by the server, and with 1006 by a server without the feature, and the last one closes the connection", async () => {
  const { server, open } = world();
  const [first, second] = [open(), open()];
  for (const { peer } of [first, second]) await peer.request("join", { room: "den" });
  const [shared] = server.peers;
  const [one, other] = server.topic("den") as unknown as [AnyPeer, AnyPeer];
  await first.peer.close(4003, "bye");
  expect([await one.closed, shared!.state]).toEqual([{ code: 4003, reason: "bye" }, "open"]);
  await other.close(4002, "enough");
  expect(await second.peer.closed).toEqual({ code: 4002, reason: "enough" });
  expect((await shared!.closed).code).toBe(1000);
  expect(await open().peer.request("echo", { it: 1 })).toBe(1);
  expect(await world({ use: [] }).open().peer.closed).toEqual({ code: 1006, reason: "Method not found" });
});

it("a tab whose page ends leaves no peer, and has another one if the page lives after all", async () => {
  const { server, locks, open } = world();
  const { peer, events } = open();
  await peer.request("join", { room: "den" });
  const [gone] = server.topic("den") as unknown as [AnyPeer];
  locks.endPages();
  expect((await gone.closed).code).toBe(1001);
  expect(await peer.request("echo", { it: 7 })).toBe(7);
  expect([server.peers.size, events]).toEqual([2, AGAIN]);
});

it("a tab is opened later if too many messages came", async () => {
  const { open } = world({ limits: { maxMessagesPerSecond: 2 } });
  const opened = [open(), open(), open()];
  await pass(100);
  expect(opened.map(({ peer }) => peer.state)).toEqual(["open", "open", "connecting"]);
  await pass(1_000);
  expect(opened[2]!.peer.state).toBe("open");
});

it("what is too long for the server fails in its tab, and closes nothing", async () => {
  const { open } = world({ limits: { maxMessageBytes: 2_000 } });
  const { peer, events } = open();
  await peer.opened;
  for (const length of [1_950, 2_000, 3_000])
    expect(await rejection(peer.request("echo", { it: "x".repeat(length) }))).toBeInstanceOf(TooLargeError);
  expect([await peer.request("echo", { it: "x".repeat(1_800) }), events]).toEqual(["x".repeat(1_800), []]);
});

it("a tab closes without its worker if that loads or hangs, and with 1006 if it is not made or loaded, and leaves no connection", async () => {
  const { server, network, workers, makeWorker, open } = world();
  await open().peer.close();
  await pass(10);
  expect(server.stats().opened).toBe(0);
  const hung = open({}, () => makeWorker(true));
  await hung.peer.close(4000, "now");
  expect(await hung.peer.closed).toEqual({ code: 4000, reason: "now" });
  const failed = open({}, () => makeWorker(true));
  workers.at(-1)!.dispatchEvent(new Event("error"));
  expect(await failed.peer.closed).toMatchObject({ code: 1006 });
  let make = makeWorker;
  const { peer } = open({}, () => make());
  await peer.opened;
  // A worker that runs reports an error.
  workers.at(-1)!.dispatchEvent(new Event("error"));
  expect(await peer.request("echo", { it: 1 })).toBe(1);
  make = () => {
    throw new Error("no worker");
  };
  network.lose();
  await pass(5_000);
  expect(await peer.closed).toMatchObject({ code: 1006, reason: "Error: no worker" });
  expect(server.peers.size).toBe(0);
  expect(await rejection(open({}, make).peer.opened)).toMatchObject({ message: "no worker" });
});
