/** What a link adds to an endpoint: the end of the tick, checks of a full socket, expiry, and what its peer is told. */
import { beforeEach, describe, expect, it, vi } from "vitest";
import { bytes, type AnyPeer } from "../../src/index.js";
import { network, openPage, useNetwork } from "../client/attempts.js";
import { record } from "../client/clients.js";
import { pass, turn, useVirtualClock } from "../support/time.js";
import { hello, HELLO, note, OFFER, pack, range, RESUME_REFUSED, resume, resumed, Serving, TAKEN } from "./kit.js";

useVirtualClock();
useNetwork();
beforeEach(() => {
  network.script = (webSocket) => (webSocket.protocol = "reciproc.v1");
});

const TTL_MS = 60_000;
const LIMITS = { maxMessageBytes: 5000, maxUnsentBytes: 80_000 };
const HIGH_WATER = LIMITS.maxUnsentBytes / 4;
/** What the client of these tests says of its limits. */
const ITS_LIMITS = { maxMessageBytes: 5000, logFrames: 4096, logLength: 80_000 };

class Scripted {
  readonly peer: AnyPeer;
  readonly got: unknown[] = [];
  readonly events: string[];
  onMessage: () => void = () => {};
  #opened = network.attempts.length;

  constructor(options: object = {}) {
    const n = ([number]: unknown[]): void => {
      this.got.push(number);
      this.onMessage();
    };
    this.peer = openPage({ limits: LIMITS, heartbeat: false, methods: { n }, ...options });
    this.events = record(this.peer);
  }

  static async live(options?: object): Promise<Scripted> {
    const client = new Scripted(options);
    await client.accept(hello({ ...OFFER, ttlMs: TTL_MS }));
    await client.peer.opened;
    client.peer.notify("n", [0]);
    await turn();
    client.take();
    return client;
  }

