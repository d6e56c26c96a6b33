import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { afterEach, describe, expect, it, vi } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { ReadMarks } from "../../src/sockets/read-marks.js";
import { type GatheringWebSocket, WsSocket } from "../../src/sockets/ws.js";
import { EncodedFrame } from "../../src/core/transport.js";
import { bareHttp } from "../support/network.js";
import { turn } from "../support/turns.js";
import { Recorder, started } from "./behaviour.js";
import { describeWebSocket, overNetwork, overWs, overWsServer } from "./websocket.js";

// As with a real server and client, which stop a longer message while they read it.
const options = (maxPayload: number): object => ({ maxPayload, perMessageDeflate: false });

describeWebSocket("over ws", overWs, { tooLarge: 1009 });
describeWebSocket("over ws, on a server", overWsServer, { tooLarge: 1009 });

// As in Bun, which replaces `ws`: its `upgrade` event has no socket.
const makeWithoutSocket = overNetwork((webSocket, most) => {
  const socket = new WsSocket(webSocket, most);
  webSocket.emit("upgrade", { socket: null });
  return socket;
}, options);

describeWebSocket("over ws that hands out no socket", makeWithoutSocket, { tooLarge: 1009 });

/** Makes marks whose pings the test sees. `set(n)` sets a mark that records `n` when it is reached. */
function recording() {
  const pings: string[] = [];
  const emitted: number[] = [];
  const marks = new ReadMarks((payload) => pings.push(payload));
  return { pings, emitted, marks, set: (n = 0): boolean => marks.set(() => emitted.push(n)) };
}

describe("afterRead of a socket over ws", () => {
  it("calls back when the other side has read all earlier frames, in order", async () => {
    await using ends = await started(overWs);
    const emitted: string[] = [];
    ends.far.pause();
    ends.socket.send("reply");
    expect(ends.socket.afterRead!(() => emitted.push("first"))).toBe(true);
    expect(ends.socket.afterRead!(() => emitted.push("second"))).toBe(true);
    await turn();
    expect(emitted).toEqual([]);
    ends.far.resume();
    await vi.waitFor(() => expect(emitted).toEqual(["first", "second"]));
    expect(await ends.far.received(1)).toEqual(["reply"]);
  });

  it("shares a ping among the marks of 5 ms, and sends the next one without waiting for a pong", async () => {
    const { pings, emitted, marks, set } = recording();
    for (const n of [1, 2, 3]) expect(set(n)).toBe(true);
    expect(pings).toEqual(["1"]);
    for (const stray of ["", "0", "x", "-1", "2", "3"]) expect(marks.reached(stray)).toBe(false);
    await vi.waitFor(() => expect(pings).toEqual(["1", "3"]));
    expect(emitted).toEqual([]);
    expect(marks.reached("1")).toBe(true);
    expect(emitted).toEqual([1]);
    expect(marks.reached("3")).toBe(true);
    expect(marks.reached("3")).toBe(false);
    expect(emitted).toEqual([1, 2, 3]);
  });

  it("has at most 16 pings in flight", () => {
    vi.useFakeTimers();
    const { pings, marks, set } = recording();
    for (let i = 0; i < 50; i++) {
      set();
      vi.advanceTimersByTime(5);
    }
    expect(pings).toHaveLength(16);
    // A pong also answers all earlier pings.
    expect(marks.reached("4")).toBe(true);
    expect(pings.at(-1)).toBe("50");
    vi.useRealTimers();
  });

  it("pings at most every 5 ms", async () => {
    let pings = 0;
    const marks = new ReadMarks((payload) => {
      pings++;
      queueMicrotask(() => marks.reached(payload));
    });
    const beganAt = performance.now();
    for (let i = 0; i < 1000; i++) {
      marks.set(() => {});
      await Promise.resolve();
    }
    expect(pings).toBeLessThanOrEqual(1 + (performance.now() - beganAt) / 5);
  });

  it("pings again if a mark is set a second after an unanswered ping", () => {
    vi.useFakeTimers();
    const { pings, emitted, marks, set } = recording();
    set(1);
    vi.advanceTimersByTime(1001);
    set(2);
    vi.useRealTimers();
    expect(pings).toEqual(["1", "2"]);
    // A pong for the latest ping answers all earlier pings.
    expect(marks.reached("2")).toBe(true);
    expect(emitted).toEqual([1, 2]);
  });

  it("keeps at most 1,024 unanswered marks, because a client might never answer", () => {
    const { marks, set } = recording();
    expect(Array.from({ length: 1025 }, () => set()).indexOf(false)).toBe(1024);
    marks.reached("1");
    expect(set()).toBe(true);
  });

  it("returns false if the socket is not open", async () => {
    await using ends = await started(overWs);
    ends.socket.close();
    expect(ends.socket.afterRead!(() => {})).toBe(false);
  });
});

afterEach(() => {
  vi.doUnmock("ws");
  vi.resetModules();
});

it("is forgotten by its budget when it has closed, because a session without a socket keeps the budget", async () => {
  await using ends = await started(overWs);
  const { budget } = ends.socket;
  ends.far.close(1000, "");
  await ends.recorder.ended;
  const pause = vi.spyOn(ends.socket as WsSocket, "pauseReading");
  await new Promise<void>((resolve) => budget!.add(resolve));
  expect(pause).not.toHaveBeenCalled();
});

it("writes nothing to a server's socket if `ws` does not make its own frames, as in Bun", async () => {
  vi.doMock("ws", async (original) => ({ ...(await original<object>()), Sender: function () {} }));
  vi.resetModules();
  const replaced = await import("../../src/sockets/ws.js");
  await using http = await bareHttp();
  const upgrader = new WebSocketServer({ noServer: true, WebSocket: replaced.GatheringWebSocket });
  const arrived = new Promise<{ webSocket: GatheringWebSocket; raw: Duplex }>((resolve) => {
    http.server.on("upgrade", (request: IncomingMessage, raw: Duplex, head: Buffer) => {
      upgrader.handleUpgrade(request, raw, head, (webSocket) => resolve({ webSocket, raw }));
    });
  });
  const client = new WebSocket(http.url);
  const received: string[] = [];
  client.on("message", (data: Buffer) => received.push(data.toString()));
  const { webSocket, raw } = await arrived;
  const socket = new replaced.WsSocket(webSocket, 1000, raw);
  const recorder = new Recorder();
  socket.start(recorder);
  const sentByWebSocket = vi.spyOn(webSocket, "send");
  socket.send("one");
  socket.send(new EncodedFrame("two"));
  socket.sendAll(["three", "four"]);
  expect(sentByWebSocket.mock.calls).toEqual([["one"], ["two"], ["three"], ["four"]]);
  expect(socket.traffic).toBeUndefined();
  await vi.waitFor(() => expect(received).toEqual(["one", "two", "three", "four"]));
  // The messages that a link had queued when the other side disconnected are dropped.
  client.terminate();
  await once(webSocket, "close");
  socket.sendAll(["five"]);
  expect(sentByWebSocket).toHaveBeenCalledTimes(4);
  expect((await recorder.ended).code).toBe(1006);
});
