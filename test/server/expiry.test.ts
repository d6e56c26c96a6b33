import type { IncomingMessage } from "node:http";
import { describe, expect, it, vi } from "vitest";
import type { AnyPeer, Attempt, ConnectOptions, FeaturePart } from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { Random } from "../faults/random.js";
import { gate, pass, raising, sleep, stall, useVirtualClock } from "../support/time.js";
import { ByHand, LIMITS, nextPeer, recorded, serving, statusOf } from "./by-hand.js";

useVirtualClock();

const EXPIRED = { code: 4001, reason: "the credentials have expired" };

/** What a client sends: as `auth`, or as JSON in its cookie. */
interface Token {
  user: string;
  /** When it expires, by the clock of the test. `null`: never. */
  until: number | null;
}

const now = (): number => performance.now();
const valid = (ms: number): Token => ({ user: "ada", until: now() + ms });
const headersOf = (token: Token): { cookie: string } => ({ cookie: JSON.stringify(token) });

const options = {
  heartbeat: false as const,
  authenticate: ({ headers }: IncomingMessage, auth: unknown): Token =>
    (auth as Token | undefined) ?? (JSON.parse(headers.cookie!) as Token),
  principal: ({ user }: Token) => user,
  expiresInMs: ({ until }: Token) => (until === null ? undefined : until - now()),
};

/** A client whose part of the feature ignores the server, as a page without the feature does. */
const ignore = { receiveFrame() {} } as FeaturePart;
const withoutRenewal = { use: [{ name: "renewal", methods: () => [], create: () => ignore }] };

