import type { IncomingMessage } from "node:http";
import { PassThrough } from "node:stream";
import { describe, expect, it, vi } from "vitest";
import type { WebSocket } from "ws";
import { RpcError, type Peer } from "../../src/node.js";
import { virtualClock } from "../../src/testing/index.js";
import { freePort } from "../support/ports.js";
import { gate, raising, rejection } from "../support/turns.js";
import { nextPeer, servingOnPort } from "../server/by-hand.js";
import { begin, file, plainServer, run, type Ended, type Given } from "./program.js";

const INPUT = Buffer.from('\ufeff["é"]');

const methods = {
  echo: (params: unknown) => params ?? "none",
  ada: () => ({ name: "Ada", tags: ["x", null] }),
  fail: raising(new RpcError(403, "declined", { by: "you" })),
  draw: raising(new RpcError(1, "a\u001b[2J\u202e\nb")),
  ask: (_params: unknown, { peer }: { peer: Peer }) =>
    Promise.all(["confirm", "add"].map((method) => peer.request(method, [1, 2]))),
  confirm: (_params: unknown, { peer }: { peer: Peer }) => peer.request("confirm", ["ok?"]),
  told: (_params: unknown, { peer }: { peer: Peer }) => void peer.notify("told", [1]),
};

async function* endless(): AsyncGenerator<Buffer> {
  yield Buffer.from(" \n");
  await new Promise(() => {});
}

function errorIn({ stdout, stderr }: Ended): unknown {
  expect(stderr).toBe("");
  return (JSON.parse(stdout) as { error: unknown }).error;
}

