/** Attacks on `authenticate`: it runs as often as the limits allow, and an empty credential passes by no way. */
import type { IncomingMessage } from "node:http";
import { describe, expect, it } from "vitest";
import { ByHand, nextPeer, serving, statusOf } from "../server/by-hand.js";
import { pass, useVirtualClock } from "../support/time.js";

useVirtualClock();

const HELLO = { hello: { session: true, limits: { maxMessageBytes: 2 ** 20, logFrames: 64, logLength: 2 ** 20 } } };

/** As an application writes it: an empty credential is its result. */
function authenticate({ headers }: IncomingMessage, auth: unknown): unknown {
  const credential = auth ?? headers.authorization;
  return credential && { credential };
}

describe("an empty credential", () => {
  it("passes `auth && verify(auth)` by no hello, resume, `auth` or header", async () => {
    const world = await serving<any>({ authenticate });
    const opened = async (auth: unknown, returns = false): Promise<ByHand> => {
      const byHand = await ByHand.open(world.url, { offersAuth: true, returns });
      byHand.say({ hello: { auth } });
      return byHand;
    };
    for (const empty of ["", 0, false, null]) {
      for (const returns of [false, true]) expect((await (await opened(empty, returns)).closed).code).toBe(4401);
      const coming = nextPeer(world.server);
      const inside = await opened("token");
      const peer = await coming;
      inside.say(HELLO);
      inside.say({ auth: empty });
      expect((await inside.closed).code).toBe(4401);
      expect(peer.auth).toEqual({ credential: "token" });
    }
    expect(await statusOf(world.url, { authorization: "" })).toBe(401);
    expect(world.server.stats()).toMatchObject({ opened: 4, refused: { 401: 13 } });
    await world.server.close();
  });
});

describe("a client that authenticates again and again", () => {
  it("runs authenticate as often as `maxMessagesPerSecond` allows, waits beyond that, and loses nothing", async () => {
    let calls = 0;
    const world = await serving<any>({
      authenticate: (_request, auth) => (calls++, { auth }),
      limits: { maxMessagesPerSecond: 10 },
    });
    const coming = nextPeer(world.server);
    const byHand = await ByHand.open(world.url, { offersAuth: true });
    byHand.say({ hello: { auth: 0 } });
    const peer = await coming;
    byHand.say(HELLO);
    await pass(0);
    while (byHand.unread.length > 0) await byHand.next();
    expect(calls).toBe(1);
    const flood = async (ms: number): Promise<void> => {
      for (let at = 0; at <= ms; at += 10) {
        for (; byHand.unread.length > 0; byHand.say({ auth: ++sent })) expect(await byHand.next()).toEqual(REPLY);
        await pass(at === ms ? 0 : 10);
      }
    };
    let sent = 1;
    byHand.say({ auth: 1 });
    await pass(0);
    await flood(0);
    for (let i = 0; i < 50; i++) await flood(0);
    expect(calls).toBe(1 + 10);
    // The next one waits, and so its client sends no more.
    expect(sent).toBe(11);
    await flood(5_000);
    expect(calls).toBe(1 + 10 + 50);
    expect(peer.state).toBe("open");
    expect(peer.auth).toEqual({ auth: sent - 1 });
    await world.server.close();
  });

  it("shares that limit with its messages", async () => {
    let calls = 0;
    const world = await serving<any>({
      authenticate: () => ++calls,
      limits: { maxMessagesPerSecond: 10 },
      methods: { ran: () => true },
    });
    const coming = nextPeer(world.server);
    const byHand = await ByHand.open(world.url, { offersAuth: true });
    byHand.say({ hello: { auth: 0 } });
    const peer = await coming;
    byHand.say(HELLO);
    byHand.say(Array.from({ length: 10 }, () => ({ jsonrpc: "2.0", method: "ran" })));
    byHand.say({ auth: 1 });
    await pass(0);
    expect(calls).toBe(1);
    // It never runs if the client disconnects before its turn.
    byHand.cut();
    await pass(10_000);
    expect(calls).toBe(1);
    expect(peer.stats()).toMatchObject({ notificationsReceived: 10, refusedRate: 0 });
    await world.server.close();
  });
});

const REPLY = { authenticated: true };
