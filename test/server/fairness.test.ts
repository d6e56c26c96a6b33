/** One connection that sends many messages at once: others are served meanwhile, and no message is lost or reordered. */
import { once } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { connect, serve, Subscriptions, type AnyPeer, type ServerContext } from "../../src/node.js";
import { maskedFrames } from "../../src/socket/frames.js";
import { sendUpgrade, plainPeer } from "../support/network.js";
import { notification, request } from "../support/raw.js";
import { stall, useVirtualClock } from "../support/time.js";
import { ByHand, LIMITS } from "./by-hand.js";

const MANY = 40;
/** A close frame with 1000, masked with zeros. */
const CLOSE = Buffer.of(0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8);

useVirtualClock();

/** Serves `work`, which takes 3 ms and records its number. `onFirst` is called in the handler of the first one. */
async function busy() {
  const done: number[] = [];
  const server = await serve({
    port: 0,
    methods: {
      here: () => done.length,
      work: ([i]: [number]): number => {
        if (done.length === 0) at.onFirst();
        stall(3);
        done.push(i);
        return i;
      },
    },
  });
  const at = { server, url: server.url, done, onFirst: () => {}, [Symbol.asyncDispose]: () => server.close() };
  return at;
}

const numbers = Array.from({ length: MANY }, (_, i) => i);
const calls = numbers.map((i) => request(i, "work", [i]));

describe("calls that arrive together on one connection", () => {
  it("sends all responses before it answers the close behind the calls", async () => {
    await using at = await busy();
    const socket = await sendUpgrade(at.url);
    const chunks: Buffer[] = [];
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.write(Buffer.concat([maskedFrames(calls.map((call) => JSON.stringify(call))), CLOSE]));
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

it.each(["packed", "plain"] as const)("slow messages that came before a listener are in order (%s)", async (link) => {
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
    stall(2);
    done.push(i);
  };
  await using client = await connect(server.url, { link, methods: { work } });
  const all = batches.flatMap((batch) => [...batch, ...behind.map((n) => batch[0]! * 100 + n)]);
  await vi.waitFor(() => expect(done).toHaveLength(all.length));
  expect(done).toEqual(all);
  expect(client.state).toBe("open");
});

it.each(["packed", "plain"] as const)("a ping is answered after the messages before it (%s)", async (link) => {
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
  const busyMethods = { work: () => stall(7), said: () => void order.push("said") };
  await using client = await connect(server.url, { link, methods: busyMethods });
  for (let i = 0; i < 5; i++) {
    await client.request("subscribe");
    order.push("id");
    await vi.waitFor(() => expect(order).toHaveLength(2 * i + 2));
  }
  expect(order).toEqual(Array.from({ length: 10 }, (_, i) => (i % 2 === 0 ? "id" : "said")));
});

it("a session whose socket is replaced in the middle of a pack dispatches each message once and in order: the rest of the pack before messages of the new socket", async () => {
  await using at = await busy();
  const first = await ByHand.begin(at.url);
  const second = await ByHand.open(at.url, { returns: true });
  // Sent while the handler of the first message runs, and so read before the pack is done.
  at.onFirst = () => second.say({ resume: { token: first.token, received: 0, attempt: 1, limits: LIMITS } });
  // In hundreds of ticks: the resume arrives in one of the first.
  const many = Array.from({ length: 10 * MANY }, (_, i) => i);
  const late = [notification("work", [many.length])];
  first.byHand.say(many.map((i) => notification("work", [i])));
  // This message follows the pack on the old socket. It was not received, so the client sends it again.
  first.byHand.say(late);
  await second.next();
  expect(await second.next()).toMatchObject({ resumed: { received: 1 } });
  expect(at.done.length).toBeLessThan(many.length);
  second.say({ ack: 0 });
  second.say(late);
  await vi.waitFor(() => expect(at.done).toHaveLength(many.length + 1));
  expect(at.done).toEqual([...many, many.length]);
});
