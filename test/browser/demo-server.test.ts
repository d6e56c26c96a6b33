/** What a client of the demo's server that is not its page can do: no browser takes part. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { connect as connectTcp, type Socket } from "node:net";

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startDemo, type Demo } from "./demo.js";

const MIB = 2 ** 20;

describe("the demo's file server", () => {
  let demo: Demo;
  beforeAll(async () => {
    demo = await startDemo();
  });
  afterAll(() => demo[Symbol.asyncDispose]());

  it("keeps no file in memory for each pipelined request while the client reads nothing", async () => {
    const path = "/modules/@codemirror/view";
    const body = await bodyOf(demo, path);
    expect(body.length).toBeGreaterThan(400_000);
    const before = residentBytes(demo);
    const client = await sendRequests(demo, path, 600);
    // These requests come later, so the server has dispatched all of those above when it answers.
    for (let i = 0; i < 3; i++) await bodyOf(demo, path);
    expect(residentBytes(demo) - before).toBeLessThan(64 * MIB);
    client.destroy();
  });

  it("answers pipelined requests one after another, and refuses those after the 100th", async () => {
    const path = "/page/wire.js";
    const body = await bodyOf(demo, path);
    const client = await sendRequests(demo, path, 101, "Connection: close\r\n");
    const chunks: Buffer[] = [];
    for await (const chunk of client) chunks.push(chunk as Buffer);
    const responses = Buffer.concat(chunks)
      .toString()
      .split(/(?=HTTP\/1\.1 )/);
    expect(responses.pop()).toMatch(/^HTTP\/1\.1 503 /);
    expect(responses).toHaveLength(100);
    for (const response of responses) {
      expect(response).toMatch(/^HTTP\/1\.1 200 /);
      expect(response.endsWith(`\r\n\r\n${body.toString()}`)).toBe(true);
    }
  });

  it("serves every file that the page imports, with its type, to be checked again at each visit", async () => {
    const page = (await bodyOf(demo, "/")).toString();
    const map = JSON.parse(/<script type="importmap">(.*?)<\/script>/s.exec(page)![1]!) as {
      imports: Record<string, string>;
    };
    const scripts = Object.values(map.imports).filter((path) => !path.endsWith("/"));
    const types = new Map([
      ["/", "text/html; charset=utf-8"],
      ["/theme.css", "text/css; charset=utf-8"],
      ["/page/main.js", "text/javascript; charset=utf-8"],
      ["/modules/@codemirror/state", "text/javascript; charset=utf-8"],
      ...scripts.map((path) => [path, "text/javascript; charset=utf-8"] as const),
    ]);
    for (const [path, type] of types) {
      const { status, headers } = await fetch(`${demo.url}${path}?x`);
      expect([path, status, headers.get("content-type")]).toEqual([path, 200, type]);
      expect(headers.get("cache-control")).toBe("no-cache");
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.has("etag")).toBe(true);
    }
  });
});

async function bodyOf({ url }: Demo, path: string): Promise<Buffer> {
  const response = await fetch(`${url}${path}`);
  expect(response.status).toBe(200);
  return Buffer.from(await response.arrayBuffer());
}

/** A connection that has sent `count` pipelined requests, the last one with `header`, and reads nothing yet. */
async function sendRequests({ url }: Demo, path: string, count: number, header = ""): Promise<Socket> {
  const socket = connectTcp(Number(new URL(url).port), "127.0.0.1").pause();
  await once(socket, "connect");
  const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\n`;
  const requests = `${request}\r\n`.repeat(count - 1) + `${request}${header}\r\n`;
  await new Promise((resolve) => socket.write(requests, resolve));
  return socket;
}

/** The memory that the demo's process occupies. */
function residentBytes({ pid }: Demo): number {
  return 1024 * Number(execFileSync("ps", ["-o", "rss=", "-p", String(pid)]));
}
