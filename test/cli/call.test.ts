import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import { RpcError } from "../../src/node.js";
import { servingOnPort } from "../server/by-hand.js";
import { gate } from "../support/turns.js";
import { MAIN, run, start, type Ended } from "./program.js";
import { reciprocServer, plainServer } from "./server.js";

const methods = {
  echo: (params: unknown) => params ?? "none",
  ada: () => ({ name: "Ada", tags: ["x", null] }),
  fail() {
    throw new RpcError(403, "declined", { by: "you" });
  },
  draw() {
    throw new RpcError(1, "a\u001b[2J\u202e\nb");
  },
  hang: () => new Promise(() => {}),
  big: ([length]: [number]) => "x".repeat(length),
};

describe("reciproc call", () => {
  it.each<[what: string, argv: string[], expected: Partial<Ended>, input?: string]>([
    ["the result as one line of compact JSON when piped", ["ada"], { stdout: '{"name":"Ada","tags":["x",null]}\n' }],
    [
      "the result in an object with --json",
      ["ada", "--json"],
      { stdout: '{"result":{"name":"Ada","tags":["x",null]}}\n' },
    ],
    ["what it sent: params as typed", ["echo", '{"a":[1,"é"]}'], { stdout: '{"a":[1,"é"]}\n' }],
    ["what it sent: params of standard input", ["echo", "-"], { stdout: "[1,2]\n" }, "[1,\n 2]\n"],
    ["what it sent: no params if they are omitted", ["echo"], { stdout: '"none"\n' }],
    ["code, message and data of an error", ["fail"], { code: 1, stderr: 'error 403: declined\n{"by":"you"}\n' }],
    ["an error without data", ["missing"], { code: 1, stderr: "error -32601: Method not found\n" }],
    ["an error without terminal control characters", ["draw"], { code: 1, stderr: "error 1: a\\u001b[2J\\u202e b\n" }],
    [
      "an error on standard output with --json",
      ["fail", "--json"],
      { code: 1, stdout: '{"error":{"code":403,"message":"declined","data":{"by":"you"}}}\n' },
    ],
    [
      "that the call timed out",
      ["hang", "--timeout", "3000"],
      { code: 1, stderr: '"hang" was not answered within 3000 ms\n' },
    ],
    [
      "the code of a timeout with --json",
      ["hang", "--timeout", "3000", "--json"],
      { code: 1, stdout: expect.stringContaining('{"error":{"code":"TIMEOUT",') as string },
    ],
  ])("prints %s", async (_what, argv, expected, input) => {
    const { url } = await reciprocServer({ methods });
    expect(await run(["call", url, ...argv], input)).toEqual({ code: 0, stdout: "", stderr: "", ...expected });
  });

  it("does not crash when PARAMS or the result nest too deep to be encoded", async () => {
    const deep = "[".repeat(50_000) + "]".repeat(50_000);
    const url = await plainServer((socket) => {
      socket.on("message", (text: Buffer) => {
        const { id } = JSON.parse(text.toString()) as { id: number };
        socket.send(`{"jsonrpc":"2.0","id":${id},"result":${deep}}`);
      });
    });
    const tooDeep = "is nested too deeply to be written";
    expect(await run(["call", url, "m", "-"], deep)).toEqual({
      code: 64,
      stdout: "",
      stderr: `reciproc call: standard input ${tooDeep}; see \`reciproc call --help\`\n`,
    });
    expect(await run(["call", "--plain", url, "m"])).toEqual({
      code: 1,
      stdout: "",
      stderr: `the result ${tooDeep}\n`,
    });
    expect(await run(["call", "--plain", "--json", url, "m"])).toEqual({
      code: 1,
      stdout: `{"error":{"code":"TOO_DEEP","message":"the result ${tooDeep}"}}\n`,
      stderr: "",
    });
  });

  it("exits 1 when the answer breaks the protocol", async () => {
    const url = await plainServer((socket) => socket.on("message", () => socket.send('{"jsonrpc":"2.0","id":1}')));
    const { code, stderr } = await run(["call", url, "any"]);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /^127\.0\.0\.1:\d+ broke the protocol: .*no `result` or `error`\n\{"jsonrpc":"2\.0","id":1\}\n$/,
    );
  });

  it("prints that a host name is unknown, and exits 2", async () => {
    const { code, stderr } = await run(["call", "ws://no-such-host.invalid", "any"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(
      /^cannot connect to no-such-host\.invalid:80: (host not found|the name cannot be looked up now)\n$/,
    );
  });

  it("prints the HTTP status of a refusal, and exits 2", async () => {
    const closed = await reciprocServer({ authenticate: () => null });
    const { code, stderr } = await run(["call", closed.url, "any"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/: the server answered HTTP 401 Unauthorized \(credentials go into --header\)\n$/);
    const json = await run(["call", closed.url, "any", "--json"]);
    expect(json.code).toBe(2);
    expect(JSON.parse(json.stdout)).toMatchObject({ error: { code: "CONNECT_FAILED", status: 401 } });
    const { url } = await reciprocServer({ methods });
    const foreign = await run(["call", url, "ada", "--header", "Origin: http://evil.example"]);
    expect(foreign).toMatchObject({ code: 2, stderr: expect.stringContaining("HTTP 403 Forbidden\n") as string });
  });

  it("sends headers, and several of one name", async () => {
    const { url } = await reciprocServer({
      authenticate: ({ headers }) => headers,
      methods: { headers: (_: unknown, { peer }: any) => [peer.auth["authorization"], peer.auth["x-tag"]] },
    });
    const argv = ["--header", "Authorization: Bearer t", "--header", "X-Tag: a", "--header", "x-tag: b"];
    expect((await run(["call", url, "headers", ...argv])).stdout).toBe('["Bearer t","a, b"]\n');
  });

  it.each<[string, (socket: WebSocket) => void, string]>([
    ["is lost", (socket) => socket.terminate(), "it ended without a close"],
    ["is closed", (socket) => socket.close(4001, "go away"), "closed with 4001 (go away)"],
  ])("prints reason and outcome when the connection %s during the call, and exits 2", async (_how, end, reason) => {
    const url = await plainServer((socket) => socket.on("message", () => end(socket)));
    expect(await run(["call", url, "any"])).toEqual({
      code: 2,
      stdout: "",
      stderr: `lost the connection to ${new URL(url).host}: ${reason}; the call may have run\n`,
    });
    const json = await run(["call", url, "any", "--json"]);
    expect(json.code).toBe(2);
    expect(JSON.parse(json.stdout)).toMatchObject({ error: { code: "CONNECTION_LOST", outcome: "unknown" } });
  });

  it("does not wait for a lost session, because a call is made on one connection", async () => {
    const begun = gate();
    const { url, cut } = await servingOnPort({ methods: { stuck: () => (begun.resolve(), new Promise(() => {})) } });
    const { ended } = start(["call", url, "stuck"]);
    await begun.promise;
    cut();
    const { code, stderr } = await ended;
    expect(code).toBe(2);
    expect(stderr).toMatch(/^lost the connection to .*; the call may have run\n$/);
  });

  it("reports the position of a fault in params that are not JSON, sends nothing and exits 64", async () => {
    const server = await reciprocServer({ methods });
    let connected = 0;
    server.on("peer", () => connected++);
    expect(await run(["call", server.url, "echo", '{"a": 1,}'])).toEqual({
      code: 64,
      stdout: "",
      stderr:
        'reciproc call: PARAMS is not JSON: expected a name in double quotes after the comma, got "}" (line 1, column 9)\n' +
        '{"a": 1,}\n' +
        "        ^\n",
    });
    const piped = await run(["call", server.url, "echo", "-"], "[1,\n2 3]");
    expect(piped).toMatchObject({
      code: 64,
      stderr: expect.stringMatching(
        /^reciproc call: standard input .*\(line 2, column 3\)\n2 3\]\n {2}\^\n$/,
      ) as string,
    });
    expect(await run(["call", server.url, "echo", "3"])).toMatchObject({ code: 64 });
    expect(connected).toBe(0);
  });

  it("prints a large result whole", async () => {
    const { url } = await reciprocServer({ methods, limits: { maxReplyBytes: 2 ** 23 } });
    const { code, stdout } = await run(["call", url, "big", "[5000000]"]);
    expect(code).toBe(0);
    expect(stdout.length).toBe(5_000_003);
  });

  it("does not crash when its reader closes the pipe", async () => {
    const { url } = await reciprocServer({ methods, limits: { maxReplyBytes: 2 ** 23 } });
    const { child, ended } = start(["call", url, "big", "[5000000]"]);
    child.stdout.once("data", () => child.stdout.destroy());
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
  });

  it("prints that its output cannot be written, and exits 1", async () => {
    const { url } = await reciprocServer({ methods });
    // A file that is open for reading only accepts no output.
    const readOnly = openSync(MAIN, "r");
    onTestFinished(() => closeSync(readOnly));
    const child = spawn(process.execPath, [MAIN, "call", url, "ada"], { stdio: ["ignore", readOnly, "pipe"] });
    let stderr = "";
    child.stderr!.on("data", (bytes: Buffer) => (stderr += bytes.toString()));
    const code = await new Promise((resolve) => child.on("close", resolve));
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: expect.stringMatching(/^cannot write to standard output: EBADF[^\n]*\n$/) as string,
    });
  });

  it("does not wait long for a server that never answers the close", async () => {
    const http = createServer();
    const upgrader = new WebSocketServer({ noServer: true });
    const raw = new Promise<Socket>((resolve) =>
      http.on("upgrade", (request, socket, head) =>
        upgrader.handleUpgrade(request, socket, head, (webSocket) =>
          webSocket.on("message", () => {
            webSocket.send('{"jsonrpc":"2.0","id":1,"result":"done"}');
            socket.pause();
            resolve(socket as Socket);
          }),
        ),
      ),
    );
    await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => void http.close());
    const begin = performance.now();
    const ended = await run(["call", `ws://127.0.0.1:${(http.address() as AddressInfo).port}`, "any"]);
    (await raw).destroy();
    expect(ended).toEqual({ code: 0, stdout: '"done"\n', stderr: "" });
    // The library alone would wait 5 seconds for the answer.
    expect(performance.now() - begin).toBeLessThan(4_500);
  });
});
