/** Runs the unchanged servers of docs/guides/frameworks.md: the same calls and refusals with each framework. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { WebSocket } from "ws";
import { connect } from "../support/connect.js";
import { clean, compile, extract, folder, linkPackages, Running } from "../readme/examples.js";
import { freePort } from "../support/ports.js";
import { call, post, read } from "../support/post.js";
import { failure, result } from "../support/raw.js";

const VITE = join(import.meta.dirname, "../../node_modules/vite/bin/vite.js");

beforeAll(async () => {
  await linkPackages(import.meta.dirname);
  await extract("docs/guides/frameworks.md");
});
afterAll(clean);

async function upgrade(url: string): Promise<number> {
  const socket = new WebSocket(url, "vite-hmr").on("error", () => {});
  const answer = await Promise.race([once(socket, "upgrade"), once(socket, "unexpected-response")]);
  socket.terminate();
  return (answer.at(-1) as IncomingMessage).statusCode!;
}

// Nest ends by the signal. Vite takes the upgrades of its own path, and cuts all sockets when it ends.
it.each([
  { program: "express-server.js", exit: 0, other: 404, close: 1001 },
  { program: "fastify-server.js", exit: 0, other: 404, close: 1001 },
  { program: "hono-server.js", exit: 0, other: 404, close: 1001 },
  { program: "h3-server.js", exit: 0, other: 404, close: 1001 },
  { program: "nest-server.js", exit: null, other: 404, close: 1001 },
  { program: "vite", exit: 143, other: 101, close: 1006 },
])("$program serves calls beside its routes, and ends with an open client", async ({ program, exit, other, close }) => {
  if (program.startsWith("nest")) {
    const flags = ["--experimentalDecorators", "--emitDecoratorMetadata", "--skipLibCheck"];
    expect(await compile("nest-server.ts", ...flags)).toBe("");
  }
  const server = new Running(program === "vite" ? VITE : program, [], { PORT: String(await freePort()) }, folder);
  const [url] = /ws:\S+/.exec(await server.line(/ws:/))!;
  const peer = await connect(url!, { reconnect: false });
  expect(await peer.request("add", [1, 2])).toBe(3);
  expect(await call({ url: url! }, "add", [1, 2])).toEqual([200, result(1, 3)]);
  // The server reads the body itself, so the rules of reciproc hold, and not those of a parser of the framework.
  expect(await read(await post(url!, "{"))).toEqual([200, failure(null, -32700, "Parse error")]);
  expect(await read(await post(url!, " ".repeat(2 ** 20 + 1)))).toMatchObject([413, { error: { code: -32007 } }]);
  const [route, text] = program === "vite" ? ["page.js", "open("] : ["health", "ok"];
  expect(await (await fetch(url!.replace("ws", "http").replace("rpc", route))).text()).toContain(text);
  expect(await upgrade(url!.replace("rpc", ""))).toBe(other);
  expect(await server.stop()).toBe(exit);
  expect(await peer.closed).toMatchObject({ code: close });
});