describe("a socket whose credentials expire", () => {
  it.each<[string, object, ConnectOptions, boolean]>([
    ["of a session", {}, {}, true],
    ["of a connection without a session", { session: false }, { reconnect: true }, false],
    ["of a plain connection", {}, { link: "plain", reconnect: true }, false],
  ])("is closed with 4001, and nothing that arrives later runs: %s", async (_what, more, client, hasSession) => {
    const ran: number[] = [];
    const methods = { run: (_params: unknown, { peer }: { peer: AnyPeer }) => ran.push(peer.auth.until - now()) };
    await using kit = testServer<any, any, Token>({ ...options, ...more, methods });
    const attempts: Attempt[] = [];
    const headers = (attempt: Attempt): { cookie: string } => (attempts.push(attempt), headersOf(valid(5_000)));
    const peer = await kit.connect(kit.server.url, { ...client, headers, heartbeat: false });
    const [serverPeer] = kit.server.peers;
    await peer.request("run");
    await pass(4_999);
    kit.network.stop();
    const call = peer.request("run").catch(({ outcome }: { outcome: string }) => outcome);
    await pass(1);
    kit.network.start();
    await pass(0);
    expect(await call).toBe(hasSession ? 2 : "unknown");
    expect(attempts.at(-1)).toEqual({ number: 1, reason: EXPIRED });
    expect(kit.server.peers.has(serverPeer!)).toBe(hasSession);
    if (!hasSession) expect(await serverPeer!.closed).toMatchObject(EXPIRED);
    await peer.request("run");
    expect(ran).toEqual(hasSession ? [5_000, 5_000, 5_000] : [5_000, 5_000]);
    await peer.close();
  });

  it("is closed without a bye, before the client's hello too, and by no result that comes after the time", async () => {
    const late = gate<Token>();
    const authenticate = (_request: IncomingMessage, auth: unknown): unknown => (auth === "late" ? late.promise : auth);
    const world = await serving<any>({ ...options, authenticate });
    const coming = nextPeer(world.server);
    const byHand = await ByHand.open(world.url, { offersAuth: true });
    byHand.say({ hello: { auth: valid(900) } });
    const peer = await coming;
    byHand.say({ hello: { session: true, limits: LIMITS } });
    byHand.say({ auth: "late" });
    const silent = await ByHand.open(world.url, { offersAuth: true });
    silent.say({ hello: { auth: valid(900) } });
    const returning = await ByHand.open(world.url, { returns: true, offersAuth: true });
    returning.say({ hello: { auth: valid(900) } });
    await pass(900);
    returning.say({ resume: { token: "a", received: 0, attempt: 1, limits: LIMITS } });
    for (const { closed } of [byHand, silent, returning]) expect(await closed).toEqual(EXPIRED);
    late.resolve(valid(5_000));
    await pass(0);
    expect([byHand.unread.length, silent.unread.length, peer.state]).toEqual([2, 2, "suspended"]);
    expect(peer.auth.until - now()).toBe(0);
  });

  it.each<[lifeMs: number, from: number, to: number, most: number]>([
    [1_000, Infinity, 0, 0],
    [8_000, 4_000, 6_000, 5],
    [60_000, 30_000, 45_000, 8],
    [300_000, 240_000, 270_000, 8],
    [86_400_000, 86_340_000, 86_370_000, 8],
    // Longer than a timer of the runtime can wait.
    [2 ** 32, 2 ** 31 - 1, 2 ** 31 - 1, 9],
  ])("after %i ms gets its first question between %i and %i ms, and at most %i", async (lifeMs, from, to, most) => {
    const world = await serving<Token>(options);
    const byHand = await ByHand.open(world.url, { offersAuth: true });
    const begin = now();
    byHand.say({ hello: { auth: valid(lifeMs) } });
    await byHand.hello();
    const asked: number[] = [];
    void (async () => {
      for (;;) {
        expect(await byHand.next()).toEqual({ auth: true });
        asked.push(now() - begin);
      }
    })();
    await pass(lifeMs - 1);
    expect(world.server.stats()).toMatchObject({ suspended: 0 });
    await pass(1);
    expect(await byHand.closed).toEqual(EXPIRED);
    expect(asked.length).toBeLessThanOrEqual(most);
    expect(asked.length === 0).toBe(most === 0);
    for (const at of asked) expect(at).toBeLessThan(lifeMs);
    if (most > 0) expect(asked[0]).toSatisfy((at: number) => at >= from && at <= to);
  });

  it("gets no question if it was authenticated by its request, or before the reply to an `auth`", async () => {
    const authenticate = (request: IncomingMessage, auth: unknown): unknown =>
      auth === "late" ? new Promise(() => {}) : options.authenticate(request, auth);
    const world = await serving<any>({ ...options, authenticate, limits: { handshakeTimeoutMs: 100_000 } });
    const byRequest = await ByHand.open(world.url, { headers: headersOf(valid(60_000)) });
    const byHello = await ByHand.open(world.url, { offersAuth: true });
    byHello.say({ hello: { auth: valid(60_000) } });
    for (const byHand of [byRequest, byHello]) await byHand.hello();
    byHello.say({ auth: "late" });
    await pass(60_000);
    for (const byHand of [byRequest, byHello]) expect([await byHand.closed, byHand.unread]).toEqual([EXPIRED, []]);
  });
});

it("credentials that have expired are refused with 401, and so are those of a wrong time, with an error", async () => {
  let ms: unknown;
  const expiresInMs = (): never => ms as never;
  const world = await serving<any>({ authenticate: () => ({}), expiresInMs });
  const { refusals, errors } = recorded(world.server);
  for (ms of [0, -1, -Infinity]) expect(await statusOf(world.url)).toBe(401);
  expect(refusals).toEqual(Array(3).fill(expect.stringMatching(/^401 .*expired/)));
  const byHand = await ByHand.open(world.url, { offersAuth: true });
  byHand.say({ hello: { auth: {} } });
  expect(await byHand.closed).toEqual({ ...EXPIRED, code: 4401 });
  expect(errors).toEqual([]);
  for (ms of [NaN, "5", null, 1e12, Infinity, Promise.resolve(5)]) expect(await statusOf(world.url)).toBe(401);
  expect(errors).toHaveLength(6);
  for (const error of errors) expect(String(error)).toMatch(/^TypeError: .*`expiresInMs(\(\))?`/);
});

