import { once } from "node:events";
import type { AddressInfo } from "node:net";
import type { Page } from "playwright-core";
import { beforeAll, expect, it } from "vitest";
import { WebSocketServer, type ServerOptions } from "ws";
import { serve, type Server } from "../../src/node.js";
import { openBarePage } from "./site.js";

let page: Page;
beforeAll(async () => {
  ({ page } = await openBarePage());
});

/** A bare server that answers every request with its params, and records the offered subprotocols. */
async function bareServer(options: ServerOptions): Promise<{ url: string; offers: string[] } & AsyncDisposable> {
  const offers: string[] = [];
  const server = new WebSocketServer({ ...options, port: 0 });
  server.on("connection", (webSocket) =>
    webSocket.on("message", (data: Buffer) => {
      const { id, params } = JSON.parse(data.toString()) as { id: number; params: unknown };
      webSocket.send(JSON.stringify({ jsonrpc: "2.0", id, result: params }));
    }),
  );
  server.on("headers", (_headers, request) => offers.push(request.headers["sec-websocket-protocol"] ?? ""));
  await once(server, "listening");
  return {
    url: `ws://127.0.0.1:${(server.address() as AddressInfo).port}`,
    offers,
    async [Symbol.asyncDispose]() {
      for (const client of server.clients) client.terminate();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** Connects the page and calls `echo` thirty times in one tick. Returns the number of correct answers. */
function callFromPage(url: string): Promise<number> {
  return page.evaluate(async (target) => {
    const peer = await reciproc.connect(target);
    const answers = await Promise.all(Array.from({ length: 30 }, (_, i) => peer.request("echo", [i])));
    await peer.close();
    return answers.filter((answer, i) => (answer as number[])[0] === i).length;
  }, url);
}

it("speaks reciproc.v1 with a reciproc server, which packs thirty calls of a tick into a few frames", async () => {
  await using server: Server = await serve({ port: 0, methods: { echo: (params: unknown) => params } });
  const frames: string[] = [];
  page.once("websocket", (webSocket) => webSocket.on("framesent", ({ payload }) => frames.push(String(payload))));
  expect(await callFromPage(server.url)).toBe(30);
  expect(frames[0]).toMatch(/^\{"hello":\{"session":true,/);
  expect(frames.filter((frame) => frame.startsWith("[")).length).toBeLessThanOrEqual(3);
  // The last pack, which arrived with the close.
  expect(frames.slice(1).filter((frame) => frame.startsWith("{"))).toEqual(['{"bye":{"code":1000,"reason":""}}']);
});

it("connects again, without the offer, if a server ignores subprotocols", async () => {
  await using bare = await bareServer({ handleProtocols: () => false });
  expect(await callFromPage(bare.url)).toBe(30);
  expect(bare.offers).toEqual(["reciproc.v1", ""]);
});

it("is plain, at the first attempt, with a server that agrees to any subprotocol", async () => {
  await using bare = await bareServer({});
  expect(await callFromPage(bare.url)).toBe(30);
  expect(bare.offers).toEqual(["reciproc.v1"]);
});

it("can read why a server refuses connections", async () => {
  await using server: Server = await serve({ port: 0, authenticate: () => null });
  const error = await page.evaluate(async (url) => {
    const reason = (await reciproc.connect(url).catch((caught: unknown) => caught)) as Error & { status?: number };
    return { message: reason.message, status: reason.status };
  }, server.url);
  expect(error).toMatchObject({ status: 401, message: expect.stringContaining("authentication failed") });
});
