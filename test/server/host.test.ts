/** The `Host` header of upgrades and POSTs: exactly one (RFC 9112, section 3.2). */
import { once } from "node:events";
import { createServer } from "node:http";
import { connect as connectTcp, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { serve } from "../../src/node.js";
import { listening, portOf, readAnswer, type Answer } from "../support/network.js";

const CALL = '{"jsonrpc":"2.0","id":1,"method":"run"}';

/** Headers that make a request complete, except `Host`. */
const REQUESTS: Record<string, { line: string; headers: string[]; body: string; taken?: number }> = {
  "an upgrade": {
    line: "GET /",
    headers: [
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Version: 13",
      "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ],
    body: "",
    taken: 101,
  },
  "a POST": {
    line: "POST /",
    headers: ["Connection: close", "Content-Type: application/json", `Content-Length: ${CALL.length}`],
    body: CALL,
    taken: 200,
  },
  "a GET": { line: "GET /", headers: ["Connection: close"], body: "" },
};

async function send(url: string, kind: string, hosts: string[], version = "1.1"): Promise<Answer> {
  const { line, headers, body } = REQUESTS[kind]!;
  const socket = connectTcp(portOf(url), "127.0.0.1");
  await once(socket, "connect");
  socket.write(`${[`${line} HTTP/${version}`, ...hosts, ...headers].join("\r\n")}\r\n\r\n${body}`);
  return readAnswer(socket);
}

it.each(["an upgrade", "a POST"])("accepts one Host header: %s", async (kind) => {
  await using server = await serve({ port: 0, methods: { run: () => 1 } });
  expect((await send(server.url, kind, ["Host: localhost"])).status).toBe(REQUESTS[kind]!.taken);
});

describe.each(Object.keys(REQUESTS))("%s", (kind) => {
  it.each([
    ["two different", ["Host: localhost", "Host: evil.example"]],
    ["two equal", ["Host: localhost", "hOST: localhost"]],
    ["an empty one besides", ["Host: localhost", "Host:"]],
  ])("is refused with 400 with more than one Host header: %s", async (_which, hosts) => {
    let runs = 0;
    // `hosts` and `origins` do not matter: a request with two names for its target is ambiguous under any of them.
    await using server = await serve({
      port: 0,
      hosts: ["localhost", "evil.example"],
      origins: "*",
      methods: { run: () => ++runs },
    });
    const refusals: number[] = [];
    server.on("refuse", ({ status }) => refusals.push(status));
    expect(await send(server.url, kind, hosts)).toMatchObject({
      status: 400,
      body: "the request has 2 `Host` headers, not one\n",
    });
    expect(refusals).toEqual([400]);
    expect(runs).toBe(0);
    expect(server.peers.size).toBe(0);
  });

  it("is refused with 400 without a Host header, also on an HTTP server that does not require one", async () => {
    await using http = await listening(createServer({ requireHostHeader: false }));
    await using server = await serve({ server: http.server, hosts: ["localhost"], methods: { run: () => 1 } });
    expect(await send(server.url, kind, [])).toMatchObject({
      status: 400,
      body: "the request has 0 `Host` headers, not one\n",
    });
  });
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