it("a client that the server asks sends a fresh `auth`, emits what the function throws, and is asked again, without a suspension", async () => {
  await using kit = testServer<any, any, Token>(options);
  const refreshed: number[] = [];
  kit.server.on("refresh", ({ auth }) => refreshed.push(auth.until! - now()));
  const auth = vi.fn<(attempt: Attempt) => Token | Promise<Token>>(() => valid(60_000));
  const peer = await kit.connect(kit.server.url, { auth, heartbeat: false });
  const emitted: unknown[] = [];
  peer.on("error", (error) => emitted.push(error)).on("suspend", () => emitted.push("suspend"));
  const thrown = new Error("no token");
  auth.mockImplementationOnce(raising(thrown));
  await pass(600_000);
  // The loss of a connection is no failure of the function.
  await peer.reauthenticate();
  auth.mockReturnValue(new Promise<Token>(() => {}));
  await pass(45_000);
  await peer.close();
  expect(emitted).toEqual([thrown]);
  expect(new Set(refreshed)).toEqual(new Set([60_000]));
  expect(refreshed.length).toBeGreaterThanOrEqual(13);
  expect(new Set(auth.mock.calls.map(([{ number }]) => number))).toEqual(new Set([0, 1]));
});

const MINUTE_MS = 60_000;

/**
 * Four pages with tokens of five minutes. For a part of most hours, the auth service throws for the pages, says 503 to the server, or is late for
 * both. A page that sleeps has no network for up to three hours. In some hours, all timers stand still. The last hour is quiet.
 */
it.each([1])("no page is dead after a day of failures of the auth service, and of sleep: seed %i", async (seed) => {
  const random = new Random(seed);
  vi.spyOn(Math, "random").mockImplementation(() => random.next());
  let service: "works" | "throws" | "503" | "late" = "works";
  const ask = async (failure: typeof service): Promise<void> => {
    if (service === "late") await sleep(random.below(9_000));
    if (service === failure) throw Object.assign(new Error("away"), { status: 503 });
  };
  const token = async (): Promise<Token> => (await ask("throws"), valid(5 * MINUTE_MS));
  const heartbeat = { intervalMs: MINUTE_MS, deadAfterMs: 2 * MINUTE_MS };
  let servedLate = 0;
  await using kit = testServer<any, any, Token>({
    ...options,
    authenticate: async (...given) => (await ask("503"), options.authenticate(...given)),
    methods: { call: (_params, { peer }) => void (servedLate += Number(peer.auth.until! < now())) },
  });
  kit.server.on("error", () => {});
  const pages = [withoutRenewal, {}, {}, {}].map((given) => {
    const reconnect = { initial: true, maxDelayMs: 30_000 };
    const peer = kit.open(kit.server.url, { auth: token, heartbeat, reconnect, ...given });
    const page = { peer, wakesAt: 0, troubles: 0, returns: 0 };
    peer.on("resume", () => page.returns++).on("error", () => {});
    return page;
  });
  for (let hour = 1; hour <= 24; hour++) {
    const isLast = hour === 24;
    service = isLast ? "works" : random.pick(["works", "throws", "503", "late"]);
    const [isFrozen, worksAfter] = [!isLast && random.chance(0.2), random.below(60)];
    if (isFrozen) stall(random.below(60) * MINUTE_MS);
    // The timers that are late fire before a page calls.
    await pass(0);
    for (const page of pages) {
      const sleeps = !isLast && page.wakesAt <= now() && random.chance(0.3);
      page.troubles += Number(service !== "works") + Number(isFrozen) + Number(sleeps);
      if (!sleeps) continue;
      page.wakesAt = now() + random.below(180) * MINUTE_MS;
      kit.network.of(page.peer).stop();
    }
    for (let minute = 0; minute < 60; minute++) {
      if (minute === worksAfter) service = "works";
      for (const { peer, wakesAt } of pages) {
        if (isLast || wakesAt <= now()) kit.network.of(peer).start();
        peer.request("call").catch(() => {});
      }
      await pass(MINUTE_MS);
    }
  }
  expect(await Promise.all(pages.map(({ peer }) => peer.request("call")))).toEqual([null, null, null, null]);
  expect(servedLate).toBe(0);
  const returns = pages.map((page) => page.returns);
  // Each trouble costs a page one connection at most, and a token costs one only if the page does not answer the question of the server.
  expect(returns.map((count, i) => count > 0 && count <= pages[i]!.troubles)).toEqual([false, true, true, true]);
});
