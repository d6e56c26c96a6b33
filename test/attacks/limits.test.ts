/**
 * Reaches each limit of the table in docs/API.md in the cheapest way for an attacker, and by every other path: in a
 * batch, in a pack, by HTTP POST, over a resumed session.
 */
import { readFile } from "node:fs/promises";
import { beforeEach, describe, expect, it, onTestFinished, vi } from "vitest";
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
import { readAnswer, plainPeer, upgrade } from "../support/network.js";
import { post, postRaw, postText, write } from "../support/post.js";
import { notification, request } from "../support/raw.js";
import { turn } from "../support/turns.js";
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

/** Sends messages. The returned function resolves with the first `count` replies, with batches split. */
type Send = (url: string, messages: readonly object[]) => Promise<(count?: number) => Promise<any[]>>;

/** Sends frames on a plain connection. */
async function sendFrames(url: string, frames: readonly object[]): ReturnType<Send> {
  const client = await plainPeer(url);
  onTestFinished(() => client[Symbol.dispose]());
  for (const one of frames) client.webSocket.send(JSON.stringify(one));
  const replies = (): any[] => client.received.flatMap((text) => JSON.parse(text) as unknown);
  return async (count = frames.flat().length) => {
    await vi.waitFor(() => expect(replies()).toHaveLength(count));
    return replies();
  };
}

