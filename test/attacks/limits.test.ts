/**
 * Reaches each limit of the table in docs/API.md as test/conformance does not: with many messages in one pack, in fragments, by HTTP
 * POST, over a resumed session.
 */
import { readFile } from "node:fs/promises";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { CONTINUATION, frame, TEXT } from "../../bench/attacks/floods.js";
import { Subscriptions, type AnyPeer, type ServerContext } from "../../src/node.js";
import { virtualClock } from "../../src/testing/index.js";
import {
  begun,
  ByHand,
  drop,
  LIMITS as CLIENT_LIMITS,
  servingOnPort,
  suspended,
  type Serving,
} from "../server/by-hand.js";
import { upgrade } from "../support/network.js";
import { post, postRaw } from "../support/post.js";
import { notification, request } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";
import { closeFrame, rawSocket, target } from "./support/server.js";

/** Returns a notification of `bytes` bytes. */
function messageOf(bytes: number): object {
  const empty = JSON.stringify(notification("m", [""]));
  return notification("m", ["x".repeat(bytes - empty.length)]);
}

/** Returns `count` calls of `method`, with ids from 1. */
function calls(method: string, count: number): object[] {
  return Array.from({ length: count }, (_, i) => request(i + 1, method));
}

/** Counts the responses by error code, or by `result` without an error. */
function codesOf(responses: readonly any[]): Record<string, number> {
  const codes: Record<string, number> = {};
  for (const { error } of responses as { error?: { code: number } }[]) {
    const code = error === undefined ? "result" : String(error.code);
    codes[code] = (codes[code] ?? 0) + 1;
  }
  return codes;
}

/** Sends a pack over `reciproc.v1`. The returned function resolves with the next `count` replies, with batches split. */
async function sendPack(url: string, pack: readonly object[]): Promise<(count: number) => Promise<any[]>> {
  const client = await packed(url);
  client.say([...pack]);
  return (count) => collect(client, count);
}

/** Opens a WebSocket for packs, without a session. */
async function packed(url: string): Promise<ByHand> {
  const client = await ByHand.open(url);
  client.say({ hello: {} });
  return client;
}

/** Returns the next `count` messages of a client on `reciproc.v1`, with batches split. */
async function collect(client: ByHand, count: number): Promise<any[]> {
  const messages: any[] = [];
  while (messages.length < count) {
    const next = (await client.next()) as unknown;
    if (Array.isArray(next)) messages.push(...(next as unknown[]).flat());
  }
  return messages;
}

/** Opens a session, runs `before`, drops the socket, resumes, and runs `after` on the new socket. */
async function acrossResume(
  world: Serving<any>,
  before: (client: ByHand, peer: AnyPeer) => unknown,
  after: (client: ByHand) => Promise<unknown>,
): Promise<AnyPeer> {
  const session = await begun(world);
  const { byHand, peer, token } = session;
  await before(byHand, peer);
  await drop(session);
  const { byHand: next, answer } = await ByHand.resume(world.url, token, 1);
  expect(answer).toMatchObject({ resumed: { token: expect.any(String) as string } });
  await after(next);
  return peer;
}

/** Tests that a session which has used `count` of a limit before it is resumed is refused one more call after that. */
function isNotResetByResuming(
  make: () => { limits?: object; methods: Record<string, (params: any, context: any) => unknown> },
  method: string,
  count: number,
  code: number,
): void {
  it("is not reset over a resumed session", async () => {
    await acrossResume(
      await servingOnPort(make()),
      async (client, peer) => {
        client.say(calls(method, count));
        await vi.waitFor(() => expect(peer.stats().requestsReceived).toBe(count));
      },
      async (client) => {
        client.say([request("one more", method)]);
        // Earlier replies are sent again: their ack was lost with the socket.
        let [reply] = await collect(client, 1);
        while (reply.id !== "one more") [reply] = await collect(client, 1);
        expect(reply).toMatchObject({ error: { code } });
      },
    );
  });
}

/** Makes a handler that runs until it is aborted, and counts its calls. */
function hanging() {
  const seen = { started: 0 };
  const hang = (_params: unknown, { signal }: ServerContext): Promise<void> => {
    seen.started++;
    return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
  };
  return { seen, methods: { hang } };
}