/** Returns the rows that a terminal of 20 columns shows. */
function rowsIn(output: string): string[] {
  const rows = [""];
  let [x, y] = [0, 0];
  for (const [char, number, action] of output.replaceAll("\u001b", "^").matchAll(/\^\[(\d*)([A-Z])|[^]/g)) {
    if (action === "A") y -= Number(number);
    else if (action === "G" || char === "\r") x = Number(number ?? 1) - 1;
    else if (action === "J") rows.splice(y, Infinity, rows[y]!.slice(0, x));
    else {
      if (char === "\n" || x === 20) [x, y] = [0, y + 1];
      const row = (rows[y] ??= "");
      if (char !== "\n") rows[y] = row.slice(0, x) + char + row.slice(++x);
    }
  }
  return rows;
}

describe("reciproc call", () => {
  it.each<[argv: string[], expected: Partial<Ended>, given?: Given]>([
    [["ada"], { stdout: '{"name":"Ada","tags":["x",null]}\n' }],
    [["ada", "--json"], { stdout: '{"result":{"name":"Ada","tags":["x",null]}}\n' }],
    [["echo", ' {"a":[1,"é"]}'], { stdout: '{"a":[1,"é"]}\n' }],
    [["echo"], { stdout: '"none"\n' }],
    // The input begins with a byte order mark, and a character is split between its chunks.
    [["echo", "-"], { stdout: '["é"]\n' }, { stdin: [INPUT.subarray(0, 6), INPUT.subarray(6)] }],
    [["fail"], { code: 1, stderr: 'error 403: declined\n{"by":"you"}\n' }],
    [["missing"], { code: 1, stderr: "error -32601: Method not found\n" }],
    [["draw"], { code: 1, stderr: "error 1: a\\u001b[2J\\u202e b\n" }],
    [["fail", "--json"], { code: 1, stdout: '{"error":{"code":403,"message":"declined","data":{"by":"you"}}}\n' }],
  ])("prints the result or the error of %j", async (argv, expected, given) => {
    const { url } = await servingOnPort({ methods });
    expect(await run(["call", url, ...argv], given)).toEqual({ code: 0, stdout: "", stderr: "", ...expected });
  });

  it("exits 1 when the call times out", async () => {
    using clock = virtualClock();
    const begun = gate();
    const { url } = await servingOnPort({ methods: { hang: () => (begun.resolve(), new Promise(() => {})) } });
    const stderr = expect.stringMatching(/^.*"hang".*\b1500 ms\b.*\n$/) as string;
    const ended = run(["call", url, "hang", "--timeout", "1500"]);
    await begun.promise;
    await clock.pass(1_500);
    expect(await ended).toEqual({ code: 1, stdout: "", stderr });
  });

  it("does not crash when the result is nested too deeply to be printed, and offers no subprotocol with --plain", async () => {
    const deep = "[".repeat(50_000) + "]".repeat(50_000);
    const offers: unknown[] = [];
    const url = await plainServer((socket, { headers }) => {
      offers.push(headers["sec-websocket-protocol"]);
      socket.on("message", () => socket.send(`{"jsonrpc":"2.0","id":1,"result":${deep}}`));
    });
    const stderr = "the result is nested too deeply to be written\n";
    expect(await run(["call", "--plain", url, "m"])).toEqual({ code: 1, stdout: "", stderr });
    expect(errorIn(await run(["call", "--json", url, "m"]))).toMatchObject({ code: "TOO_DEEP" });
    expect(offers).toEqual([undefined, "reciproc.v1"]);
  });

  it("exits 1 when the answer breaks the protocol, and prints it", async () => {
    const answer = '{"jsonrpc":"2.0","id":1}';
    const url = await plainServer((socket) => socket.on("message", () => socket.send(answer)));
    const { code, stderr } = await run(["call", url, "any"]);
    expect(code).toBe(1);
    expect(stderr.startsWith(`${new URL(url).host} broke the protocol: `)).toBe(true);
    expect(stderr.split("\n")[1]).toBe(answer);
  });

  it("prints the HTTP status of a refusal, and exits 2", async () => {
    const closed = await servingOnPort({ authenticate: () => null });
    const { code, stderr } = await run(["call", closed.url, "any"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/: the server answered HTTP 401 Unauthorized \(credentials go into --header or --auth\)\n$/);
    const json = await run(["call", closed.url, "any", "--json"]);
    expect(json.code).toBe(2);
    expect(errorIn(json)).toMatchObject({ code: "CONNECT_FAILED", status: 401 });
    const foreign = await run(["call", closed.url, "ada", "--header", "Origin: http://evil.example"]);
    expect(foreign).toMatchObject({ code: 2, stderr: expect.stringContaining("HTTP 403 Forbidden\n") as string });
  });

  it("sends headers, several of one name in any case, an empty one, and one that is named __proto__", async () => {
    const requests: IncomingMessage[] = [];
    const url = await plainServer((socket, request) => {
      requests.push(request);
      socket.close();
    });
    const lines = ["Authorization: Bearer t", "X-Tag: a", "x-tag:b", "X-Empty:", "__proto__: p"];
    await run(["call", url, "any", ...lines.flatMap((line) => ["--header", line])]);
    const { rawHeaders, headers } = requests[0]!;
    expect(headers).toMatchObject({ authorization: "Bearer t", "x-tag": "a, b", "x-empty": "" });
    expect(rawHeaders.slice(rawHeaders.indexOf("__proto__"))[1]).toBe("p");
  });

  it.each<[string, (socket: WebSocket) => void, string]>([
    ["is lost", (socket) => socket.terminate(), "it ended without a close"],
    ["is closed", (socket) => socket.close(4001, "go away"), "closed with 4001 (go away)"],
  ])("prints reason and outcome when the connection %s, and exits 2, as `notify` does", async (_how, end, reason) => {
    const url = await plainServer((socket) => socket.on("message", () => end(socket)));
    const lost = `lost the connection to ${new URL(url).host}: ${reason};`;
    expect(await run(["call", url, "any"])).toEqual({ code: 2, stdout: "", stderr: `${lost} the call may have run\n` });
    const stderr = `${lost} "moved" may not have arrived\n`;
    expect(await run(["notify", url, "moved"])).toEqual({ code: 2, stdout: "", stderr });
    const json = await run(["call", url, "any", "--json"]);
    expect(json.code).toBe(2);
    expect(errorIn(json)).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
  });

  it("does not wait for a lost session, because a call is made on one connection", async () => {
    const begun = gate();
    const { url, cut } = await servingOnPort({ methods: { stuck: () => (begun.resolve(), new Promise(() => {})) } });
    const ended = run(["call", url, "stuck"]);
    await begun.promise;
    cut();
    expect(await ended).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("the call may have run\n") as string,
    });
  });
});

