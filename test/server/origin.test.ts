/** The headers `Host` and `Origin` of upgrades and POSTs. A request has exactly one `Host` (RFC 9112, section 3.2). */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { connect as connectTcp, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { serve, type Refusal } from "../../src/node.js";
import { listening, portOf, readAnswer, upgrade, type Answer } from "../support/network.js";
import { postText, write } from "../support/post.js";
import { request } from "../support/raw.js";
import { testServer } from "../../src/testing/index.js";

interface Rules {
  /** The server's own address of each connection. The default is that of the test: `127.0.0.1`. */
  at?: string;
  hosts?: string[];
  origins?: string[] | "*";
}

const LOCAL: Rules = {};
const PUBLIC: Rules = { at: "203.0.113.5" };
const DEV: Rules = { hosts: ["dev.example"] };
const DEV_PORT: Rules = { hosts: ["dev.example:9"] };
const HTTP_PORT: Rules = { hosts: ["app.example:80"] };
const ORG: Rules = { ...PUBLIC, hosts: ["example.org"] };
const APP: Rules = { origins: ["https://app.example"] };
const ANY: Rules = { origins: "*" };

/** One case: the headers, in which `PORT` is the server's port, and whether the request is allowed. */
type Case = [what: string, rules: Rules, headers: Record<string, string>, status: 101 | 403];

function from(Origin: string, Host: string): Record<string, string> {
  return { Origin, Host };
}

async function ask(
  { at, ...rules }: Rules,
  given: Record<string, string>,
): Promise<{ status: number; refusal?: Refusal }> {
  await using http = await listening(createServer());
  http.server.on("connection", (socket: Socket) => {
    if (at !== undefined) Object.defineProperty(socket, "localAddress", { value: at });
  });
  await using server = await serve({ server: http.server, ...rules });
  const port = String(portOf(server.url));
  const headers = Object.entries(given).map(([name, value]) => [name, value.replaceAll("PORT", port)]);
  let refusal: Refusal | undefined;
  server.on("refuse", (emitted) => (refusal = emitted));
  const { status } = await upgrade(server.url, Object.fromEntries(headers));
  return { status, ...(refusal && { refusal }) };
}

function check(cases: Case[]): void {
  it.each(cases)("%s", async (_what, rules, headers, status) => {
    const answer = await ask(rules, headers);
    expect(answer.status).toBe(status);
    expect(answer.refusal === undefined).toBe(status === 101);
  });
}

describe("Host, on a connection to a loopback address,", () => {
  check([
    ["can be localhost, with any port", LOCAL, { Host: "localhost:1" }, 101],
    ["can be written in capitals", LOCAL, { Host: "LocalHost:PORT" }, 101],
    ["can be 127.0.0.1", LOCAL, { Host: "127.0.0.1:PORT" }, 101],
    ["can be [::1]", LOCAL, { Host: "[::1]:PORT" }, 101],
    ["cannot be another name: that is DNS rebinding", LOCAL, { Host: "evil.example:PORT" }, 403],
    ["can be a name below localhost, which no DNS has", LOCAL, { Host: "tenant.LOCALHOST:PORT" }, 101],
    ["can be localhost with a trailing dot", LOCAL, { Host: "LOCALHOST.:PORT" }, 101],
    ["can be another address of the loopback range", LOCAL, { Host: "127.255.0.2:PORT" }, 101],
    ["can be a loopback address of IPv4 in IPv6", LOCAL, { Host: "[::ffff:127.0.0.1]:PORT" }, 101],
    ["cannot end with localhost without a dot before it", LOCAL, { Host: "evillocalhost" }, 403],
    ["cannot be a name that begins like a loopback address", LOCAL, { Host: "127.0.0.1.evil.example" }, 403],
    ["cannot be an address of IPv4 in IPv6 that is not loopback", LOCAL, { Host: "[::ffff:10.0.0.1]" }, 403],
    ["cannot be empty", LOCAL, { Host: "" }, 403],
    ["cannot hide another name behind user info", LOCAL, { Host: "localhost@evil.example" }, 403],
    ["cannot hide another name in front of a path", LOCAL, { Host: "evil.example/localhost" }, 403],
    ["cannot be two names", LOCAL, { Host: "localhost evil.example" }, 403],
    ["can be a listed name, with any port", DEV, { Host: "dev.example:9" }, 101],
    ["cannot be a listed name on a port other than the listed one", DEV_PORT, { Host: "dev.example:8" }, 403],
    ["can be listed with a default port, as browsers leave it out", HTTP_PORT, { Host: "app.example" }, 101],
    ["can be a name listed with the port of https", { hosts: ["app.example:443"] }, { Host: "App.example" }, 101],
    ["is refused even if origins is *", ANY, { Host: "evil.example" }, 403],
  ]);
});

describe("Host, on a connection to any other address,", () => {
  check([
    ["can be any name if none is listed", PUBLIC, { Host: "whatever.example" }, 101],
    ["can be a listed one", ORG, { Host: "example.org:PORT" }, 101],
    ["cannot be an unlisted name", ORG, { Host: "evil.example" }, 403],
    ["cannot be localhost unless it is listed", ORG, { Host: "localhost" }, 403],
  ]);
});

describe("the address of a connection", () => {
  check(
    ["127.0.0.1", "127.9.8.7", "::ffff:127.0.0.1", "::1"].map((at) => [
      `decides, and ${at} is loopback`,
      { at },
      { Host: "evil.example" },
      403,
    ]),
  );
  check(
    ["10.0.0.127", "128.0.0.1", "::ffff:10.0.0.1", "::", "fe80::1"].map((at) => [
      `decides, and ${at} is not loopback`,
      { at },
      { Host: "app.example" },
      101,
    ]),
  );

  it("is loopback for a client of this machine, on a server that listens on every address", async () => {
    const http = createServer();
    await once(http.listen(0), "listening");
    await using server = await serve({ server: http });
    expect((await upgrade(server.url, { Host: "evil.example" })).status).toBe(403);
    expect((await upgrade(server.url, { Host: "tenant.localhost:3000" })).status).toBe(101);
    http.close();
  });

  it("does not exist on a Unix socket, which no page can reach: any name is accepted if none is listed", async () => {
    const folder = await mkdtemp(join(tmpdir(), "reciproc-origin-"));
    const path = join(folder, "socket");
    const http = createServer();
    await once(http.listen(path), "listening");
    await using server = await serve({ server: http, methods: { run: () => 1 } });
    expect(server.url).toBe("");
    const socket = connectTcp(path);
    socket.write(postText("ws://app.example", JSON.stringify(request(1, "run")), { Connection: "close" }));
    expect((await readAnswer(socket)).status).toBe(200);
    http.close();
    await rm(folder, { recursive: true });
  });
});

describe("Origin", () => {
  check([
    ["can be missing: browsers always send one", LOCAL, {}, 101],
    ["can be the server's own", LOCAL, { Origin: "http://127.0.0.1:PORT" }, 101],
    ["can be loopback on any port, for a loopback host", LOCAL, { Origin: "http://localhost:5173" }, 101],
    ["can be a name below localhost, for a loopback host", LOCAL, { Origin: "http://tenant.localhost:5173" }, 101],
    ["can be [::1] for 127.0.0.1", LOCAL, from("http://[::1]:5173", "127.0.0.1:PORT"), 101],
    ["cannot be another site", LOCAL, { Origin: "https://evil.example" }, 403],
    ["cannot look like loopback", LOCAL, { Origin: "http://localhost.evil.example" }, 403],
    ["cannot look like loopback by user info", LOCAL, { Origin: "http://localhost@evil.example" }, 403],
    ["cannot be null: a sandboxed frame or a file", LOCAL, { Origin: "null" }, 403],
    ["can be null if it is listed", { origins: ["null"] }, { Origin: "null" }, 101],
    ["cannot be empty", LOCAL, { Origin: "" }, 403],
    ["cannot be loopback for a host that is not loopback", PUBLIC, from("http://localhost:5173", "example.org"), 403],
    ["can be the host's, https by default port", PUBLIC, from("https://example.org", "example.org"), 101],
    ["can be the host's, https with an explicit port", PUBLIC, from("https://example.org", "example.org:443"), 101],
    ["can be the host's, on the host's port", PUBLIC, from("https://example.org:8443", "example.org:8443"), 101],
    ["cannot be another port of a public host", PUBLIC, from("https://example.org:8443", "example.org"), 403],
    ["cannot be a subdomain", PUBLIC, from("https://sub.example.org", "example.org"), 403],
    ["can be a listed one", APP, { Origin: "https://app.example" }, 101],
    ["cannot be the listed one over http", APP, { Origin: "http://app.example" }, 403],
    ["cannot be the listed one on another port", APP, { Origin: "https://app.example:444" }, 403],
    ["can be anything under *", ANY, { Origin: "https://evil.example" }, 101],
    ["can be an app's own scheme if it is listed", { origins: ["app://main"] }, { Origin: "app://main" }, 101],
  ]);
});

it.each([
  ["Host", "evil.example", "hosts"],
  ["Origin", "https://evil.example", "origins"],
])("a refusal names a refused %s, and the option that allows it", async (header, value, option) => {
  const { refusal } = await ask(LOCAL, { [header]: value });
  expect(refusal).toEqual({ status: 403, reason: expect.stringMatching(`^${header} "${value}".*\`${option}\``) });
});

it("a refusal echoes nothing of the request as HTML", async () => {
  await using server = await serve({ port: 0 });
  const answer = await upgrade(server.url, { Host: "<script>" });
  expect(answer.status).toBe(403);
  expect(answer.headers["content-type"]).toBe("text/plain; charset=utf-8");
  expect(Number(answer.headers["content-length"])).toBe(Buffer.byteLength(answer.body));
});

const CALL = '{"jsonrpc":"2.0","id":1,"method":"run"}';
const UPGRADE =
  "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==";

/** The method of each kind of request, its headers except `Host`, and its body. */
const REQUESTS: Record<string, [method: string, headers: string, body: string]> = {
  "an upgrade": ["GET", UPGRADE, ""],
  "a POST": ["POST", `Connection: close\r\nContent-Type: application/json\r\nContent-Length: ${CALL.length}`, CALL],
  "a GET": ["GET", "Connection: close", ""],
};

async function send(url: string, kind: string, hosts: string[], version = "1.1"): Promise<Answer> {
  const [method, headers, body] = REQUESTS[kind]!;
  const head = [`${method} / HTTP/${version}`, ...hosts, headers].join("\r\n");
  return readAnswer(await write(url, `${head}\r\n\r\n${body}`));
}

it.each(Object.keys(REQUESTS))("refuses %s with 400 unless it has one Host header", async (kind) => {
  let runs = 0;
  await using http = await listening(createServer({ requireHostHeader: false }));
  // `hosts` and `origins` do not matter: a request with two names for its target is ambiguous under any of them.
  const options = { hosts: ["localhost", "evil.example"], origins: "*" as const, methods: { run: () => ++runs } };
  await using server = await serve({ server: http.server, ...options });
  const one = "Host: localhost";
  for (const hosts of [[], [one, "Host: evil.example"], [one, "hOST: localhost"], [one, "Host:"]])
    expect((await send(server.url, kind, hosts)).status).toBe(400);
  expect([server.stats().refused, runs, server.peers.size]).toEqual([{ 400: 4 }, 0, 0]);
  expect((await send(server.url, kind, [one])).status).not.toBe(400);
});

it("accepts a request of HTTP/1.0 without a Host header from another machine, if every name is allowed", async () => {
  await using http = await listening(createServer());
  http.server.on("connection", (socket: Socket) => {
    Object.defineProperty(socket, "localAddress", { value: "203.0.113.5" });
  });
  await using server = await serve({ server: http.server, methods: { run: () => 1 } });
  // The status line of Node's answer names 1.1 all the same.
  expect((await send(server.url, "a POST", [], "1.0")).status).toBe(200);
});

it.each([
  ["http://bank.example", "wss://bank.example", [], 403],
  ["https://bank.example", "wss://bank.example", [], 101],
  ["http://bank.example", "ws://bank.example", [], 101],
  ["http://bank.example", "wss://bank.example", ["http://bank.example"], 101],
  ["http://localhost:5173", "wss://localhost:3000", [], 101],
])("refuses a page without TLS at the TLS server of its name, unless it is listed: %s to %s, %j", async (...row) => {
  const [Origin, url, origins, status] = row;
  await using kit = testServer({ origins });
  const answer: any = await kit.connect(url, { link: "plain", headers: { Origin } }).catch((error: unknown) => error);
  expect(answer.status ?? 101).toBe(status);
});