/** Returns a method that subscribes three times at most. */
function subscribable() {
  const kind = new Subscriptions({ method: "said", limits: { maxPerPeer: 3 } });
  return { methods: { subscribe: (_params: unknown, context: ServerContext) => kind.open(context).id } };
}

/** Sends 50 calls, and awaits as many replies. */
function callFifty(client: ByHand, replies: number): Promise<unknown> {
  client.say(calls("m", 50));
  return collect(client, replies);
}

/** Yields numbers without end. */
async function* endless(): AsyncGenerator<number> {
  for (let i = 0; ; i++) yield i;
}

/** Five streams in one result. */
function offerFive(_params: unknown, { peer }: ServerContext): unknown {
  return Array.from({ length: 5 }, () => peer.offer(endless()));
}

const LIMITS: Record<string, () => void> = {
  maxMessageBytes() {
    const limits = { maxMessageBytes: 1000 };
    const TOO_LONG = { code: 1009 };
    const half = messageOf(500);
    const several = Array.from({ length: 20 }, () => messageOf(1000));

    it.each<[string, object]>([
      ["a message", messageOf(1001)],
      ["a batch", [half, half]],
    ])("is reached by %s in a pack, and closes with 1009", async (_what, last) => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => void ran++ } });
      const coming = on.next();
      await sendPack(on.url, [...several, last]);
      expect(await (await coming).closed).toMatchObject(TOO_LONG);
      expect(ran).toBe(0);
    });

    it("is not reached by a pack of such messages", async () => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => void ran++ } });
      await sendPack(on.url, several);
      await vi.waitFor(() => expect(ran).toBe(20));
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

    it("holds on a socket that offers to resume, before its client has sent `resume`", async () => {
      const { url, server } = await servingOnPort({ limits });
      const client = await ByHand.open(url, { returns: true });
      client.say({ resume: { token: "x".repeat(30_000), received: 0, attempt: 1, limits: CLIENT_LIMITS } });
      expect(await client.closed).toMatchObject(TOO_LONG);
      expect(server.peers.size).toBe(0);
    });

    it("holds over a resumed session", async () => {
      const peer = await acrossResume(
        await servingOnPort({ limits }),
        () => {},
        async (client) => {
          client.say([messageOf(1001)]);
          expect(await client.closed).toMatchObject(TOO_LONG);
        },
      );
      expect(await peer.closed).toMatchObject(TOO_LONG);
    });
  },

  maxBatchEntries() {
    const limits = { maxBatchEntries: 3 };

    it("counts each batch of a pack alone", async () => {
      await using on = await target({ limits });
      const replies = await sendPack(on.url, [calls("here", 3), calls("here", 3)]);
      expect(codesOf(await replies(6))).toEqual({ result: 6 });
    });
  },

  maxInFlight() {
    const limits = { maxInFlight: 4 };

    it.each<[string, object[]]>([
      ["calls", calls("hang", 10)],
      ["notifications", Array<object>(10).fill(notification("hang"))],
    ])("is reached by %s in a pack", async (_what, pack) => {
      const { seen, methods } = hanging();
      await using on = await target({ limits, methods });
      await sendPack(on.url, pack);
      await vi.waitFor(() => expect(on.server.stats()).toMatchObject({ refusedBusy: 6, running: 4 }));
      expect(seen.started).toBe(4);
    });

    isNotResetByResuming(() => ({ limits, methods: hanging().methods }), "hang", 4, -32009);
  },

  maxMalformedPerMinute() {
    const limits = { maxMalformedPerMinute: 5 };
    const CLOSED = { code: 1008, reason: "more than 5 malformed messages in a minute" };

    it("is reached by the messages of a pack", async () => {
      await using on = await target({ limits });
      const coming = on.next();
      await sendPack(on.url, [{}, {}, {}, [], [{}, {}]]);
      expect(await (await coming).closed).toMatchObject(CLOSED);
    });

    it("is not reset over a resumed session", async () => {
      const peer = await acrossResume(
        await servingOnPort({ limits }),
        async (client) => {
          client.say([1, 1, 1]);
          await collect(client, 3);
        },
        async (client) => {
          client.say([1, 1, 1]);
          expect(await client.closed).toEqual(CLOSED);
        },
      );
      expect(await peer.closed).toMatchObject(CLOSED);
    });
  },

  maxStreams() {
    const limits = { maxStreams: 2 };

    it("is reached by short calls in a pack, and by many streams in one result", async () => {
      await using on = await target({ limits, methods: { endless, five: offerFive } });
      const five = await sendPack(on.url, calls("five", 1));
      expect(codesOf(await five(1))).toEqual({ "-32009": 1 });
      const replies = await sendPack(on.url, calls("endless", 5));
      expect(codesOf(await replies(5))).toEqual({ result: 2, "-32009": 3 });
    });

    isNotResetByResuming(() => ({ limits, methods: { endless } }), "endless", 2, -32009);

    it("holds for a batch by HTTP POST, in which each stream is read to its end", async () => {
      const all = gate();
      let called = 0;
      async function* slow(): AsyncGenerator<number> {
        await all.promise;
        yield 1;
      }
      const counted = (): AsyncGenerator<number> => {
        if (++called === 5) all.resolve();
        return slow();
      };
      await using on = await target({ limits, methods: { counted } });
      const answers = (await (await post(on.url, calls("counted", 5))).json()) as object[];
      expect(codesOf(answers)).toEqual({ result: 2, "-32009": 3 });
    });
  },

  maxMessagesPerSecond() {
    const RATE = 10;
    const limits = { maxMessagesPerSecond: RATE };

    beforeEach(() => {
      const clock = virtualClock();
      return () => clock.restore();
    });

    it.each<[string, (url: string, messages: object[]) => Promise<any[]>]>([
      ["in a pack", async (url, messages) => (await sendPack(url, messages))(200)],
      ["in a batch in a pack", async (url, messages) => (await sendPack(url, [messages]))(200)],
      ["in a batch by HTTP POST", async (url, messages) => (await post(url, messages)).json() as Promise<any[]>],
    ])("is reached by calls %s", async (_way, send) => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => ++ran } });
      expect(codesOf(await send(on.url, calls("m", 200)))).toEqual({ result: RATE, "-32009": 200 - RATE });
      expect(ran).toBe(RATE);
    });

    it("is not refilled over a resumed session", async () => {
      let ran = 0;
      await acrossResume(
        await servingOnPort({ limits, methods: { m: () => ++ran } }),
        (client) => callFifty(client, 50),
        // Earlier replies are sent again: their ack was lost with the socket.
        (client) => callFifty(client, 100),
      );
      expect(ran).toBe(RATE);
    });
  },

  maxSuspendedPerPrincipal() {
    it("holds for a session that was resumed in between: its age counts from its latest loss", async () => {
      const world = await servingOnPort<string>({
        limits: { maxSuspendedPerPrincipal: 2 },
        authenticate: ({ headers }) => headers.cookie,
        principal: (cookie) => cookie.split(".")[0]!,
      });
      const first = await suspended(world, { cookie: "ada.1" });
      const second = await suspended(world, { cookie: "ada.2" });
      const { byHand } = await ByHand.resume(world.url, first.token, 1, { cookie: "ada.1" });
      byHand.say({ ack: 0 });
      byHand.say({ ping: 1 });
      await byHand.next();
      await drop({ byHand, peer: first.peer });
      await suspended(world, { cookie: "ada.3" });
      expect(await second.peer.closed).toMatchObject({
        code: 1013,
        reason: expect.stringContaining("maxSuspendedPerPrincipal") as string,
      });
      expect(first.peer.state).toBe("suspended");
    });
  },

  maxUnsentBytes() {
    const KEPT = 256 * 1024;
    const limits = { maxUnsentBytes: KEPT, maxReplyBytes: KEPT };

    it("holds for a queue below the burst after ten seconds", async () => {
      using clock = virtualClock();
      await using on = await target({ limits, methods: { long: () => "x".repeat(60_000) } });
      using raw = await rawSocket(on);
      let sent = 0;
      const call = async (): Promise<void> => {
        await raw.write(frame(TEXT, JSON.stringify(request(++sent, "long"))));
        while (raw.peer.stats().requestsReceived < sent) await turn();
      };
      // Until the system buffers no more for the client.
      while (raw.peer.stats().unsentBytes === 0) await call();
      while (raw.peer.stats().unsentBytes <= 2 * KEPT) await call();
      await clock.pass(9_000);
      expect(raw.peer.state).toBe("open");
      await clock.pass(2_000);
      expect(raw.peer.state).toBe("closed");
      raw.socket.destroy();
      expect(await raw.peer.closed).toMatchObject({
        code: 1013,
        reason: `more than ${KEPT} bytes unread for 10 s`,
      });
    });
  },

  maxSuspendedBytes() {
    it("holds for messages to suspended sessions, and again after they were resumed", async () => {
      const LONG = "x".repeat(50_000);
      const world = await servingOnPort({ limits: { maxSuspendedBytes: 300_000 } });
      const first = await suspended(world);
      const second = await suspended(world);
      for (let i = 0; i < 2; i++) expect(first.peer.notify("m", [LONG])).toBe(true);
      const { byHand } = await ByHand.resume(world.url, first.token, 1);
      expect(world.server.stats().suspendedBytes).toBeLessThan(1_000);
      await drop({ byHand, peer: first.peer });
      // The messages were not acked, and count again.
      expect(world.server.stats().suspendedBytes).toBeGreaterThan(100_000);
      for (let i = 0; i < 5; i++) second.peer.notify("m", [LONG]);
      expect(await second.peer.closed).toMatchObject({
        code: 1013,
        reason: "suspended sessions hold more than `maxSuspendedBytes` together",
      });
      expect(first.peer.state).toBe("suspended");
    });
  },

  maxConnections() {
    it("is reached by sockets that send nothing: 503 for upgrades and POSTs", async () => {
      const MOST = 3;
      await using on = await target({ limits: { maxConnections: MOST } });
      const clients = [await rawSocket(on), await rawSocket(on), await rawSocket(on)];
      expect((await upgrade(on.url)).status).toBe(503);
      expect((await post(on.url, request(1, "here"))).status).toBe(503);
      expect(on.server.stats().peers).toBe(MOST);
      for (const one of clients) one[Symbol.dispose]();
      await vi.waitFor(async () => expect((await post(on.url, request(1, "here"))).status).toBe(200));
    });
  },

  handshakeTimeoutMs() {
    it("holds for an `authenticate` that takes longer: 503 for upgrades and POSTs", async () => {
      using clock = virtualClock();
      // Node has the same time to read a request, by its own clock.
      const limits = { handshakeTimeoutMs: 600_000 };
      let asked = 0;
      const authenticate = (): Promise<unknown> => (asked++, new Promise(() => {}));
      await using on = await target({ limits, authenticate });
      const answers = Promise.all([upgrade(on.url), postRaw(on.url, JSON.stringify(request(1, "here")))]);
      await vi.waitFor(() => expect(asked).toBe(2));
      await clock.pass(600_000);
      for (const { status, headers, body } of await answers) {
        expect([status, body]).toEqual([503, "authentication took longer than 600000 ms\n"]);
        expect(Number(headers["retry-after"])).toBeGreaterThan(0);
      }
    });
  },

  maxPerPeer() {
    it("is reached by calls in a pack", async () => {
      await using on = await target(subscribable());
      const replies = await sendPack(on.url, calls("subscribe", 5));
      expect(codesOf(await replies(5))).toEqual({ result: 3, "-32006": 2 });
    });

    isNotResetByResuming(subscribable, "subscribe", 3, -32006);
  },
};

describe.each(Object.entries(LIMITS))("`%s`", (_name, tests) => {
  tests();
});

it("reaches each limit that docs/API.md names, or test/conformance does", async () => {
  const [document, ...tables] = (await Promise.all(
    ["../docs/API.md", "conformance/limits.json", "conformance/batches.json"].map((path) =>
      readFile(new URL(`../${path}`, import.meta.url), "utf8"),
    ),
  )) as [string, ...string[]];
  const section = document.slice(document.indexOf("\n## Limits"));
  const [text] = section.split(/\n## (?!Limits)/);
  const rows = [...text!.matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name);
  expect(rows.length).toBeGreaterThan(10);
  const cases = tables.flatMap((table) => (JSON.parse(table) as { cases: { limits?: object }[] }).cases);
  const reached = [...Object.keys(LIMITS), ...cases.flatMap(({ limits = {} }) => Object.keys(limits))];
  expect(new Set(reached)).toEqual(new Set([...rows, "maxPerPeer"]));
});
