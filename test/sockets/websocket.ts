/** The behaviour of the two real WebSockets beyond the common suite, and the other end of a real connection. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { Peer } from "../../src/index.js";
import type { Socket } from "../../src/link/socket.js";
import { plain } from "../../src/link/plain.js";
import { GatheringWebSocket, WsSocket } from "../../src/sockets/ws.js";
import {
  describeSocket,
  hexOf,
  Recorder,
  started,
  type FarWebSocket,
  type MakeSocket,
  type Traits,
} from "./behaviour.js";

/** Opens a connection through `wrap` to a bare `ws` WebSocket. */
export function overNetwork(
  wrap: (webSocket: GatheringWebSocket, maxMessageBytes: number) => Socket,
  options: (maxMessageBytes: number) => object,
): MakeSocket<FarWebSocket> {
  return async (maxMessageBytes) => {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const webSocket = new GatheringWebSocket(`ws://127.0.0.1:${port}`, options(maxMessageBytes));
    const socket = wrap(webSocket, maxMessageBytes);
    const [[bare]] = (await Promise.all([once(server, "connection"), once(webSocket, "open")])) as [
      [WebSocket],
      unknown,
    ];
    return {
      socket,
      far: farEnd(bare),
      async [Symbol.asyncDispose]() {
        webSocket.terminate();
        bare.terminate();
        await new Promise((resolve) => server.close(resolve));
      },
    };
  };
}

/** Opens a connection over `ws`, which stops a longer message while it reads it, as a real client does. */
export const overWs = overNetwork(
  (webSocket, most) => new WsSocket(webSocket, most),
  (maxPayload) => ({ maxPayload, perMessageDeflate: false }),
);

/** Opens a connection to a server of `ws`, whose socket it tests, as a real server makes it. */
export const overWsServer: MakeSocket<FarWebSocket> = async (maxPayload) => {
  const server = new WebSocketServer<typeof GatheringWebSocket>({
    port: 0,
    host: "127.0.0.1",
    perMessageDeflate: false,
    maxPayload,
    WebSocket: GatheringWebSocket,
  });
  await once(server, "listening");
  const bare = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const far = farEnd(bare);
  const connected = new Promise<WsSocket>((resolve) =>
    server.once("connection", (webSocket, { socket }) => resolve(new WsSocket(webSocket, maxPayload, socket))),
  );
  const [socket] = await Promise.all([connected, once(bare, "open")]);
  return {
    socket,
    far,
    async [Symbol.asyncDispose]() {
      bare.terminate();
      socket.giveUp("the test has ended");
      await new Promise((resolve) => server.close(resolve));
    },
  };
};

function farEnd(bare: WebSocket): FarWebSocket {
  const recorder = new Recorder();
  const closed = new Promise<{ code: number; reason: string }>((resolve) =>
    bare.on("close", (code, reason) => resolve({ code, reason: reason.toString() })),
  );
  bare.on("message", (data: Buffer, isBinary) => recorder.frame(isBinary ? hexOf(data) : data.toString()));
  // A connection that the test cuts can end with an error here.
  bare.on("error", () => {});
  return {
    send: (text) => bare.send(text),
    sendBytes: (bytes) => bare.send(bytes),
    close: (code, reason) => bare.close(code, reason),
    cut: () => bare.terminate(),
    pause: () => bare.pause(),
    resume: () => bare.resume(),
    received: (count) => recorder.received(count),
    closed,
  };
}

/** Runs both suites. */
export function describeWebSocket(name: string, make: MakeSocket<FarWebSocket>, traits: Traits): void {
  describeSocket(name, make, traits);

  describe(`${name}: text in binary frames`, () => {
    it("treats invalid UTF-8 as garbage: a peer answers -32700 and continues", async () => {
      await using ends = await make(1000);
      const peer = new Peer(plain(ends.socket), { methods: { m: () => 1 } });
      ends.far.sendBytes(Uint8Array.of(0x22, 0xff, 0x22));
      ends.far.sendBytes(new TextEncoder().encode('{"jsonrpc":"2.0","id":1,"method":"m"}'));
      expect(await ends.far.received(2)).toEqual([
        '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}',
        '{"jsonrpc":"2.0","id":1,"result":1}',
      ]);
      await peer.close();
    });
  });

  describe(`${name}: the network`, () => {
    it("reports 1006 if the connection is cut without a close frame", async () => {
      await using ends = await started(make);
      ends.far.cut();
      expect(await ends.recorder.ended).toMatchObject({ code: 1006, reason: "" });
      expect(ends.recorder.ends).toHaveLength(1);
    });

    it("increases unsentBytes while the other side does not read, and decreases it when it does", async () => {
      await using ends = await started(make);
      ends.far.pause();
      const frame = "x".repeat(2 ** 20);
      let count = 0;
      while (ends.socket.unsentBytes < 2 * frame.length) {
        expect(ends.socket.send(frame)).toBe(true);
        count++;
      }
      ends.far.resume();
      const frames = await ends.far.received(count);
      expect(frames.every((text) => text.length === frame.length)).toBe(true);
      expect(ends.socket.unsentBytes).toBe(0);
    });
  });
}
