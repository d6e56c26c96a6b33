/** Runs the unchanged examples of docs/guides/frameworks.md: the same calls and refusals with each framework. */
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { createRoot } from "solid-js";
import { afterAll, beforeAll, expect, it } from "vitest";
import { effectScope } from "vue";
import { WebSocket } from "ws";
import { follow } from "../../src/index.js";
import { connect } from "../support/connect.js";
import { testServer } from "../../src/testing/index.js";
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

const load = (name: string): Promise<any> => import(pathToFileURL(join(folder, name)).href);

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

it("the functions for Vue, Svelte and Solid show each state of a followed topic until they are disposed of", async () => {
  const memory = testServer({
    topics: () => ({ log: {} }),
    methods: { open: (_, { peer, server }) => server.topic("t").join(peer, { load: () => "tea" }) },
  });
  const topic = follow(
    await memory.connect(memory.server.url),
    "open",
    {},
    { reduce: { changed: (_, { text }) => text } },
  );
  const [vue, svelte, solid] = await Promise.all(["vue", "svelte", "solid"].map((name) => load(`${name}-topic.js`)));
  const scope = effectScope();
  const ref = scope.run(() => vue.useTopic(topic));
  const [signal, dispose] = createRoot((end) => [solid.signalOf(topic), end]);
  const store = svelte.storeOf(topic);
  const states: string[] = [];
  await memory.network.settle();
  const unsubscribe = store.subscribe(({ value }: { value: string }) => void states.push(value));
  for (const text of ["milk", "eggs", "rice"]) {
    await memory.server.topic("t").publish("changed", { text });
    await memory.network.settle();
    expect([ref.value.value, signal().value, states.at(-1)]).toEqual(Array(3).fill(text === "rice" ? "eggs" : text));
    if (text !== "eggs") continue;
    scope.stop();
    dispose();
    unsubscribe();
  }
  expect(states).toEqual(["tea", "milk", "eggs"]);
  await memory.server.close();
});