it("a command that connects sends `--auth`, JSON or what the function of a file returns, and answers the server's requests with `--answer`: JSON, or the function of a file", async () => {
  const given: unknown[] = [];
  const { url } = await servingOnPort({ authenticate: (_request, auth) => given.push(auth), methods });
  const add = await file("add.mjs", "export default ([a, b]) => a + b;");
  const answers = ['confirm={"ok":1}', "then=1", `add=@${add}`].map((answer) => `--answer=${answer}`);
  const argv = ["ask", "--auth", '{"token":"t"}', ...answers];
  expect(await run(["call", url, ...argv])).toEqual({ code: 0, stdout: '[{"ok":1},3]\n', stderr: "" });
  const auth = await file("auth.mjs", "export default async ({ number }) => ({ attempt: number });");
  expect((await run(["call", url, ...argv, `--auth=@${auth}`])).code).toBe(0);
  expect(given).toEqual([{ token: "t" }, { attempt: 1 }]);
  const wrong = await file("wrong.mjs", "export default 3;");
  const { code, stderr } = await run(["call", url, "ask", "--answer", `add=@${wrong}`]);
  expect([code, stderr]).toEqual([64, expect.stringContaining("is not a function; see") as string]);
});

it.each([
  [{ methods: [{ name: "subtract" }, { name: "Add" }, { name: 3 }] }, "ad", '; did you mean "Add"?'],
  [{ methods: [{ name: "subtract" }] }, "ad", ""],
  [{ methods: 3 }, "ad", ""],
])("a command that connects names the nearest method that the server lists: %j", async (listed, method, hint) => {
  const { url } = await servingOnPort({ methods: { "rpc.discover": () => listed } });
  const stderr = `error -32601: Method not found${hint}\n`;
  expect(await run(["call", url, method])).toEqual({ code: 1, stdout: "", stderr });
});

