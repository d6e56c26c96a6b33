/** Reaches limits as single messages do not: with many messages in one pack, in fragments, by HTTP POST, over a resumed session. */
import { describe, expect, it, vi } from "vitest";
import { CONTINUATION, frame, TEXT } from "../../bench/attacks/floods.js";
import { Subscriptions, type ServerContext } from "../../src/node.js";
import { begun, ByHand, drop, LIMITS, serving } from "../server/by-hand.js";
import { post } from "../support/post.js";
import { notification, request } from "../support/raw.js";
import { closeFrame, rawSocket, target } from "./support/server.js";
import { gate, useVirtualClock } from "../support/time.js";

function messageOf(bytes: number): object {
  const empty = JSON.stringify(notification("m", [""]));
  return notification("m", ["x".repeat(bytes - empty.length)]);
}

function calls(method: string, count: number): object[] {
  return Array.from({ length: count }, (_, i) => request(i + 1, method));
}

function codesOf(responses: readonly { error?: { code: number } }[]): Record<string, number> {
  const codes: Record<string, number> = {};
  for (const { error } of responses) {
    const code = error === undefined ? "result" : String(error.code);
    codes[code] = (codes[code] ?? 0) + 1;
  }
  return codes;
}

async function sendPack(url: string, pack: readonly object[]): Promise<ByHand> {
  const client = await ByHand.open(url);
  client.say({ hello: {} });
  client.say([...pack]);
  return client;
}

/** Returns the next `count` responses that a client gets on `reciproc.v1`, with batches split. */
async function collect(client: ByHand, count: number): Promise<any[]> {
  const messages: any[] = [];
  while (messages.length < count) {
    const next = (await client.next()) as unknown;
    if (Array.isArray(next)) messages.push(...(next as unknown[]).flat());
  }
  return messages;
}

describe("`maxMessageBytes`", () => {
  const limits = { maxMessageBytes: 1000 };
  const TOO_LONG = { code: 1009 };
  const half = messageOf(500);
  const several = Array.from({ length: 20 }, () => messageOf(1000));
  let ran = 0;
  const methods = { m: () => void ran++ };

  it.each<[string, object]>([
    ["a message", messageOf(1001)],
    ["a batch", [half, half]],
  ])("is reached by %s in a pack, and closes with 1009", async (_what, last) => {
    ran = 0;
    const { url } = await serving({ limits, methods });
    expect(await (await sendPack(url, [...several, last])).closed).toMatchObject(TOO_LONG);
    expect(ran).toBe(0);
  });

  it("holds for a message in fragments", async () => {
    ran = 0;
    await using on = await target({ limits, methods });
    using raw = await rawSocket(on);
    const text = JSON.stringify(messageOf(1001));
    await raw.write(frame(TEXT, text.slice(0, 400), false));
    await raw.write(frame(CONTINUATION, text.slice(400, 800), false));
    await raw.write(frame(CONTINUATION, text.slice(800)));
    expect(await closeFrame(raw.socket)).toMatchObject(TOO_LONG);
    expect(ran).toBe(0);
  });

  it("holds on a socket that offers to resume, before and after its client has sent `resume`", async () => {
    const world = await serving({ limits });
    const { url, server } = world;
    const early = await ByHand.open(url, { returns: true });
    early.say({ resume: { token: "x".repeat(30_000), received: 0, attempt: 1, limits: LIMITS } });
    expect(await early.closed).toMatchObject(TOO_LONG);
    expect(server.peers.size).toBe(0);
    const session = await begun(world);
    await drop(session);
    const { byHand } = await ByHand.resume(url, session.token, 1);
    byHand.say([messageOf(1001)]);
    expect(await byHand.closed).toMatchObject(TOO_LONG);
    expect(await session.peer.closed).toMatchObject(TOO_LONG);
  });
});

