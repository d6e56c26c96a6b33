import { once } from "node:events";
import { createServer as createTlsServer } from "node:https";
import type { Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { describe, expect, it, vi } from "vitest";
import { serve } from "../../src/node.js";
import { selfSigned } from "../support/certificates.js";
import { bareHttp, HANDSHAKE, listening, portOf, readAnswer } from "../support/network.js";
import { postText, write } from "../support/post.js";
import { request } from "../support/raw.js";
import { gate } from "../support/turns.js";

const H2C = { Connection: "Upgrade, HTTP2-Settings", Upgrade: "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAAB" };
const WEBSOCKET = { ...HANDSHAKE, Connection: "keep-alive, Upgrade" };

const methods = { echo: ([n]: [number]) => n };

function post(id: number, headers: Record<string, string> = {}, method = "echo"): string {
  return postText("ws://localhost/", JSON.stringify(request(id, method, [id])), headers);
}

/** Returns the statuses and results of all responses until the server ends the connection, and how many of them announce that. */
async function readAll(socket: Socket): Promise<{ statuses: number[]; results: unknown[]; closes: number }> {
  const text = String(Buffer.concat((await socket.toArray()) as Buffer[]));
  const bodies = text.match(/\{"jsonrpc".*?\}(?=HTTP|$)/g) ?? [];
  return {
    statuses: [...text.matchAll(/^HTTP\/1.1 (\d+)|\}HTTP\/1.1 (\d+)/gm)].map(([, first, next]) =>
      Number(first ?? next),
    ),
    results: bodies.map((body) => (JSON.parse(body) as { result: unknown }).result),
    closes: text.match(/^connection: close/gim)?.length ?? 0,
  };
}

function flood(socket: Socket): void {
  const more = (): void => void (!socket.destroyed && socket.write(post(3).repeat(1000), more));
  more();
}

const CLOSE = { Connection: "close" };

describe("a POST that offers an upgrade", () => {
  it.each(["ws", "wss"])("is answered, and so are those behind it, until one asks for the end: %s", async (scheme) => {
    const { key, cert } = selfSigned();
    await using http = await (scheme === "ws" ? bareHttp() : listening(createTlsServer({ key, cert })));
    await using server = await serve({ server: http.server, methods });
    const socket =
      scheme === "ws"
        ? await write(server.url, "")
        : connectTls({ port: portOf(server.url), host: "127.0.0.1", ca: cert });
    const last = { ...H2C, Connection: "Upgrade, HTTP2-Settings, close" };
    socket.write(post(1, H2C) + post(2) + post(3, WEBSOCKET) + post(4, last));
    expect(await readAll(socket)).toEqual({ statuses: Array(4).fill(200), results: [1, 2, 3, 4], closes: 1 });
  });

  it("is processed with the bytes that arrive while it waits for an earlier response", async () => {
    const open = gate<string>();
    const started = gate();
    const slow = (): Promise<string> => (started.resolve(), open.promise);
    await using http = await bareHttp();
    await using server = await serve({ server: http.server, methods: { ...methods, slow } });
    const connected = once(http.server, "connection");
    const socket = await write(http.url, post(1, {}, "slow") + post(2, H2C).slice(0, -5));
    const [theirs] = (await connected) as [Socket];
    await started.promise;
    const taken = vi.fn<() => void>();
    theirs.on("data", taken);
    socket.write(post(2, H2C).slice(-5) + post(3) + post(4, H2C) + post(5, WEBSOCKET) + post(6, CLOSE));
    await vi.waitFor(() => expect(taken).toHaveBeenCalled());
    theirs.off("data", taken);
    open.resolve("slow");
    expect(await readAll(socket)).toEqual({
      statuses: Array(6).fill(200),
      results: ["slow", 2, 3, 4, 5, 6],
      closes: 1,
    });
    expect(server.stats().requestsReceived).toBe(6);
  });

  it.each<[string, (socket: Socket) => void]>([
    ["is gone", (socket) => void socket.end()],
    ["sends more than one message may have, while no response has left", (socket) => flood(socket)],
  ])("aborts the handlers of its connection when its client %s", async (_what, act) => {
    const started = gate<AbortSignal>();
    const stuck = (_params: unknown, { signal }: { signal: AbortSignal }): Promise<unknown> =>
      new Promise(() => started.resolve(signal));
    await using server = await serve({ port: 0, methods: { ...methods, stuck } });
    const socket = await write(server.url, post(1, {}, "stuck") + post(2, H2C));
    const signal = await started.promise;
    const aborted = once(signal, "abort");
    act(socket);
    await aborted;
    expect(server.stats().requestsReceived).toBe(1);
  });

  it("leaves the connection open, also for a WebSocket", async () => {
    await using server = await serve({ port: 0, methods });
    const socket = await write(server.url, post(1, H2C));
    expect(String((await once(socket, "data"))[0])).not.toMatch(/^connection: close/im);
    socket.write(post(2, H2C));
    expect(String((await once(socket, "data"))[0])).toMatch(/^HTTP\/1.1 200 /);
    const upgrade = Object.entries({ Host: "localhost", ...WEBSOCKET }).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`GET / HTTP/1.1\r\n${upgrade.join("")}\r\n`);
    expect((await readAnswer(socket)).status).toBe(101);
  });

  it("leaves no listener on the connection, however many offers arrive", async () => {
    await using http = await bareHttp();
    await using server = await serve({ server: http.server, methods });
    expect(server.url).not.toBe("");
    const connected = once(http.server, "connection");
    const socket = await write(http.url, post(1, H2C));
    const [theirs] = (await connected) as [Socket];
    await once(socket, "data");
    const count = (): number => theirs.eventNames().reduce((sum, name) => sum + theirs.listenerCount(name), 0);
    const before = count();
    for (let id = 2; id < 50; id++) {
      socket.write(post(id, H2C));
      await once(socket, "data");
    }
    expect(count()).toBe(before);
    const rest = Array.from({ length: 50 }, (_, id) => post(id, H2C));
    socket.write(rest.join("") + post(50, CLOSE));
    expect((await readAll(socket)).results).toHaveLength(51);
    expect(theirs.eventNames().map((name) => theirs.listenerCount(name) <= 2)).not.toContain(false);
  });
});