describe("reciproc connect", () => {
  it("calls, notifies and answers line by line, and ends when the input has ended and all is answered", async () => {
    const noted = gate();
    const note = (): void => noted.resolve();
    const { url } = await servingOnPort({ methods: { ...methods, note } });
    const stdin = async function* () {
      yield Buffer.from("echo [1]\n\n!note\necho [1\n!\n#7 1\ntold\n.help\nfail\n");
      await noted.promise;
      yield Buffer.from("confirm\n");
      await running.until("stdout", "#1 confirm");
      yield Buffer.from("#1 x\n#1 true\nconfirm\n");
      await running.until("stdout", "#2 confirm");
      yield Buffer.from("#2 ! no");
    };
    const running = begin(["connect", url], { stdin: stdin() });
    const { code, stdout, stderr } = await running.ended;
    expect(code).toBe(0);
    const printed = stdout.split("\n").filter((line) => !/ {3}|^\.help/.test(line));
    const told = '{"jsonrpc":"2.0","method":"told","params":[1]}';
    expect(new Set(printed)).toEqual(
      new Set(["", '#1 confirm ["ok?"]', '#2 confirm ["ok?"]', "[1]", "null", "true", told]),
    );
    for (const text of [
      "PARAMS is not JSON",
      "! needs a METHOD",
      "no question #7",
      "error 403: declined",
      "the answer to #1 is not JSON",
      "-32603",
    ])
      expect(stderr).toContain(text);
  });

  it("has a prompt and a history on a terminal, and shows what the server sends above a line that is wrapped", async () => {
    vi.stubEnv("TERM", "xterm");
    const { server, url } = await servingOnPort({ methods });
    const coming = nextPeer(server);
    const stdin = Object.assign(new PassThrough(), { isTTY: true });
    const { until } = begin(["connect", url, "--answer=add=3"], { stdin, isTTY: true, env: { NO_COLOR: "1" } });
    await until("stdout", "> ");
    stdin.write('echo ["0123456789"]\r');
    await until("stdout", '[\n  "0123456789"\n]');
    stdin.write("\u001b[A!");
    await until("stdout", "!");
    const peer = await coming;
    peer.notify("told", [1]);
    expect(await peer.request("add")).toBe(3);
    await expect(peer.request("rpc.discover")).rejects.toMatchObject({ code: -32601 });
    const sent = ['"method":"told","params":[1]', '"id":1,"method":"add"', '"id":2,"method":"rpc.discover"'];
    const lines = [
      '> echo ["0123456789"]',
      "[",
      '  "0123456789"',
      "]",
      ...sent.map((text) => `{"jsonrpc":"2.0",${text}}`),
    ];
    expect(rowsIn(await until("stdout", "rpc.discover"))).toEqual(
      [...lines, '> echo ["0123456789"]!'].flatMap((line) => line.match(/.{1,20}/g)),
    );
    vi.unstubAllEnvs();
  });

  it("exits 2 when the server closes for good, and 0 by `.exit`", async () => {
    const url = await plainServer((socket) => socket.close(4401, "token expired"));
    const lost = `lost the connection to ${new URL(url).host}: closed with 4401 (token expired)\n`;
    expect(await run(["connect", url], { stdin: endless() })).toEqual({ code: 2, stdout: "", stderr: lost });
    const { url: other } = await servingOnPort({ methods: { hang: () => new Promise(() => {}) } });
    const silent = { code: 0, stdout: "", stderr: "" };
    expect(await run(["connect", other], { stdin: [Buffer.from("hang\n.exit\nx\n")] })).toEqual(silent);
  });
});

it("reciproc notify exits after the server has read the notification", async () => {
  const seen: unknown[] = [];
  const { url } = await servingOnPort({
    fallback: (params: unknown, { method, id }: any) => void seen.push({ method, id: id as unknown, params }),
  });
  const silent = { code: 0, stdout: "", stderr: "" };
  expect(await run(["notify", url, "moved", '{"x":4}'])).toEqual(silent);
  expect(await run(["notify", url, "piped", "-", "--json"], { stdin: [Buffer.from("[1]")] })).toEqual(silent);
  expect(await run(["notify", url, "bare"])).toEqual(silent);
  expect(seen).toEqual([
    { method: "moved", id: undefined, params: { x: 4 } },
    { method: "piped", id: undefined, params: [1] },
    { method: "bare", id: undefined, params: undefined },
  ]);
});