it("`maxBatchEntries` counts each batch of a pack alone", async () => {
  const { url } = await serving({ limits: { maxBatchEntries: 3 }, methods: { m: () => 1 } });
  const client = await sendPack(url, [calls("m", 3), calls("m", 3)]);
  expect(codesOf(await collect(client, 6))).toEqual({ result: 6 });
});

describe("`maxMessagesPerSecond`", () => {
  useVirtualClock();

  it("is reached by the calls of a pack, and by a batch by HTTP POST", async () => {
    let ran = 0;
    await using on = await target({ limits: { maxMessagesPerSecond: 10 }, methods: { m: () => ++ran } });
    const expected = { result: 10, "-32009": 40 };
    expect(codesOf(await collect(await sendPack(on.url, calls("m", 50)), 50))).toEqual(expected);
    expect(codesOf((await (await post(on.url, calls("m", 50))).json()) as object[])).toEqual(expected);
    expect(ran).toBe(20);
  });
});

it("`maxBatchEntries` and `maxInFlight` hold for a batch by HTTP POST", async () => {
  const open = gate();
  let ran = 0;
  const limits = { maxBatchEntries: 5, maxInFlight: 2 };
  await using on = await target({ limits, methods: { hang: () => (ran++, open.promise) } });
  expect(await (await post(on.url, calls("here", 6))).json()).toMatchObject({ id: null, error: { code: -32010 } });
  const response = post(on.url, calls("hang", 5));
  await vi.waitFor(() => expect(on.server.stats().refusedBusy + ran).toBe(5));
  open.resolve();
  expect(codesOf((await (await response).json()) as object[])).toEqual({ result: 2, "-32009": 3 });
});

it("`maxStreams` holds for a batch by HTTP POST, in which each stream is read to its end", async () => {
  const all = gate();
  let called = 0;
  async function* counted(): AsyncGenerator<number> {
    await all.promise;
    yield 1;
  }
  const methods = { counted: () => (++called === 5 && all.resolve(), counted()) };
  await using on = await target({ limits: { maxStreams: 2 }, methods });
  const answers = (await (await post(on.url, calls("counted", 5))).json()) as object[];
  expect(codesOf(answers)).toEqual({ result: 2, "-32009": 3 });
});

describe("the limits of a session", () => {
  useVirtualClock();

  const kind = new Subscriptions({ method: "said", limits: { maxPerPeer: 3 } });
  const methods = {
    hang: (_params: unknown, { signal }: ServerContext) =>
      new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve())),
    subscribe: (_params: unknown, context: ServerContext) => kind.open(context).id,
    async *endless() {
      for (;;) yield 1;
    },
  };

  it.each<[limit: string, value: number, method: string, expected: object]>([
    ["maxInFlight", 3, "hang", { error: { code: -32009 } }],
    ["maxStreams", 3, "endless", { error: { code: -32009 } }],
    ["maxPerPeer", 3, "subscribe", { error: { code: -32006 } }],
    ["maxMessagesPerSecond", 3, "none", { error: { code: -32009 } }],
    ["maxMalformedPerMinute", 3, "", { bye: { code: 1008 } }],
  ])("count on when it is resumed: %s", async (limit, value, method, expected) => {
    const world = await serving({ limits: limit === "maxPerPeer" ? {} : { [limit]: value }, methods });
    const session = await begun(world);
    const message = (id: unknown): object => (method === "" ? {} : request(id, method));
    session.byHand.say([1, 2, 3].map(message));
    session.byHand.say({ ping: 1 });
    while ((await session.byHand.next()).pong !== 1);
    await drop(session);
    const { byHand, answer } = await ByHand.resume(world.url, session.token, 1);
    expect(answer).toHaveProperty("resumed.token");
    byHand.say([message("one more")]);
    // Earlier replies are sent again: their ack was lost with the socket.
    for (;;) {
      const next: any = await byHand.next();
      const reply = Array.isArray(next) ? next.find(({ id }) => id === "one more") : next.bye && next;
      if (reply !== undefined) return expect(reply).toMatchObject(expected);
    }
  });
});
