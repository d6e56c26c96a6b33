/** Calls and results of peers above a session do not change when sockets are lost. */
import { afterEach, describe, expect, it } from "vitest";
import { ConnectionLostError, Peer } from "../../../src/index.js";
import { TestClient } from "../../support/links.js";
import { Sessions } from "../../../src/server/sessions.js";
import type { Socket, SocketHandler } from "../../../src/link/socket.js";
import { memorySockets } from "../../../src/sockets/memory.js";
import { expectEmpty } from "../../support/pair.js";
import { gate, rejection, turn } from "../../support/turns.js";
import { KEPT, PEER_LIMITS } from "./rig.js";

/** Forwards the frames of `socket` until it is cut. Then both ends are lost, and neither end notifies the other. */
function cuttable(socket: Socket): Socket & { cut(): void } {
  let handler: SocketHandler | undefined;
  let isCut = false;
  return {
    start: (given) => {
      handler = given;
      socket.start({
        frame: (text) => isCut || given.frame(text),
        closed: (info) => isCut || given.closed(info),
      });
    },
    send: (frame) => !isCut && socket.send(frame),
    close: (code, reason) => void (isCut || socket.close(code, reason)),
    discard: (code, reason) => void (isCut || socket.discard(code, reason)),
    get open() {
      return !isCut && socket.open;
    },
    unsentBytes: 0,
    maxFrameBytes: 2 ** 20,
    cut: () => {
      isCut = true;
      handler?.closed({ code: 1006, reason: "" });
    },
  };
}

/** Makes a client and a server peer, whose connection can be cut and reconnects by itself. */
function joined(
  serverMethods: object,
  clientMethods: object = {},
): {
  client: Peer;
  server: Peer;
  cut: () => void;
  reconnect: () => void;
} {
  let count = 0;
  const makeToken = (): string => `t${++count}`;
  const sessions = new Sessions({ limits: PEER_LIMITS, ...KEPT, makeToken, hash: (token) => `#${token}` });
  let ends: { cut(): void }[] = [];
  const open = (): [Socket, Socket] => {
    const [a, b] = memorySockets(2 ** 20, 2 ** 20).map(cuttable) as [
      Socket & { cut(): void },
      Socket & { cut(): void },
    ];
    ends = [a, b];
    return [a, b];
  };
  const [near, far] = open();
  const server: Peer = new Peer(sessions.link(near, undefined), { methods: serverMethods as never });
  const half = new TestClient(far, PEER_LIMITS, { over: () => false });
  const client: Peer = new Peer(half.link, { methods: clientMethods as never });
  return {
    client,
    server,
    cut: () => {
      for (const end of ends) end.cut();
    },
    reconnect: () => {
      const [a, b] = open();
      sessions.admit(a, undefined, 1000, () => {});
      half.dial(b);
    },
  };
}

let peers: Peer[] = [];
afterEach(async () => {
  await Promise.all(peers.map((peer) => peer.close()));
  await turn();
  for (const peer of peers) expectEmpty(peer);
  peers = [];
});

describe("a call", () => {
  it("gets a result that was lost with its socket, and ran once", async () => {
    let ran = 0;
    const { client, server, cut, reconnect } = joined({ add: ([a, b]: [number, number]) => (ran++, a + b) });
    peers = [client, server];
    await turn();
    const calls = Array.from({ length: 50 }, (_, i) => client.request("add", [i, i]));
    // The server has run some calls, and their responses are in flight.
    await Promise.resolve();
    await Promise.resolve();
    cut();
    await turn();
    reconnect();
    expect(await Promise.all(calls)).toEqual(Array.from({ length: 50 }, (_, i) => 2 * i));
    expect(ran).toBe(50);
  });

  it("rejects as not sent if it is queued when its peer closes, and never runs, but queued notifications are sent", async () => {
    const ran: unknown[] = [];
    const note = (params: unknown): void => void ran.push(params);
    const { client, server } = joined({ big: () => 0, note });
    peers = [client, server];
    await turn();
    // More than the replay log accepts without an ack.
    const sent = Array.from({ length: 5 }, () => rejection(client.request("big", ["x".repeat(1_000_000)])));
    const batch = client.batch();
    const waiting = [rejection(client.request("note", ["call"])), rejection(batch.request("note", ["batch"]))];
    batch.send();
    client.notify("note", ["notification"]);
    await client.close();
    for (const error of await Promise.all(sent)) expect(error).toMatchObject({ outcome: "unknown" });
    for (const error of await Promise.all(waiting)) expect(error).toMatchObject({ outcome: "not-sent" });
    await turn();
    expect(ran).toEqual([["notification"]]);
  });

  it("continues to run when the socket is lost, and gets its result over the next socket", async () => {
    const opened = gate<string>();
    const { client, server, cut, reconnect } = joined({ wait: () => opened.promise });
    peers = [client, server];
    await turn();
    const call = client.request("wait");
    await turn();
    cut();
    opened.resolve("while away");
    await turn();
    reconnect();
    expect(await call).toBe("while away");
  });

  it("is queued while suspended, in both directions", async () => {
    const { client, server, cut, reconnect } = joined({ a: () => "a" }, { b: () => "b" });
    peers = [client, server];
    await turn();
    cut();
    const calls = [client.request("a"), server.request("b")];
    await turn();
    reconnect();
    expect(await Promise.all(calls)).toEqual(["a", "b"]);
  });

  it.each(["suspended", "being resumed"])(
    "is cancelled at the other side if it is aborted while the session is %s",
    async (state) => {
      let cancelled = false;
      const { client, server, cut, reconnect } = joined({
        wait: (_params: unknown, { signal }: { signal: AbortSignal }) =>
          new Promise((resolve) => signal.addEventListener("abort", () => resolve((cancelled = true)))),
      });
      peers = [client, server];
      await turn();
      const controller = new AbortController();
      const given = rejection(client.request("wait", undefined, { signal: controller.signal }));
      await turn();
      cut();
      if (state === "suspended") controller.abort();
      reconnect();
      controller.abort();
      expect(await given).toBe(controller.signal.reason);
      await turn();
      expect(cancelled).toBe(true);
    },
  );

  it("rejects when the session is closed while suspended", async () => {
    const { client, server, cut } = joined({
      wait: (_params: unknown, { signal }: { signal: AbortSignal }) =>
        new Promise((resolve) => signal.addEventListener("abort", resolve)),
    });
    peers = [client, server];
    await turn();
    const call = client.request("wait");
    await turn();
    cut();
    const lost = rejection(call);
    await client.close();
    expect(await lost).toBeInstanceOf(ConnectionLostError);
    expect(await lost).toMatchObject({ outcome: "unknown" });
  });
});