describe("reciproc listen", () => {
  it("prints notifications and requests, one JSON-RPC object per line, and closes on a signal", async () => {
    const { server, url } = await servingOnPort();
    const coming = nextPeer(server);
    const { signal, until, ended } = begin(["listen", url]);
    const peer = await coming;
    peer.notify("toast", { text: "a\nb" });
    peer.notify("bare");
    await expect(peer.request("confirm", [1])).rejects.toMatchObject({ code: -32601 });
    await expect(peer.request("rpc.discover")).rejects.toMatchObject({ code: -32601 });
    await until("stdout", "rpc.discover");
    signal("SIGINT");
    expect(await ended).toEqual({
      code: 0,
      stdout:
        '{"jsonrpc":"2.0","method":"toast","params":{"text":"a\\nb"}}\n' +
        '{"jsonrpc":"2.0","method":"bare"}\n' +
        '{"jsonrpc":"2.0","id":1,"method":"confirm","params":[1]}\n' +
        '{"jsonrpc":"2.0","id":2,"method":"rpc.discover"}\n',
      stderr: "",
    });
    expect((await peer.closed).code).toBe(1000);
  });

  it("misses nothing that is sent at once, and prints no control character raw", async () => {
    const { server, url } = await servingOnPort();
    server.on("peer", (peer) => {
      peer.notify("a\u009b31mb", ["\u007f\u0085"]);
      void peer.close();
    });
    const stdout = '{"jsonrpc":"2.0","method":"a\\u009b31mb","params":["\\u007f\\u0085"]}\n';
    expect(await run(["listen", url, "--json"])).toEqual({ code: 0, stderr: "", stdout });
  });

  it("says on a terminal that it is connected", async () => {
    const url = await plainServer((socket) => socket.close(1000));
    const { stderr } = await run(["listen", url], { isTTY: { stdout: false, stderr: true } });
    expect(stderr).toBe(`connected to ${new URL(url).host}; Ctrl-C ends\n`);
  });

  it.each<[code: number, options: string[], close: [code?: number, reason?: string] | undefined, how: string]>([
    [0, [], [1000], ""],
    [0, ["--once"], [1001], ""],
    [0, ["--once"], [], ""],
    [2, ["--once"], undefined, "it ended without a close"],
    [2, [], [4401, "token expired"], "closed with 4401 (token expired)"],
  ])("exits %i with the options %j when the server closes with %j", async (code, options, close, how) => {
    const url = await plainServer((socket) => (close === undefined ? socket.terminate() : socket.close(...close)));
    const stderr = code === 0 ? "" : `lost the connection to ${new URL(url).host}: ${how}\n`;
    expect(await run(["listen", url, ...options])).toEqual({ code, stdout: "", stderr });
    if (code === 0) return;
    expect(errorIn(await run(["listen", url, "--json", ...options]))).toMatchObject({ code: "CONNECTION_LOST" });
  });

  it("reconnects when the server restarts, and prints that messages may be missing", async () => {
    const port = await freePort();
    const url = `127.0.0.1:${port}`;
    const first = await servingOnPort({ server: undefined, port });
    const peer = nextPeer(first.server);
    const { signal, until, ended } = begin(["listen", url]);
    (await peer).notify("one");
    await until("stdout", "one");
    await first.server.drain({ retryMs: 1 });
    const second = await servingOnPort({ server: undefined, port });
    (await nextPeer(second.server)).notify("two");
    await until("stdout", "two");
    signal("SIGTERM");
    expect(await ended).toEqual({
      code: 0,
      stdout: '{"jsonrpc":"2.0","method":"one"}\n{"jsonrpc":"2.0","method":"two"}\n',
      stderr: `lost the connection to ${url}; trying again\nconnected to ${url} again; what was sent meanwhile is missing\n`,
    });
  });

  it("resumes its session when only its socket was lost, and prints that nothing is missing", async () => {
    const { server, url, cut } = await servingOnPort();
    const coming = nextPeer(server);
    const { signal, until, ended } = begin(["listen", url]);
    const peer = await coming;
    // Answered when the client has its session.
    for (const method of ["x", "y"]) expect(await rejection(peer.request(method))).toMatchObject({ code: -32601 });
    const suspended = new Promise<void>((resolve) => peer.on("suspend", () => resolve()));
    cut();
    await suspended;
    peer.notify("two");
    await until("stderr", "nothing is missing");
    await until("stdout", "two");
    signal("SIGINT");
    const { stdout, stderr } = await ended;
    expect(stdout.split("\n").filter((line) => line.includes('"two"'))).toHaveLength(1);
    const { host } = new URL(url);
    expect(stderr).toBe(
      `lost the connection to ${host}; trying again\nconnected to ${host} again; nothing is missing\n`,
    );
  });
});