/** Sends a pack over `reciproc.v1`. */
async function sendPack(url: string, pack: readonly object[]): ReturnType<Send> {
  const client = await packed(url);
  client.say([...pack]);
  return (count = pack.flat().length) => collect(client, count);
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

/** Every way in which the same calls can arrive. */
const WAYS: Record<string, Send> = {
  "one by one": sendFrames,
  "in a batch": (url, messages) => sendFrames(url, [messages]),
  "in a pack": sendPack,
  "in a batch in a pack": (url, messages) => sendPack(url, [messages]),
  async "in a batch by HTTP POST"(url, messages) {
    const socket = await write(url, postText(url, JSON.stringify(messages), { Connection: "close" }));
    onTestFinished(() => void socket.destroy());
    return async () => [JSON.parse((await readAnswer(socket)).body) as unknown].flat();
  },
};
const ALL = Object.entries(WAYS);
const OVER_WEBSOCKETS = ALL.filter(([way]) => !way.includes("POST"));
const BATCHES = ALL.filter(([way]) => way.includes("batch"));

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

    it.each<[string, (url: string) => Promise<unknown>]>([
      ["a frame", (url) => sendFrames(url, [messageOf(1001)])],
      ["a message of a pack", (url) => sendPack(url, [...several, messageOf(1001)])],
      ["a batch in a pack", (url) => sendPack(url, [[half, half]])],
    ])("is reached by %s, and closes with 1009", async (_what, send) => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => void ran++ } });
      const coming = on.next();
      await send(on.url);
      expect(await (await coming).closed).toMatchObject(TOO_LONG);
      expect(ran).toBe(0);
    });

    it("is not reached by a message of 1,000 bytes, nor by a whole pack", async () => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => void ran++ } });
      await sendFrames(on.url, [messageOf(1000)]);
      await sendPack(on.url, several);
      await vi.waitFor(() => expect(ran).toBe(21));
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

  maxReplyBytes() {
    const limits = { maxReplyBytes: 1000 };
    const methods = {
      short: () => "x".repeat(300),
      long: () => "x".repeat(1000),
      async *streamed() {
        yield "x".repeat(1000);
      },
    };

    it.each(["long", "streamed"])("is reached by one short call with a result that is %s", async (method) => {
      await using on = await target({ limits, methods });
      expect(codesOf(await (await sendFrames(on.url, calls(method, 1)))())).toEqual({ "-32008": 1 });
    });

    it.each(BATCHES)("holds for all replies to calls %s together", async (_way, send) => {
      await using on = await target({ limits, methods });
      expect(codesOf(await (await send(on.url, calls("short", 10)))())).toEqual({ result: 2, "-32008": 8 });
    });
  },

  maxBatchEntries() {
    const limits = { maxBatchEntries: 3 };

    it.each(BATCHES)("is reached by calls %s, and none of them runs", async (_way, send) => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => ++ran } });
      const replies = await send(on.url, calls("m", 4));
      expect(await replies(1)).toMatchObject([{ id: null, error: { code: -32010 } }]);
      expect(ran).toBe(0);
    });

    it("counts each batch of a pack alone", async () => {
      await using on = await target({ limits });
      const replies = await sendPack(on.url, [calls("here", 3), calls("here", 3)]);
      expect(codesOf(await replies())).toEqual({ result: 6 });
    });
  },

  maxInFlight() {
    const limits = { maxInFlight: 4 };

    it.each<[string, Send]>([
      ...ALL,
      ["that are notifications", (url) => sendPack(url, Array<object>(10).fill(notification("hang")))],
    ])("is reached by calls %s", async (_way, send) => {
      const { seen, methods } = hanging();
      await using on = await target({ limits, methods });
      await send(on.url, calls("hang", 10));
      await vi.waitFor(() => expect(on.server.stats()).toMatchObject({ refusedBusy: 6, running: 4 }));
      expect(seen.started).toBe(4);
    });

    isNotResetByResuming(() => ({ limits, methods: hanging().methods }), "hang", 4, -32009);
  },

  maxMalformedPerMinute() {
    const limits = { maxMalformedPerMinute: 5 };
    const malformed = Array.from({ length: 6 }, () => ({}));
    const CLOSED = { code: 1008, reason: "more than 5 malformed messages in a minute" };

    it.each<[string, (url: string) => Promise<unknown>]>([
      ["frames", (url) => sendFrames(url, malformed)],
      ["the entries of a batch", (url) => sendFrames(url, [malformed])],
      ["the messages of a pack", (url) => sendPack(url, [{}, {}, {}, [], [{}, {}]])],
    ])("is reached by %s", async (_what, send) => {
      await using on = await target({ limits });
      const coming = on.next();
      await send(on.url);
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

    it.each(OVER_WEBSOCKETS)("is reached by short calls %s", async (_way, send) => {
      await using on = await target({ limits, methods: { endless } });
      expect(codesOf(await (await send(on.url, calls("endless", 5)))())).toEqual({ result: 2, "-32009": 3 });
    });

    it("holds for many streams in one result", async () => {
      await using on = await target({ limits, methods: { five: offerFive } });
      expect(codesOf(await (await sendFrames(on.url, calls("five", 1)))())).toEqual({ "-32009": 1 });
      expect(on.peers[0]!.stats().streams).toBeLessThanOrEqual(2);
    });

    isNotResetByResuming(() => ({ limits, methods: { endless } }), "endless", 2, -32009);

    it("holds for a batch by HTTP POST, in which each stream is read to its end", async () => {
      let open = 0;
      let most = 0;
      async function* slow(): AsyncGenerator<number> {
        most = Math.max(most, ++open);
        try {
          await turn();
          yield 1;
        } finally {
          open--;
        }
      }
      await using on = await target({ limits, methods: { slow } });
      const answers = (await (await post(on.url, calls("slow", 5))).json()) as object[];
      expect(codesOf(answers)).toEqual({ result: 2, "-32009": 3 });
      expect(most).toBeLessThanOrEqual(2);
    });
  },

  maxMessagesPerSecond() {
    const RATE = 10;
    const limits = { maxMessagesPerSecond: RATE };

    beforeEach(() => {
      const clock = virtualClock();
      return () => clock.restore();
    });

    it.each(ALL)("is reached by calls %s", async (_way, send) => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => ++ran } });
      expect(codesOf(await (await send(on.url, calls("m", 200)))())).toEqual({ result: RATE, "-32009": 200 - RATE });
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
    it.each(OVER_WEBSOCKETS)("is reached by calls %s", async (_way, send) => {
      await using on = await target(subscribable());
      expect(codesOf(await (await send(on.url, calls("subscribe", 5)))())).toEqual({ result: 3, "-32006": 2 });
    });

    isNotResetByResuming(subscribable, "subscribe", 3, -32006);
  },
};

describe.each(Object.entries(LIMITS))("`%s`", (_name, tests) => {
  tests();
});

it("reaches each limit that docs/API.md names", async () => {
  const document = await readFile(new URL("../../docs/API.md", import.meta.url), "utf8");
  const section = document.slice(document.indexOf("\n## Limits"));
  const [text] = section.split(/\n## (?!Limits)/);
  const rows = [...text!.matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name);
  expect(rows.length).toBeGreaterThan(10);
  expect(new Set(Object.keys(LIMITS))).toEqual(new Set([...rows, "maxPerPeer"]));
});
