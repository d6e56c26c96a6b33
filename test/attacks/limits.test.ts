/**
 * Limits in ways that the tests of each limit do not have: several messages in one pack, a message in fragments, an `authenticate` that
 * never ends, a resumed session.
 */
import { describe, expect, it, vi } from "vitest";
import { CONTINUATION, frame, TEXT } from "../../bench/attacks/floods.js";
import { virtualClock } from "../../src/testing/index.js";
import { begun, ByHand, drop, LIMITS as CLIENT_LIMITS, servingOnPort } from "../server/by-hand.js";
import { upgrade } from "../support/network.js";
import { post, postRaw } from "../support/post.js";
import { notification, request } from "../support/raw.js";
import { closeFrame, rawSocket, target } from "./support/server.js";

/** Returns a notification of `bytes` bytes. */
function messageOf(bytes: number): object {
  const empty = JSON.stringify(notification("m", [""]));
  return notification("m", ["x".repeat(bytes - empty.length)]);
}

/** Returns `count` calls of `m`, with ids from 1. */
function calls(count: number): object[] {
  return Array.from({ length: count }, (_, i) => request(i + 1, "m"));
}

/** Opens a WebSocket for packs without a session, and sends one. */
async function sendPack(url: string, pack: readonly unknown[]): Promise<ByHand> {
  const client = await ByHand.open(url);
  client.say({ hello: {} });
  client.say([...pack]);
  return client;
}

/** Returns the results and the error codes in the next `count` responses of a client, with batches split. */
async function outcomes(client: ByHand, count: number): Promise<unknown[]> {
  const responses: unknown[] = [];
  while (responses.length < count) {
    const next = (await client.next()) as unknown;
    if (Array.isArray(next)) responses.push(...(next as unknown[]).flat());
  }
  return outcomesOf(responses);
}

function outcomesOf(responses: unknown[]): unknown[] {
  return responses.map((one) => {
    const { result, error } = one as { result?: unknown; error?: { code: number } };
    return error?.code ?? result;
  });
}

describe("`maxMessageBytes`", () => {
  const limits = { maxMessageBytes: 1000 };
  const TOO_LONG = { code: 1009 };
  const half = messageOf(500);

  it.each<[string, object]>([
    ["a message", messageOf(1001)],
    ["a batch", [half, half]],
  ])("is reached by %s in a pack, and by no pack: the connection closes with 1009", async (_what, last) => {
    let ran = 0;
    await using on = await target({ limits, methods: { m: () => void ran++ } });
    const coming = on.next();
    const several = Array.from({ length: 20 }, () => messageOf(1000));
    const client = await sendPack(on.url, several);
    await vi.waitFor(() => expect(ran).toBe(20));
    client.say([...several, last]);
    expect(await (await coming).closed).toMatchObject(TOO_LONG);
    expect(ran).toBe(20);
  });

  it("holds for a message in fragments", async () => {
    let ran = 0;
    await using on = await target({ limits, methods: { m: () => void ran++ } });
    using raw = await rawSocket(on);
    const text = JSON.stringify(messageOf(1001));
    await raw.write(frame(TEXT, text.slice(0, 400), false));
    await raw.write(frame(CONTINUATION, text.slice(400, 800), false));
    await raw.write(frame(CONTINUATION, text.slice(800)));
    expect(await closeFrame(raw.socket)).toMatchObject(TOO_LONG);
    expect(ran).toBe(0);
  });

  it("holds on a socket that offers to resume, before its client has sent `resume`, and again after that", async () => {
    const world = await servingOnPort({ limits });
    const early = await ByHand.open(world.url, { returns: true });
    early.say({ resume: { token: "x".repeat(30_000), received: 0, attempt: 1, limits: CLIENT_LIMITS } });
    expect(await early.closed).toMatchObject(TOO_LONG);
    const session = await begun(world);
    await drop(session);
    const { byHand } = await ByHand.resume(world.url, session.token, 1);
    byHand.say([messageOf(1001)]);
    expect(await byHand.closed).toMatchObject(TOO_LONG);
    expect(await session.peer.closed).toMatchObject(TOO_LONG);
  });
});

it("`maxBatchEntries` counts each batch of a pack separately", async () => {
  await using on = await target({ limits: { maxBatchEntries: 3 }, methods: { m: () => 1 } });
  expect(await outcomes(await sendPack(on.url, [calls(3), calls(3)]), 6)).toEqual(Array(6).fill(1));
});

it("`maxMessagesPerSecond` holds for a pack, for a batch by HTTP POST, and over a resumed session", async () => {
  using clock = virtualClock();
  expect(clock.now).toBe(0);
  const limited = [...Array<unknown>(10).fill(1), ...Array<unknown>(40).fill(-32009)];
  const world = await servingOnPort({ limits: { maxMessagesPerSecond: 10 }, methods: { m: () => 1 } });
  expect(await outcomes(await sendPack(world.url, calls(50)), 50)).toEqual(limited);
  expect(outcomesOf((await (await post(world.url, calls(50))).json()) as unknown[])).toEqual(limited);
  const session = await begun(world);
  session.byHand.say(calls(50));
  expect(await outcomes(session.byHand, 50)).toEqual(limited);
  await drop(session);
  const { byHand } = await ByHand.resume(world.url, session.token, 1);
  byHand.say(calls(50));
  // Earlier replies are sent again: their ack was lost with the socket.
  expect(await outcomes(byHand, 100)).toEqual([...limited, ...Array<unknown>(50).fill(-32009)]);
});

it("`handshakeTimeoutMs` holds for an `authenticate` that takes longer: 503 for upgrades and POSTs", async () => {
  using clock = virtualClock();
  // Node has the same time to read a request, by its own clock.
  const limits = { handshakeTimeoutMs: 600_000 };
  let asked = 0;
  const authenticate = (): Promise<unknown> => (asked++, new Promise(() => {}));
  await using on = await target({ limits, authenticate });
  const answers = Promise.all([upgrade(on.url), postRaw(on.url, JSON.stringify(request(1, "here")))]);
  await vi.waitFor(() => expect(asked).toBe(2));
  await clock.pass(600_000);
  for (const { status, headers } of await answers) {
    expect(status).toBe(503);
    expect(Number(headers["retry-after"])).toBeGreaterThan(0);
  }
});
