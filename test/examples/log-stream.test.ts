/** Runs examples/log-stream: a server, and clients that print the lines of a file. */
import { appendFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { Relay } from "../support/relay.js";
import { Running } from "../readme/examples.js";
import { EXAMPLES, ExampleServer } from "./server.js";

let folder: string;
let log: string;
let server: ExampleServer;
let relay: Relay;
const clients: Running[] = [];

function follow(...args: string[]): Running {
  const client = new Running(join(EXAMPLES, "log-stream/client.js"), [...args, relay.url]);
  clients.push(client);
  return client;
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "reciproc-log-"));
  log = join(folder, "app.log");
  server = new ExampleServer("log-stream/server.js", [log]);
  await server.start();
  relay = await Relay.to(server.url);
});
afterAll(async () => {
  await Promise.all(clients.map((client) => client.stop("SIGKILL")));
  await relay.close();
  await server.stop();
  await rm(folder, { recursive: true });
});

it("the example log-stream prints the lines that are appended, also in parts, or only those with a text", async () => {
  await writeFile(log, "one\n");
  const client = follow("--from-start");
  await client.line(/^one$/);
  await appendFile(log, "two\nthr");
  await client.line(/^two$/);
  await appendFile(log, "ée\n");
  await client.line(/^thrée$/);
  expect(client.lines).toEqual(["one", "two", "thrée"]);
  expect(await client.stop("SIGINT")).toBe(0);
  const searching = follow("--from-start", "--text", "e");
  await searching.line(/^thrée$/);
  expect(searching.lines).toEqual(["one", "thrée"]);
});

it("the example log-stream prints each line once, over a cut, a restart, and a file that is replaced", async () => {
  await writeFile(log, "");
  const client = follow();
  // Lines are printed once the client follows, which it does not report.
  await expect.poll(async () => (await appendFile(log, "begin\n"), client.lines.length)).toBeGreaterThan(0);
  await appendFile(log, Array.from({ length: 2_000 }, (_, i) => `first ${i}\n`).join(""));
  await client.line(/^first 100$/);
  relay.cut();
  await client.line(/^first 1999$/);
  expect(await server.stop()).toBe(0);
  await appendFile(log, "meanwhile\n");
  await server.start();
  await client.line(/^meanwhile$/);
  const lines = client.lines.filter((line) => line !== "begin");
  expect(lines).toEqual([...Array.from({ length: 2_000 }, (_, i) => `first ${i}`), "meanwhile"]);
  expect(client.errors).toContain("(connected again)");
  await writeFile(log, "new file\n");
  await client.line(/^new file$/);
  expect(server.errors).toBe("");
});
