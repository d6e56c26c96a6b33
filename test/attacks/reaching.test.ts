/**
 * Reaches each limit of the table in docs/API.md in the cheapest way for an attacker, and by every other path: in a
 * batch, in a pack, by HTTP POST, over a resumed session, with streams. `limits.test.ts` shows the cost of the default
 * limits under attack.
 */
import { readFile } from "node:fs/promises";
import { connect as connectTcp, type Socket } from "node:net";
import { once } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { Subscriptions, type AnyPeer, type CloseInfo, type ServerContext } from "../../src/node.js";
import {
  ByHand,
  LIMITS as CLIENT_LIMITS,
  nextPeer,
  serving,
  suspended,
  told,
  type Serving,
} from "../server/by-hand.js";
import { portOf, readAnswer, plainPeer, upgrade, type Answer } from "../support/network.js";
import { notification, request, result } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";
import { closeFrame, CONTINUATION, frame, frameHead, rawSocket, target, TEXT, upgradeText } from "./support/server.js";

/** Returns a message of `bytes` bytes. */
function messageOf(bytes: number): string {
  const empty = JSON.stringify(notification("m", [""]));
  return JSON.stringify(notification("m", ["x".repeat(bytes - empty.length)]));
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

/** Sends the frames on a plain connection. Returns the first `count` received messages, with batches split. */
async function ask(url: string, frames: readonly unknown[], count: number): Promise<any[]> {
  using client = await plainPeer(url);
  for (const one of frames) client.webSocket.send(typeof one === "string" ? one : JSON.stringify(one));
  await vi.waitFor(() => expect(messagesOf(client.received)).toHaveLength(count));
  return messagesOf(client.received);
}

function messagesOf(texts: readonly string[]): any[] {
  return texts.flatMap((text) => JSON.parse(text) as unknown);
}

/** Does the same over `reciproc.v1`, in one pack. */
async function askPacked(url: string, pack: readonly unknown[], count: number): Promise<any[]> {
  const client = await ByHand.open(url);
  client.say({ hello: {} });
  client.say([...pack]);
  return collect(client, count);
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

/** Sends a POST. Returns its response. `lines` are further lines of the head. */
async function post(url: string, body: unknown, ...lines: string[]): Promise<Answer> {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return readAnswer(await writePost(url, text, `Content-Length: ${Buffer.byteLength(text)}`, ...lines));
}

/** Opens a TCP connection, and writes a POST with these lines in its head. */
async function writePost(url: string, body: string, ...lines: string[]): Promise<Socket> {
  const head = [`POST / HTTP/1.1`, `Host: ${new URL(url).host}`, "Connection: close", "Content-Type: application/json"];
  return write(url, `${[...head, ...lines].join("\r\n")}\r\n\r\n${body}`);
}

async function write(url: string, text: string): Promise<Socket> {
  const socket = connectTcp(portOf(url), "127.0.0.1");
  // The server can reset a connection that it refuses.
  socket.on("error", () => {});
  await once(socket, "connect");
  socket.write(text);
  return socket;
}

function bodyOf({ body }: Answer): any[] {
  return [JSON.parse(body) as unknown].flat();
}

/** Opens a session, runs `before`, drops the socket, resumes, and runs `after` on the new socket. */
async function acrossResume(
  world: Serving<any>,
  before: (client: ByHand) => Promise<unknown>,
  after: (client: ByHand) => Promise<unknown>,
): Promise<AnyPeer> {
  const coming = nextPeer(world.server);
  const { byHand, token } = await ByHand.begin(world.url);
  const peer = await coming;
  await before(byHand);
  const gone = told(peer, "suspend");
  byHand.cut();
  await gone;
  const { byHand: next, told: answer } = await ByHand.resume(world.url, token, 1);
  expect(answer).toMatchObject({ resumed: { token: expect.any(String) as string } });
  await after(next);
  return peer;
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

/** Yields numbers, or one value, without end. */
async function* endless(value?: unknown): AsyncGenerator<unknown> {
  for (let i = 0; ; i++) yield value ?? i;
}

/** Five streams in one result. */
function offerFive(_params: unknown, { peer }: ServerContext): unknown {
  return Array.from({ length: 5 }, () => peer.offer(endless()));
}

/** Resolves with the close of a peer. */
function closing(peer: AnyPeer): Promise<CloseInfo> {
  return peer.closed;
}

/** Starts a server that identifies its users by cookie: `ada.1` and `ada.2` are both Ada. */
function named(): Promise<Serving<string>> {
  return serving<string>({
    limits: { maxSuspendedPerPrincipal: 2 },
    authenticate: ({ headers }) => headers.cookie,
    principal: (cookie) => cookie.split(".")[0]!,
  });
}

/** Calls `send` until the peer is closed, and then `cut`. Returns the most queued bytes, and the close. */
async function fill(peer: AnyPeer, send: () => void, cut: () => void): Promise<{ most: number; info: CloseInfo }> {
  let most = 0;
  while (peer.state === "open") {
    send();
    await turn();
    most = Math.max(most, peer.stats().unsentBytes);
  }
  // The client does not answer the close.
  cut();
  return { most, info: await peer.closed };
}

const LIMITS: Record<string, () => void> = {
  maxMessageBytes() {
    const limits = { maxMessageBytes: 1000 };
    const TOO_LONG = { code: 1009 };
    const REFUSED = { code: -32007 };

    it("is reached by the ten bytes of a frame head that claims a length", async () => {
      await using on = await target({ limits });
      using raw = await rawSocket(on);
      await raw.write(frameHead(TEXT, 2n ** 32n));
      expect(await closeFrame(raw.socket)).toMatchObject(TOO_LONG);
      await raw.peer.closed;
    });

    it("holds for a single frame: 1,000 bytes run, 1,001 close with 1009", async () => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => void ran++ } });
      using client = await plainPeer(on.url);
      client.webSocket.send(messageOf(1000));
      client.webSocket.send(messageOf(1001));
      expect(await client.closed).toMatchObject(TOO_LONG);
      expect(ran).toBe(1);
    });

    it("holds for a message in fragments", async () => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => void ran++ } });
      using raw = await rawSocket(on);
      const text = messageOf(1001);
      await raw.write(frame(TEXT, text.slice(0, 400), false));
      await raw.write(frame(CONTINUATION, text.slice(400, 800), false));
      await raw.write(frame(CONTINUATION, text.slice(800)));
      expect(await closeFrame(raw.socket)).toMatchObject(TOO_LONG);
      expect(ran).toBe(0);
    });

    it("holds for each message of a pack and for a batch, and not for a whole pack", async () => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => void ran++ } });
      const several = Array.from({ length: 20 }, () => JSON.parse(messageOf(1000)) as object);
      const half = JSON.parse(messageOf(500)) as object;
      for (const pack of [[...several, JSON.parse(messageOf(1001))], [[half, half]]]) {
        const client = await ByHand.open(on.url);
        client.say({ hello: {} });
        client.say(pack);
        expect(await client.closed).toMatchObject(TOO_LONG);
      }
      expect(ran).toBe(0);
      const client = await ByHand.open(on.url);
      client.say({ hello: {} });
      client.say(several);
      await vi.waitFor(() => expect(ran).toBe(20));
    });

    it("holds on a socket that offers to resume, before its client has sent `resume`", async () => {
      const { url, server } = await serving({ limits });
      const client = await ByHand.open(url, { returns: true });
      client.say({ resume: { token: "x".repeat(30_000), received: 0, attempt: 1, limits: CLIENT_LIMITS } });
      expect(await client.closed).toMatchObject(TOO_LONG);
      expect(server.peers.size).toBe(0);
    });

    it("holds over a resumed session", async () => {
      const world = await serving({ limits });
      const peer = await acrossResume(
        world,
        () => Promise.resolve(),
        async (client) => {
          client.say([notification("m", ["x".repeat(1000)])]);
          expect(await client.closed).toMatchObject(TOO_LONG);
        },
      );
      expect(await peer.closed).toMatchObject(TOO_LONG);
    });

    it("holds by HTTP POST: 413 at a head that claims a length, and at the first chunk beyond it", async () => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => void ran++ } });
      const claimed = await readAnswer(await writePost(on.url, "", "Content-Length: 1001"));
      expect(claimed.status).toBe(413);
      expect(bodyOf(claimed)).toMatchObject([{ error: REFUSED }]);
      const chunk = `3e9\r\n${messageOf(1001)}\r\n`;
      expect((await readAnswer(await writePost(on.url, chunk, "Transfer-Encoding: chunked"))).status).toBe(413);
      expect((await post(on.url, messageOf(1000))).status).toBe(204);
      expect(ran).toBe(1);
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
    const TOO_LONG = { error: { code: -32008 } };

    it("is reached by one short call for a long result", async () => {
      await using on = await target({ limits, methods });
      expect(await ask(on.url, [request(1, "long")], 1)).toMatchObject([TOO_LONG]);
    });

    it("holds for all replies to a batch together, on each link and by HTTP POST", async () => {
      await using on = await target({ limits, methods });
      const batch = calls("short", 10);
      const codes = { result: 2, "-32008": 8 };
      expect(codesOf(await ask(on.url, [batch], 10))).toEqual(codes);
      expect(codesOf(await askPacked(on.url, [batch], 10))).toEqual(codes);
      expect(codesOf(bodyOf(await post(on.url, batch)))).toEqual(codes);
    });

    it("holds by HTTP POST, for a stream that is sent whole as well", async () => {
      await using on = await target({ limits, methods: { ...methods, endless } });
      expect(bodyOf(await post(on.url, request(1, "long")))).toMatchObject([TOO_LONG]);
      expect(bodyOf(await post(on.url, request(1, "endless")))).toMatchObject([TOO_LONG]);
    });

    it("holds for the values of a stream", async () => {
      await using on = await target({ limits, methods });
      using client = await plainPeer(on.url);
      client.webSocket.send(JSON.stringify(request(1, "streamed")));
      expect(await client.next()).toMatchObject(TOO_LONG);
    });
  },

  maxBatchEntries() {
    it("is reached by two bytes an entry, and none of the batch runs: plain, in a pack and by HTTP POST", async () => {
      let ran = 0;
      await using on = await target({ limits: { maxBatchEntries: 3 }, methods: { m: () => ++ran } });
      const refused = [{ id: null, error: { code: -32010 } }];
      const batch = calls("m", 4);
      expect(await ask(on.url, ["[1,1,1,1]"], 1)).toMatchObject(refused);
      expect(await ask(on.url, [batch], 1)).toMatchObject(refused);
      expect(await askPacked(on.url, [batch], 1)).toMatchObject(refused);
      expect(bodyOf(await post(on.url, batch))).toMatchObject(refused);
      expect(ran).toBe(0);
      expect(codesOf(await askPacked(on.url, [calls("m", 3), calls("m", 3)], 6))).toEqual({ result: 6 });
    });

    it("holds over a resumed session", async () => {
      const world = await serving({ limits: { maxBatchEntries: 3 } });
      await acrossResume(
        world,
        () => Promise.resolve(),
        async (client) => {
          client.say([calls("m", 4)]);
          expect(await collect(client, 1)).toMatchObject([{ error: { code: -32010 } }]);
        },
      );
    });
  },

  maxInFlight() {
    const limits = { maxInFlight: 4 };

    it.each<[string, (url: string) => Promise<any[]>]>([
      ["calls one by one", (url) => ask(url, calls("hang", 10), 6)],
      ["calls in one pack", (url) => askPacked(url, calls("hang", 10), 6)],
    ])("is reached by %s", async (_how, send) => {
      const { seen, methods } = hanging();
      await using on = await target({ limits, methods });
      expect(codesOf(await send(on.url))).toEqual({ "-32009": 6 });
      expect(seen.started).toBe(4);
    });

    it("holds for a batch, whose reply waits for the calls that run", async () => {
      const { seen, methods } = hanging();
      await using on = await target({ limits, methods });
      using client = await plainPeer(on.url);
      client.webSocket.send(JSON.stringify(calls("hang", 10)));
      await vi.waitFor(() => expect(on.peers[0]?.stats()).toMatchObject({ refusedBusy: 6, running: 4 }));
      expect(seen.started).toBe(4);
    });

    it("holds for notifications, which are counted apart", async () => {
      const { seen, methods } = hanging();
      await using on = await target({ limits, methods });
      using client = await plainPeer(on.url);
      for (let i = 0; i < 10; i++) client.webSocket.send(JSON.stringify(notification("hang")));
      await vi.waitFor(() => expect(on.peers[0]?.stats()).toMatchObject({ refusedBusy: 6, running: 4 }));
      expect(seen.started).toBe(4);
    });

    it("holds for a batch by HTTP POST", async () => {
      const { seen, methods } = hanging();
      await using on = await target({ limits, methods });
      const socket = await writePost(
        on.url,
        JSON.stringify(calls("hang", 10)),
        `Content-Length: ${JSON.stringify(calls("hang", 10)).length}`,
      );
      await vi.waitFor(() => expect(on.server.stats()).toMatchObject({ refusedBusy: 6, running: 4 }));
      socket.destroy();
      await vi.waitFor(() => expect(on.server.stats().running).toBe(0));
      expect(seen.started).toBe(4);
    });

    it("is not reset over a resumed session: earlier handlers still run", async () => {
      const { seen, methods } = hanging();
      const world = await serving({ limits, methods });
      await acrossResume(
        world,
        async (client) => {
          client.say(calls("hang", 4));
          await vi.waitFor(() => expect(seen.started).toBe(4));
        },
        async (client) => {
          client.say([request(5, "hang")]);
          expect(codesOf(await collect(client, 1))).toEqual({ "-32009": 1 });
        },
      );
      expect(seen.started).toBe(4);
    });
  },

  maxMalformedPerMinute() {
    const limits = { maxMalformedPerMinute: 5 };
    const CLOSED = { code: 1008, reason: "more than 5 malformed messages in a minute" };

    it.each([
      ["frames of one byte", Array<string>(6).fill("{")],
      ["entries of two bytes in a batch", ["[1,1,1,1,1,1]"]],
      ["invalid messages", Array<string>(6).fill('{"jsonrpc":"2.0","method":1}')],
    ])("is reached by %s", async (_what, frames) => {
      await using on = await target({ limits });
      using client = await plainPeer(on.url);
      for (const text of frames) client.webSocket.send(text);
      expect(await client.closed).toEqual(CLOSED);
    });

    it("holds for a pack", async () => {
      await using on = await target({ limits });
      const client = await ByHand.open(on.url);
      client.say({ hello: {} });
      client.say([1, 1, 1, [], [1, 1]]);
      expect(await client.closed).toEqual(CLOSED);
    });

    it("is not reset over a resumed session", async () => {
      const world = await serving({ limits });
      const peer = await acrossResume(
        world,
        async (client) => {
          client.say([1, 1, 1]);
          await collect(client, 3);
        },
        async (client) => {
          client.say([1, 1, 1]);
          expect(await client.closed).toEqual(CLOSED);
        },
      );
      expect(await closing(peer)).toMatchObject(CLOSED);
    });

    it("ends a POST whose batch holds more", async () => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => ++ran } });
      const answer = await post(on.url, [1, 1, 1, 1, 1, 1, request(1, "m")]);
      expect(answer.status).toBe(500);
      expect(ran).toBe(0);
      expect(on.server.stats().malformed).toBe(6);
    });
  },

  maxStreams() {
    const limits = { maxStreams: 2 };
    const methods = { endless };

    it("is reached by short calls, one by one and in one pack", async () => {
      await using on = await target({ limits, methods });
      expect(codesOf(await ask(on.url, calls("endless", 5), 5))).toEqual({ result: 2, "-32009": 3 });
      expect(codesOf(await askPacked(on.url, calls("endless", 5), 5))).toEqual({ result: 2, "-32009": 3 });
    });

    it("holds for a batch", async () => {
      await using on = await target({ limits, methods });
      expect(codesOf(await ask(on.url, [calls("endless", 5)], 5))).toEqual({ result: 2, "-32009": 3 });
    });

    it("holds for many streams in one result", async () => {
      await using on = await target({ limits, methods: { ...methods, offerFive } });
      expect(codesOf(await ask(on.url, [request(1, "offerFive")], 1))).toEqual({ "-32009": 1 });
      expect(on.peers[0]!.stats().streams).toBeLessThanOrEqual(2);
    });

    it("is not reset over a resumed session", async () => {
      const world = await serving({ limits, methods });
      const peer = await acrossResume(
        world,
        async (client) => {
          client.say(calls("endless", 2));
          expect(codesOf(await collect(client, 2))).toEqual({ result: 2 });
        },
        async (client) => {
          client.say([request(3, "endless")]);
          // The earlier messages are sent again: their ack was lost with the socket.
          const [third] = (await collect(client, 3)).slice(2);
          expect(third).toMatchObject({ id: 3, error: { code: -32009 } });
        },
      );
      expect(peer.stats().streams).toBe(2);
    });

    it("holds for a batch by HTTP POST, in which each stream is read to its end", async () => {
      let open = 0;
      let most = 0;
      async function* slow(): AsyncGenerator<number> {
        most = Math.max(most, ++open);
        try {
          await new Promise((resolve) => setImmediate(resolve));
          yield 1;
        } finally {
          open--;
        }
      }
      await using on = await target({ limits, methods: { slow } });
      expect(codesOf(bodyOf(await post(on.url, calls("slow", 5))))).toEqual({ result: 2, "-32009": 3 });
      expect(most).toBeLessThanOrEqual(2);
    });
  },

  maxMessagesPerSecond() {
    const RATE = 10;
    const limits = { maxMessagesPerSecond: RATE };

    /** How many calls ran: those of the first moment, and those allowed for the duration of the test. */
    function expectBounded(ran: number, beganAt: number): void {
      expect(ran).toBeGreaterThanOrEqual(RATE);
      expect(ran).toBeLessThanOrEqual(RATE + Math.ceil(((performance.now() - beganAt) / 1000) * RATE));
    }

    it.each<[string, (url: string) => Promise<any[]>]>([
      ["calls one by one", (url) => ask(url, calls("m", 200), 200)],
      ["calls in one batch", (url) => ask(url, [calls("m", 200)], 200)],
      ["calls in one pack", (url) => askPacked(url, calls("m", 200), 200)],
      ["a batch by HTTP POST", async (url) => bodyOf(await post(url, calls("m", 200)))],
    ])("is reached by %s", async (_how, send) => {
      let ran = 0;
      await using on = await target({ limits, methods: { m: () => ++ran } });
      const beganAt = performance.now();
      const codes = codesOf(await send(on.url));
      expectBounded(ran, beganAt);
      expect(codes).toEqual({ result: ran, "-32009": 200 - ran });
    });

    it("is not refilled over a resumed session", async () => {
      let ran = 0;
      const world = await serving({ limits, methods: { m: () => ++ran } });
      const beganAt = performance.now();
      await acrossResume(
        world,
        async (client) => {
          client.say(calls("m", 50));
          await collect(client, 50);
        },
        async (client) => {
          client.say(calls("m", 50));
          await collect(client, 100);
        },
      );
      expectBounded(ran, beganAt);
    });
  },

  maxSuspendedPerPrincipal() {
    it("is reached by opening sessions and dropping their sockets: the oldest ends, and other clients keep theirs", async () => {
      const world = await named();
      const bob = await suspended(world, { cookie: "bob" });
      const first = await suspended(world, { cookie: "ada.1" });
      const others = [await suspended(world, { cookie: "ada.2" }), await suspended(world, { cookie: "ada.3" })];
      expect(await first.peer.closed).toMatchObject({
        code: 1013,
        reason: expect.stringContaining("maxSuspendedPerPrincipal") as string,
      });
      expect(world.server.stats().suspended).toBe(3);
      for (const { peer } of [bob, ...others]) expect(peer.state).toBe("suspended");
    });

    it("holds for a session that was resumed in between: its age counts from its latest loss", async () => {
      const world = await named();
      const first = await suspended(world, { cookie: "ada.1" });
      const second = await suspended(world, { cookie: "ada.2" });
      const { byHand } = await ByHand.resume(world.url, first.token, 1, { cookie: "ada.1" });
      byHand.say({ ack: 0 });
      byHand.say({ ping: 1 });
      await byHand.next();
      const gone = told(first.peer, "suspend");
      byHand.cut();
      await gone;
      await suspended(world, { cookie: "ada.3" });
      expect(await second.peer.closed).toMatchObject({ code: 1013 });
      expect(first.peer.state).toBe("suspended");
    });
  },

  maxUnsentBytes() {
    const KEPT = 256 * 1024;
    const limits = { maxUnsentBytes: KEPT, maxReplyBytes: KEPT };
    /** The queue limit. */
    const BURST = 8 * KEPT;
    const LONG = "x".repeat(60_000);
    const long = (): string => LONG;
    const AT_ONCE = { code: 1013, reason: `more than ${BURST} bytes wait to be read` };

    it.each([
      ["calls one by one", (n: number) => request(n, "long")],
      ["batches with short enough responses", (n: number) => calls("long", 4).map((one) => ({ ...one, id: n }))],
    ])("is reached by short calls for long results, none of which is read: %s", async (_how, next) => {
      await using on = await target({ limits, methods: { long } });
      using raw = await rawSocket(on);
      let n = 0;
      const send = (): void => void raw.write(frame(TEXT, JSON.stringify(next(++n))));
      const { most, info } = await fill(raw.peer, send, () => void raw.socket.destroy());
      expect(info).toMatchObject(AT_ONCE);
      expect(most).toBeLessThanOrEqual(BURST + KEPT);
    });

    it("holds for a queue below the burst after ten seconds", async () => {
      await using on = await target({ limits, methods: { long } });
      using raw = await rawSocket(on);
      let sent = 0;
      const call = async (): Promise<void> => {
        await raw.write(frame(TEXT, JSON.stringify(request(++sent, "long"))));
        while (raw.peer.stats().requestsReceived < sent) await turn();
      };
      // Until the system buffers no more for the client.
      while (raw.peer.stats().unsentBytes === 0) await call();
      vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
      try {
        while (raw.peer.stats().unsentBytes <= 2 * KEPT) await call();
        vi.advanceTimersByTime(9_000);
        expect(raw.peer.state).toBe("open");
        vi.advanceTimersByTime(2_000);
        expect(raw.peer.state).toBe("closed");
      } finally {
        vi.useRealTimers();
      }
      raw.socket.destroy();
      expect(await raw.peer.closed).toMatchObject({
        code: 1013,
        reason: `more than ${KEPT} bytes have waited for 10 s to be read`,
      });
    });

    it("holds for a live session, and for one pack of calls", async () => {
      const world = await serving({ limits, methods: { long } });
      const coming = nextPeer(world.server);
      const { byHand } = await ByHand.begin(world.url);
      const peer = await coming;
      // This client acks nothing either.
      byHand.pause();
      const { most, info } = await fill(
        peer,
        () => byHand.say(calls("long", 20)),
        () => byHand.cut(),
      );
      expect(info).toMatchObject({ code: 1013 });
      expect(most).toBeLessThanOrEqual(BURST + KEPT);
    });

    it("holds for a session without a socket, whose queue can have half as much", async () => {
      const open = gate();
      const world = await serving({ limits, methods: { later: () => open.promise.then(long) } });
      const coming = nextPeer(world.server);
      const { byHand } = await ByHand.begin(world.url);
      const peer = await coming;
      byHand.say(calls("later", 20));
      await vi.waitFor(() => expect(peer.stats().running).toBe(20));
      const gone = told(peer, "suspend");
      byHand.cut();
      await gone;
      open.resolve();
      expect(await peer.closed).toMatchObject({
        code: 1013,
        reason: "more than half of `maxUnsentBytes` waits to be sent, beside what waited when the socket was lost",
      });
      expect(world.server.stats().suspendedBytes).toBe(0);
    });

    it("is not reached by streams, which send a quarter of it and one reply each", async () => {
      await using on = await target({ limits, methods: { endless: () => endless(LONG) } });
      using raw = await rawSocket(on);
      const count = 100;
      for (let id = 1; id <= count; id++) await raw.write(frame(TEXT, JSON.stringify(request(id, "endless"))));
      // Tokens of streams count from 1.
      for (let round = 0; round < 20; round++) {
        for (let token = 1; token <= count; token++)
          await raw.write(frame(TEXT, JSON.stringify(request(1000 + token, "$/enumerator/next", { token }))));
        await turn();
        expect(raw.peer.stats().unsentBytes).toBeLessThanOrEqual(BURST);
      }
      expect(raw.peer.state).toBe("open");
    });

    it("holds for pipelined POSTs whose replies are not read: the connection is cut", async () => {
      let ran = 0;
      await using on = await target({ limits, methods: { long: () => (ran++, LONG) } });
      const body = JSON.stringify(request(1, "long"));
      const head = `POST / HTTP/1.1\r\nHost: ${new URL(on.url).host}\r\nContent-Type: application/json\r\n`;
      const socket = await write(on.url, "");
      socket.pause();
      const one = `${head}Content-Length: ${body.length}\r\n\r\n${body}`;
      // The limit of requests that wait for their responses on one connection.
      socket.write(one.repeat(100));
      await vi.waitFor(() => expect(on.sockets.size).toBe(0), 5000);
      expect(ran).toBeGreaterThan(1);
      socket.destroy();
    });
  },

  maxSuspendedBytes() {
    const limits = { maxSuspendedBytes: 300_000, maxSuspendedPerPrincipal: 100 };
    const LONG = "x".repeat(50_000);
    const BEYOND = {
      code: 1013,
      reason: "suspended sessions hold more than `maxSuspendedBytes` together",
    };

    it.each<[string, object[], (peer: AnyPeer) => boolean]>([
      ["responses that the client does not ack", calls("long", 2), (peer) => peer.stats().requestsReceived === 2],
      ["params of running calls", [request(1, "wait", [LONG, LONG])], (peer) => peer.stats().running === 1],
      [
        "replies of a batch that is not complete",
        [[...calls("long", 2), request(3, "wait")]],
        (peer) => peer.stats().running === 1,
      ],
      ["values that streams have read ahead", calls("endless", 2), (peer) => peer.stats().streams === 2],
    ])("is reached by dropped sessions that hold %s", async (_what, pack, isReady) => {
      const { seen, methods } = hanging();
      const world = await serving({
        limits,
        methods: { long: () => LONG, wait: methods.hang, endless: () => endless("x".repeat(1000)) },
      });
      const peers: AnyPeer[] = [];
      for (let i = 0; i < 6; i++) {
        const coming = nextPeer(world.server);
        const { byHand } = await ByHand.begin(world.url);
        const peer = await coming;
        peers.push(peer);
        byHand.say(pack);
        await vi.waitFor(() => expect(isReady(peer)).toBe(true));
        for (let turns = 0; turns < 200; turns++) await turn();
        const gone = Promise.race([told(peer, "suspend"), peer.closed]);
        byHand.cut();
        await gone;
        expect(world.server.stats().suspendedBytes).toBeLessThanOrEqual(limits.maxSuspendedBytes);
      }
      const { suspended: count, suspendedBytes } = world.server.stats();
      expect(count).toBeLessThan(6);
      expect(suspendedBytes).toBeGreaterThan(limits.maxSuspendedBytes / 2);
      const ended = peers.filter(({ state }) => state === "closed");
      expect(ended).toHaveLength(6 - count);
      for (const peer of ended) expect(await peer.closed).toMatchObject(BEYOND);
      await world.server.close();
      expect(seen.started).toBeLessThanOrEqual(6);
    });

    it("holds for messages to suspended sessions, and again after they were resumed", async () => {
      const world = await serving({ limits });
      const first = await suspended(world);
      const second = await suspended(world);
      for (let i = 0; i < 2; i++) expect(first.peer.notify("m", [LONG])).toBe(true);
      const { byHand } = await ByHand.resume(world.url, first.token, 1);
      expect(world.server.stats().suspendedBytes).toBeLessThan(1_000);
      const gone = told(first.peer, "suspend");
      byHand.cut();
      await gone;
      // The messages were not acked, and count again.
      expect(world.server.stats().suspendedBytes).toBeGreaterThan(100_000);
      for (let i = 0; i < 5; i++) second.peer.notify("m", [LONG]);
      expect(await second.peer.closed).toMatchObject(BEYOND);
      expect(first.peer.state).toBe("suspended");
    });

    it("is not reached by broadcasts, which can use a quarter of it", async () => {
      const world = await serving({ limits });
      const all = [await suspended(world), await suspended(world)];
      for (let i = 0; i < 50; i++) world.server.peers.notify("m", [LONG.slice(0, 10_000)]);
      for (const { peer } of all) expect(peer.state).toBe("suspended");
      expect(world.server.stats().suspendedBytes).toBeLessThanOrEqual(limits.maxSuspendedBytes / 4);
      expect(world.server.stats().dropped).toBeGreaterThan(80);
    });
  },

  maxConnections() {
    const MOST = 3;
    const limits = { maxConnections: MOST };

    it("is reached by sockets that send nothing: 503 for upgrades and POSTs", async () => {
      await using on = await target({ limits });
      const clients = [await rawSocket(on), await rawSocket(on), await rawSocket(on)];
      expect((await upgrade(on.url)).status).toBe(503);
      expect((await post(on.url, request(1, "here"))).status).toBe(503);
      expect(on.server.stats().peers).toBe(MOST);
      for (const one of clients) one[Symbol.dispose]();
      await vi.waitFor(async () => expect((await post(on.url, request(1, "here"))).status).toBe(200));
    });

    it.each([
      ["sessions whose sockets are dropped", false],
      ["new sessions on sockets that offered to resume", true],
    ])("holds for %s, and a new client is admitted", async (_what, returns) => {
      const { server, url } = await serving({ limits });
      for (let i = 0; i < 3 * MOST; i++) {
        const coming = nextPeer(server);
        const client = await ByHand.open(url, { returns });
        await client.hello();
        const gone = told(await coming, "suspend");
        client.cut();
        await gone;
        expect(server.stats().peers).toBeLessThanOrEqual(MOST);
      }
      expect(server.stats()).toMatchObject({ opened: 3 * MOST, peers: MOST, suspended: MOST });
      expect((await upgrade(url)).status).toBe(101);
    });

    it("holds for sockets that offered to resume and send nothing", async () => {
      const { server, url } = await serving({ limits });
      const first: object[] = [];
      for (let i = 0; i < 3 * MOST; i++)
        first.push((await (await ByHand.open(url, { returns: true })).next()) as object);
      expect(first.filter((one) => "hello" in one)).toHaveLength(MOST);
      expect(first.filter((one) => "bye" in one)).toHaveLength(2 * MOST);
      expect(server.stats().opened).toBe(0);
    });

    it("holds for running POSTs, and a POST that ends frees its slot", async () => {
      const { seen, methods } = hanging();
      await using on = await target({ limits, methods });
      const body = JSON.stringify(request(1, "hang"));
      const sockets: Socket[] = [];
      for (let i = 0; i < MOST; i++) sockets.push(await writePost(on.url, body, `Content-Length: ${body.length}`));
      await vi.waitFor(() => expect(seen.started).toBe(MOST));
      expect((await post(on.url, request(1, "here"))).status).toBe(503);
      expect((await upgrade(on.url)).status).toBe(503);
      for (const socket of sockets) socket.destroy();
      await vi.waitFor(async () => expect((await post(on.url, request(1, "here"))).status).toBe(200));
    });

    it("counts no new slot for a client that resumes", async () => {
      const world = await serving({ limits: { maxConnections: 1 } });
      const { peer, token } = await suspended(world);
      for (let attempt = 1; attempt <= 5; attempt++) {
        const { byHand, told: answer } = await ByHand.resume(world.url, token, attempt);
        expect(answer).toMatchObject({ resumed: expect.anything() as unknown });
        const gone = told(peer, "suspend");
        byHand.cut();
        await gone;
      }
      expect(world.server.stats()).toMatchObject({ opened: 1, peers: 1, closed: {} });
    });
  },

  handshakeTimeoutMs() {
    const limits = { handshakeTimeoutMs: 100 };

    it("is reached by half a request head, which is cut", async () => {
      await using on = await target({ limits });
      const socket = await write(on.url, upgradeText(on.url).slice(0, -4));
      expect((await readAnswer(socket)).status).not.toBe(101);
    });

    it("holds for a body that does not arrive: 408", async () => {
      await using on = await target({ limits });
      expect((await readAnswer(await writePost(on.url, "{", "Content-Length: 100"))).status).toBe(408);
    });

    it("holds for an `authenticate` that takes longer: 503 for upgrades and POSTs", async () => {
      await using on = await target({ limits, authenticate: () => new Promise(() => {}) });
      expect((await upgrade(on.url)).status).toBe(503);
      expect((await post(on.url, request(1, "here"))).status).toBe(503);
    });

    it("holds for a client that offers to resume and sends nothing", async () => {
      const { url, server } = await serving({ limits });
      const client = await ByHand.open(url, { returns: true });
      expect(await client.closed).toMatchObject({ code: 4000 });
      expect(server.stats()).toMatchObject({ opened: 0, peers: 0 });
    });
  },

  maxPerPeer() {
    it("is reached by calls that subscribe, in one batch as well, and is not reset over a resumed session", async () => {
      const kind = new Subscriptions({ method: "said", limits: { maxPerPeer: 3 } });
      const methods = { subscribe: (_params: unknown, context: ServerContext) => kind.open(context).id };
      const world = await serving({ methods });
      const codes = { result: 3, "-32006": 2 };
      expect(codesOf(await ask(world.url, calls("subscribe", 5), 5))).toEqual(codes);
      expect(codesOf(await ask(world.url, [calls("subscribe", 5)], 5))).toEqual(codes);
      await acrossResume(
        world,
        async (client) => {
          client.say(calls("subscribe", 3));
          await collect(client, 3);
        },
        async (client) => {
          client.say([request(4, "subscribe")]);
          expect((await collect(client, 4))[3]).toMatchObject({ id: 4, error: { code: -32006 } });
        },
      );
    });
  },

  maxHeld() {
    it("is reached by notifications before the response is sent", async () => {
      const kind = new Subscriptions<number>({ method: "said", limits: { maxHeld: 3 } });
      const taken: boolean[] = [];
      const methods = {
        subscribe(_params: unknown, context: ServerContext) {
          const { id, notify } = kind.open(context);
          for (let i = 0; i < 5; i++) taken.push(notify(i));
          return id;
        },
      };
      await using on = await target({ methods });
      const [reply, ...pushes] = await ask(on.url, [request(1, "subscribe")], 4);
      expect(reply).toEqual(result(1, expect.any(String)));
      expect(pushes.map(({ params }) => (params as { result: number }).result)).toEqual([0, 1, 2]);
      expect(taken).toEqual([true, true, true, false, false]);
    });
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
  expect(new Set(Object.keys(LIMITS))).toEqual(new Set([...rows, "maxPerPeer", "maxHeld"]));
});