  /** Opens the newest WebSocket, and delivers these frames. */
  async accept(...frames: string[]): Promise<void> {
    await pass(0);
    // After several losses, a delay precedes the attempt.
    while (network.attempts.length === this.#opened) await pass(100);
    this.#opened = network.attempts.length;
    network.scripted.fire("open");
    await turn();
    await this.receive(...frames);
  }

  async receive(...frames: string[]): Promise<void> {
    for (const data of frames) network.scripted.fire("message", { data });
    await turn();
  }

  async lose(code = 1006): Promise<void> {
    network.scripted.fire("close", { code, reason: "" });
    await turn();
  }

  /** Returns the frames that the client has sent on the newest WebSocket since the last call. */
  take(): string[] {
    return network.last.sent.splice(0);
  }
}

it("a full socket is checked every 20 ms, also if it is full at the end of a tick and nothing is sent after that", async () => {
  const client = await Scripted.live();
  network.scripted.bufferedAmount = HIGH_WATER;
  client.peer.notify("n", [1]);
  await pass(100);
  expect(client.take()).toEqual([]);
  network.scripted.bufferedAmount = 0;
  await pass(20);
  expect(client.take()).toEqual([pack(note(1))]);
});

it("a full socket is checked also if it was full when the session was resumed", async () => {
  const client = await Scripted.live();
  await client.lose();
  client.peer.notify("n", [1]);
  await client.accept(hello({ ...OFFER, token: "other" }));
  network.scripted.bufferedAmount = HIGH_WATER;
  await client.receive(resumed("next", 1));
  client.take();
  network.scripted.bufferedAmount = 0;
  await pass(20);
  expect(client.take()).toEqual([pack(note(1))]);
});

/** Returns the numbers of the messages in each pack that a server sends in a tick. */
async function packsOf(send: (peer: AnyPeer) => void): Promise<number[][]> {
  const serving = new Serving();
  const raw = await serving.begin();
  send(serving.served.peer);
  await serving.settle();
  return raw.take().map((frame) => (JSON.parse(frame) as { params: number[] }[]).map(({ params }) => params[0]!));
}

describe("a pack", () => {
  it("is sent at once at the sixteenth message of a tick, and whenever the number has doubled", async () => {
    const packs = await packsOf((peer) => range(1, 150).forEach((n) => peer.notify("n", [n])));
    expect(packs.map(({ length }) => length)).toEqual([16, 16, 32, 64, 22]);
    expect(packs.flat()).toEqual(range(1, 150));
  });

  it("is sent at once at its length limit, and is never much longer", async () => {
    const packs = await packsOf((peer) => range(1, 3000).forEach((n) => peer.notify("n", [n, "x".repeat(100)])));
    const { length } = note(1000, 100);
    expect(Math.max(...packs.map((one) => one.length * length))).toBeLessThanOrEqual(8192 + length);
    expect(packs.length).toBeLessThan(((3000 * length) / 8192) * 1.2 + 8);
    expect(packs.flat()).toEqual(range(1, 3000));
  });

  it("does not delay a long message, nor the messages before it", async () => {
    const packs = await packsOf((peer) => {
      for (const n of [0, 1]) peer.notify("n", [n]);
      peer.notify("n", [2, "x".repeat(4000)]);
      peer.notify("n", [3, "x".repeat(4500)]);
    });
    expect(packs).toEqual([[0, 1, 2], [3]]);
  });
});

it("a client that gets unknown-session (rule 8) reports the loss, and starts a new session on the same socket", async () => {
  const client = await Scripted.live();
  client.peer.notify("n", ["lost"]);
  await client.lose();
  client.peer.notify("n", ["lost too"]);
  await client.accept(hello({ ...OFFER, token: "fresh" }), RESUME_REFUSED);
  expect(client.take()).toEqual([resume("t", 0, 1, ITS_LIMITS), TAKEN.replace("16", "4096").replace("20000", "80000")]);
  expect(client.events).toEqual(["suspend", "lost", "resume"]);
  client.peer.notify("n", ["fresh"]);
  await client.receive(pack(note("answer")));
  expect([client.take(), client.got]).toEqual([[pack(note("fresh"))], ["answer"]]);
  await client.lose();
  await client.accept(hello(OFFER));
  expect(client.take()).toEqual([resume("fresh", 1, 1, ITS_LIMITS)]);
  await client.receive(resumed("next", 1));
  expect(client.events.at(-1)).toBe("resume");
});

it("a client whose next server takes no binary frames sends it none", async () => {
  const client = new Scripted({ use: [bytes], reconnect: true });
  const sent: unknown[] = [];
  for (const first of [hello(undefined, { bytes: true }), note("plain")]) {
    await client.accept(first);
    await client.peer.opened;
    client.peer.notify("n", [bytes(new Uint8Array([1, 2, 3]))]);
    await turn();
    sent.push(client.take().at(-1));
    await client.lose();
  }
  expect(sent).toEqual([expect.any(Uint8Array), note("AQID")]);
});

describe("a client's session without a socket (rule 8)", () => {
  it("lasts for its timeout from the loss, also if attempts fail meanwhile, and not a moment longer", async () => {
    const client = await Scripted.live();
    await client.lose();
    await pass(30_000);
    await client.accept(hello(OFFER));
    await client.lose();
    await pass(29_999);
    expect(client.events).toEqual(["suspend"]);
    await pass(1);
    expect(client.events).toEqual(["suspend", "lost"]);
  });

  it("does not expire at the client while a connection attempt runs, whose result decides", async () => {
    for (const isResumed of [true, false]) {
      const client = await Scripted.live({ openTimeoutMs: Infinity });
      await client.lose();
      await client.accept(hello(OFFER));
      await pass(TTL_MS + 5_000);
      expect(client.events).toEqual(["suspend"]);
      if (isResumed) await client.receive(resumed("next", 1));
      else await client.lose();
      expect(client.events).toEqual(["suspend", isResumed ? "resume" : "lost"]);
    }
  });

  it("expires if its timer fires a fraction early", async () => {
    const client = await Scripted.live();
    await client.lose();
    const { now } = performance;
    const early = vi.spyOn(performance, "now").mockImplementation(() => now.call(performance) - 0.5);
    await pass(TTL_MS);
    early.mockRestore();
    expect(client.events).toEqual(["suspend", "lost"]);
  });
});

describe("the end of a connection", () => {
  it("comes 5 s after a bye without a close, or when this side closes", async () => {
    const client = await Scripted.live();
    await client.receive('{"bye":{"code":1001,"reason":"going away"}}');
    const { closes } = network.scripted;
    await pass(4_999);
    expect([client.events, closes]).toEqual([[], []]);
    await pass(1);
    expect([client.events, closes[0]![0]]).toEqual([["suspend", "lost"], 4000]);
    const other = await Scripted.live();
    await other.receive('{"bye":{"code":1001,"reason":""}}');
    const closed = other.peer.close(4002, "done");
    expect(network.scripted.closes).toEqual([[4002, "done"]]);
    await closed;
    expect(other.events).toEqual(["close 4002"]);
  });

  it("follows a queue that is too long soon, and not inside `notify`; nothing of it is sent later", async () => {
    const client = await Scripted.live();
    await client.lose();
    while (client.peer.notify("n", ["x".repeat(4000)]));
    expect(client.events).toEqual(["suspend"]);
    await turn();
    expect(client.events).toEqual(["suspend", "lost"]);
    await client.accept(hello(OFFER));
    client.peer.notify("n", ["fresh"]);
    await turn();
    expect(client.take().slice(1)).toEqual([pack(note("fresh"))]);
  });

  it("happens once, also if the client closes after its queue was too long", async () => {
    const client = await Scripted.live();
    await client.lose();
    while (client.peer.notify("n", ["x".repeat(4000)]));
    await client.peer.close();
    expect(client.events).toEqual(["suspend", "close 1000"]);
  });

  it("drops what a listener of `suspend` sends, which belongs to the lost connection", async () => {
    const client = await Scripted.live({ reconnect: true });
    client.peer.once("suspend", () => client.peer.notify("n", ["of the old"]));
    await client.lose(1008);
    client.peer.notify("n", ["of the new"]);
    await client.accept(hello(OFFER));
    const sent = client.take().join();
    expect(sent).toContain(note("of the new"));
    expect(sent).not.toContain(note("of the old"));
    expect(client.events).toEqual(["suspend", "lost", "resume"]);
  });
});

it.each<[string, object, string, (client: Scripted) => unknown, unknown[]]>([
  ["loses nothing in a session: the rest has arrived", {}, hello(OFFER), (client) => client.lose(), [1, 2, 3]],
  ["dispatches nothing more without a session", { reconnect: true }, HELLO, (client) => client.lose(), [1]],
  ["dispatches nothing more if this side has closed", {}, hello(OFFER), (client) => client.peer.close(), [1]],
])("a loss in the middle of a pack %s", async (_what, options, first, lose, got) => {
  const client = new Scripted(options);
  await client.accept(first);
  await client.peer.opened;
  await turn();
  client.onMessage = () => {
    client.onMessage = () => {};
    void lose(client);
  };
  await client.receive(pack(...[1, 2, 3].map((n) => note(n))));
  expect(client.got).toEqual(got);
  if (!("reconnect" in options)) return;
  await client.accept(HELLO, pack(note(4)));
  expect(client.got).toEqual([...got, 4]);
});

describe("a liveness probe", () => {
  const heartbeat = { intervalMs: 1000, deadAfterMs: 2000 };

  it("is a ping frame if the other side understands it, and none is sent before messages flow", async () => {
    const client = await Scripted.live({ heartbeat });
    await pass(1200);
    expect(client.take()).toEqual(['{"ping":1}']);
    await client.lose();
    await client.accept(hello(OFFER));
    await pass(1500);
    expect(client.take()).toEqual([expect.stringContaining("resume")]);
  });

  it("is a ping of the socket if the link is plain and the socket can ping", async () => {
    const serving = new Serving();
    const client = await serving.test.connect(serving.test.server.url, { link: "plain", heartbeat, reconnect: false });
    // Each ping is answered.
    await pass(60_000);
    expect(client.state).toBe("open");
    serving.test.network.of(client).stop();
    await pass(3_000);
    expect(client.state).toBe("closed");
  });
});

it("sums the traffic of all sockets of a link, also those that it has lost or left", async () => {
  const serving = new Serving({ methods: { echo: (params: unknown) => params } });
  const client = await serving.test.connect(serving.test.server.url);
  await client.request("echo", ["x".repeat(1000)]);
  const before = client.stats();
  serving.test.network.cut();
  expect(client.stats().bytesReceived).toBe(before.bytesReceived);
  await pass(1);
  await client.request("echo", [1]);
  expect(client.stats().bytesReceived).toBeGreaterThan(before.bytesReceived + 10);
  expect(serving.served.peer.stats().bytesSent).toBe(client.stats().bytesReceived);
});
