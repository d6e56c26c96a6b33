/**
 * One connection that sends many messages at once: other connections are served meanwhile, and no message is lost or
 * reordered.
 */
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { connect as connectTcp } from "node:net";
import { describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { connect, serve, Subscriptions, type AnyPeer, type Server, type ServerContext } from "../../src/node.js";
import { maskedFrames } from "../../src/sockets/text-frames.js";
import { notification, request } from "../support/raw.js";
import { portOf, sendUpgrade, plainPeer } from "../support/network.js";

const MANY = 40;
/** A close frame with 1000, masked with zeros. */
const CLOSE = Buffer.of(0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8);

/** Makes a server whose `work` takes 3 ms and records its number. */
interface Busy extends AsyncDisposable {
  readonly server: Server;
  readonly url: string;
  readonly done: number[];
  /** Called in the handler of the first `work`. */
  onFirst: () => void;
}

async function busy(): Promise<Busy> {
  const done: number[] = [];
  const methods = {
    here: () => done.length,
    work: ([i]: [number]): number => {
      if (done.length === 0) at.onFirst();
      for (const end = performance.now() + 3; performance.now() < end;);
      done.push(i);
      return i;
    },
  };
  const server = await serve({ port: 0, methods });
  const at: Busy = { server, url: server.url, done, onFirst: () => {}, [Symbol.asyncDispose]: () => server.close() };
  return at;
}

const numbers = Array.from({ length: MANY }, (_, i) => i);
const calls = numbers.map((i) => request(i, "work", [i]));

/** Sends the calls in one write over a plain WebSocket. */
async function sendPlain(url: string, texts: readonly string[]): Promise<Disposable> {
  const socket = await sendUpgrade(url);
  socket.write(maskedFrames(texts));
  return { [Symbol.dispose]: () => void socket.destroy() };
}

async function sendPack(url: string, pack: readonly unknown[]): Promise<Disposable> {
  const webSocket = new WebSocket(url, ["reciproc.v1"]);
  await once(webSocket, "message");
  webSocket.send('{"hello":{}}');
  webSocket.send(JSON.stringify(pack));
  return { [Symbol.dispose]: () => webSocket.terminate() };
}

async function sendPost(url: string, batch: readonly unknown[]): Promise<Disposable> {
  const post = httpRequest({ port: portOf(url), method: "POST", headers: { "Content-Type": "application/json" } });
  post.on("error", () => {});
  post.end(JSON.stringify(batch));
  return { [Symbol.dispose]: () => void post.destroy() };
}

/** Sends each call in its own POST, all in one write. */
async function sendPosts(url: string, messages: readonly unknown[]): Promise<Disposable> {
  const socket = connectTcp(portOf(url), "127.0.0.1");
  const posts = messages.map((message) => {
    const body = JSON.stringify(message);
    const head = ["POST / HTTP/1.1", "Host: localhost", "Content-Type: application/json"];
    return [...head, `Content-Length: ${body.length}`, "", body].join("\r\n");
  });
  socket.write(posts.join(""));
  return { [Symbol.dispose]: () => void socket.destroy() };
}

/** The ways in which the same calls can arrive at once. */
const WAYS: [string, (url: string) => Promise<Disposable>][] = [
  [
    "frames",
    (url) =>
      sendPlain(
        url,
        calls.map((call) => JSON.stringify(call)),
      ),
  ],
  ["a pack", (url) => sendPack(url, calls)],
  ["a batch", (url) => sendPlain(url, [JSON.stringify(calls)])],
  ["a batch in a pack", (url) => sendPack(url, [calls.slice(0, -1), calls.at(-1)])],
  ["a batch by POST", (url) => sendPost(url, calls)],
  ["POSTs in a pipeline", (url) => sendPosts(url, calls)],
  [
    "POSTs of batches in a pipeline",
    (url) =>
      sendPosts(
        url,
        [0, 10, 20, 30].map((i) => calls.slice(i, i + 10)),
      ),
  ],
];

describe("calls that arrive together on one connection", () => {
  it.each(WAYS)("lets another connection be served as %s, and keeps their order", async (_way, send) => {
    await using at = await busy();
    await using other = await connect(at.url);
    await other.request("here");
    // Sent while the first call runs: so it is queued in the system when that call ends.
    const answered = new Promise<unknown>((resolve) => (at.onFirst = () => resolve(other.request("here"))));
    const sender = await send(at.url);
    expect(await answered).toBeLessThan(MANY / 2);
    await vi.waitFor(() => expect(at.done).toEqual(numbers), 5000);
    sender[Symbol.dispose]();
  });

  it("sends all responses before it answers the close behind the calls", async () => {
    await using at = await busy();
    const socket = await sendUpgrade(at.url);
    const chunks: Buffer[] = [];
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    const frames = maskedFrames(calls.map((call) => JSON.stringify(call)));
    socket.write(Buffer.concat([Buffer.from(frames as Uint8Array), CLOSE]));
    await once(socket, "end");
    socket.destroy();
    const text = Buffer.concat(chunks).toString("latin1");
    const answers = [...text.matchAll(/"id":(\d+),"result":(\d+)/g)].map(([, id, result]) => [
      Number(id),
      Number(result),
    ]);
    expect(answers).toEqual(numbers.map((i) => [i, i]));
    expect(text.endsWith("\x88\x02\x03\xe8")).toBe(true);
  });

  it("dispatches them before it reports the end of a connection that was cut behind them", async () => {
    await using at = await busy();
    const ended = new Promise<number>((resolve) =>
      at.server.on("peer", (peer) => peer.on("close", () => resolve(at.done.length))),
    );
    const socket = await sendUpgrade(at.url);
    socket.end(maskedFrames(calls.map((call) => JSON.stringify(call))));
    expect(await ended).toBe(MANY);
  });

  it("dispatches no more after one of the handlers closes the peer", async () => {
    await using at = await busy();
    const arrived = new Promise<AnyPeer>((resolve) => at.server.on("peer", resolve));
    using client = await plainPeer(at.url);
    const peer = await arrived;
    at.onFirst = () => setImmediate(() => void peer.close(4000, "enough"));
    for (const call of calls) client.webSocket.send(JSON.stringify(call));
    expect(await client.closed).toMatchObject({ code: 4000 });
    await peer.closed;
    expect(at.done.length).toBeLessThan(MANY);
    expect(at.done).toEqual(numbers.slice(0, at.done.length));
  });
});

describe("messages that arrived before a client has a listener", () => {
  it.each(["packed", "plain"] as const)("dispatches all in order, however slow they are (%s)", async (link) => {
    const batches = [0, 1, 2, 3].map((n) => numbers.slice(10 * n, 10 * n + 10));
    const behind = Array.from({ length: 17 }, (_, n) => n + 1);
    await using server = await serve({ port: 0 });
    server.on("peer", (peer) => {
      for (const batch of batches) {
        const sending = peer.batch();
        for (const i of batch) sending.notify("work", [i]);
        sending.send();
        for (const n of behind) peer.notify("work", [batch[0]! * 100 + n]);
      }
    });
    const done: number[] = [];
    const work = ([i]: [number]): void => {
      for (const end = performance.now() + 2; performance.now() < end;);
      done.push(i);
    };
    await using client = await connect(server.url, { link, methods: { work } });
    const all = batches.flatMap((batch) => [...batch, ...behind.map((n) => batch[0]! * 100 + n)]);
    await vi.waitFor(() => expect(done).toHaveLength(all.length), 5000);
    expect(done).toEqual(all);
    expect(client.state).toBe("open");
  });

  it("dispatches all of them before it reports the close", async () => {
    await using server = await serve({ port: 0 });
    server.on("peer", (peer) => {
      for (const i of numbers) peer.notify("work", [i]);
      void peer.close(4000, "enough");
    });
    const done: number[] = [];
    const work = ([i]: [number]): void => {
      for (const end = performance.now() + 1; performance.now() < end;);
      done.push(i);
    };
    await using client = await connect(server.url, { link: "plain", methods: { work }, reconnect: false });
    expect(await client.closed).toMatchObject({ code: 4000 });
    expect(done).toEqual(numbers);
  });
});

describe("a WebSocket ping", () => {
  it.each(["packed", "plain"] as const)(
    "is answered after the messages before it, so that a subscription's first notification follows its id (%s)",
    async (link) => {
      const kind = new Subscriptions<number>({ method: "said" });
      const methods = {
        subscribe(_params: unknown, context: ServerContext) {
          for (let i = 0; i < 4; i++) context.peer.notify("work");
          const { id, notify } = kind.open(context);
          notify(1);
          return id;
        },
      };
      await using server = await serve({ port: 0, methods });
      const order: string[] = [];
      const busyMethods = {
        work() {
          for (const end = performance.now() + 7; performance.now() < end;);
        },
        said: () => void order.push("said"),
      };
      await using client = await connect(server.url, { link, methods: busyMethods });
      for (let i = 0; i < 5; i++) {
        await client.request("subscribe");
        order.push("id");
        await vi.waitFor(() => expect(order).toHaveLength(2 * i + 2));
      }
      expect(order).toEqual(Array.from({ length: 10 }, (_, i) => (i % 2 === 0 ? "id" : "said")));
    },
  );
});

/** Opens a socket, and resolves when the server's hello has arrived. */
async function open(url: string, protocols: string[]): Promise<{ webSocket: WebSocket; frames: any[] }> {
  const webSocket = new WebSocket(url, protocols);
  const frames: any[] = [];
  webSocket.on("message", (data: Buffer) => frames.push(JSON.parse(data.toString())));
  await vi.waitFor(() => expect(frames).toHaveLength(1));
  return { webSocket, frames };
}

describe("a session whose socket is replaced in the middle of a pack", () => {
  it("dispatches each message once and in order: the rest of the pack before messages of the new socket", async () => {
    await using at = await busy();
    const limits = { maxMessageBytes: 2 ** 20, logFrames: 4096, logLength: 2 ** 22 };
    const first = await open(at.url, ["reciproc.v1"]);
    first.webSocket.send(JSON.stringify({ hello: { session: true, limits } }));
    const { token } = first.frames[0].hello.session as { token: string };
    const second = await open(at.url, ["reciproc.v1", "reciproc.resume"]);
    // Sent while the handler of the first message runs, and so read before the pack is done.
    at.onFirst = () => second.webSocket.send(JSON.stringify({ resume: { token, received: 0, attempt: 1, limits } }));
    const late = [notification("work", [MANY])];
    first.webSocket.send(JSON.stringify(numbers.map((i) => notification("work", [i]))));
    // This message follows the pack on the old socket. It was not received, so the client sends it again.
    first.webSocket.send(JSON.stringify(late));
    await vi.waitFor(() => expect(second.frames).toHaveLength(2), 5000);
    expect(at.done.length).toBeLessThan(MANY);
    expect(second.frames[1]).toMatchObject({ resumed: { received: 1 } });
    second.webSocket.send('{"ack":0}');
    second.webSocket.send(JSON.stringify(late));
    await vi.waitFor(() => expect(at.done).toHaveLength(MANY + 1), 5000);
    expect(at.done).toEqual([...numbers, MANY]);
    second.webSocket.close();
  });
});
