import { once } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { pass, passUntil, useVirtualClock } from "../support/time.js";
import { turn } from "../support/turns.js";
import { uncaughtIn } from "../support/uncaught.js";
import { bridge, bridged, type BridgeEnd, type Bridged, greeted, runs } from "./bridged.js";

useVirtualClock();

const MIB = 2 ** 20;
const GRACE_MS = 2_000;

/** Sends to a command that does not read, until the bridge no longer reads the client. */
async function fill({ webSocket, server }: Bridged): Promise<void> {
  for (let i = 0; i < 40; i++) webSocket.send(`"${"x".repeat(100_000)}"`);
  await expect.poll(() => server.isPaused).toBe(true);
}

describe("a bridge", () => {
  it.each(["lsp", "lines"])("carries texts unchanged, and UTF-8 of a binary frame as text: %s", async (framing) => {
    const pair = await bridged(["echo", framing]);
    const texts = [
      '{"jsonrpc":"2.0","id":12345678901234567890,"method":"m","params":{"a":1.0,"a":2}}',
      "  [1 , 2]\t",
      '"ü€𝄞 \u2028"',
      "{nonsense",
      `"${"y".repeat(300_000)}"`,
    ];
    const kinds = new Set<boolean>();
    pair.webSocket.on("message", (_data, isBinary: boolean) => kinds.add(isBinary));
    for (const frame of [...texts, Buffer.from('"é"')]) pair.webSocket.send(frame);
    await expect.poll(() => pair.received).toEqual([...texts, '"é"']);
    expect(kinds).toEqual(new Set([false]));
  });

  it.each([
    ["1007 on a binary frame that is not UTF-8", Buffer.of(0xff), 1007, "a binary frame must be UTF-8"],
    ["1009 on a message that is too long", "1".repeat(101), 1009, "a message has at most 100 bytes, got 101"],
  ])("closes with %s, and passes nothing on after that", async (_what, frame, code, reason) => {
    const pair = await greeted(["tidy"], { maxMessageBytes: 100 });
    for (const sent of ["1".repeat(100), frame, "late"]) pair.webSocket.send(sent);
    expect(await pair.closed).toEqual({ code, reason });
    expect(await pair.over).toMatchObject({ endedBy: "socket", isFailure: true, exitCode: 0 });
    expect(pair.stderr()).toBe("got 1\n");
  });

  it("stops reading the command while the client is slow, so that unsent data is bounded and none is lost", async () => {
    const COUNT = 250;
    const SIZE = 100_000;
    const pair = await bridged(["flood", String(COUNT), String(SIZE)]);
    let most = 0;
    const send = vi.spyOn(pair.server, "send");
    send.mockImplementation(function (this: WebSocket, ...args: unknown[]) {
      (WebSocket.prototype.send as (...all: unknown[]) => void).apply(this, args);
      most = Math.max(most, this.bufferedAmount);
    });
    pair.webSocket.pause();
    await expect.poll(() => pair.child.stdout!.isPaused()).toBe(true);
    expect(most).toBeGreaterThan(MIB);
    // One message above the high-water mark, which is checked after each chunk.
    expect(most).toBeLessThan(MIB + 2 * SIZE);
    expect(send.mock.calls.length).toBeLessThan(200);
    pair.webSocket.resume();
    expect((await pair.closed).code).toBe(1000);
    expect(most).toBeLessThan(MIB + 2 * SIZE);
    expect(pair.received.map((text) => (JSON.parse(text) as { i: number }).i)).toEqual([...Array(COUNT).keys()]);
    expect(pair.received.every((text) => text.length > SIZE)).toBe(true);
  });

  it("stops reading the client while the command does not read, and loses nothing", async () => {
    const COUNT = 50;
    const text = `"${"x".repeat(100_000)}"`;
    const { pid, ...pair } = await greeted(["unreading"]);
    let read = 0;
    pair.server.on("message", (data: Buffer) => (read += data.length));
    for (let i = 0; i < COUNT; i++) pair.webSocket.send(text);
    pair.webSocket.send('"end"');
    await expect.poll(() => pair.server.isPaused).toBe(true);
    expect(read).toBeLessThan(2 * MIB);
    process.kill(pid, "SIGUSR2");
    await expect.poll(() => pair.received).toEqual([JSON.stringify({ bytes: COUNT * text.length + 5 })]);
  });
});

describe("the end of the command", () => {
  const incomplete = Buffer.from("Content-Length: 9\r\n\r\n{}").toString("hex");
  const unended = Buffer.from("1\n2").toString("hex");
  const all = Array.from({ length: 1000 }, (_, i) => String(i));

  it.each<[string, string[], code: number, why: string, received: string[], end: Partial<BridgeEnd>]>([
    ["1000 if its code is 0", ["exit", "0", "1"], 1000, "exited with code 0", ["0"], { exitCode: 0, signal: null }],
    ["1011 after all its output", ["exit", "3", "1000"], 1011, "exited with code 3", all, { exitCode: 3 }],
    ["1011 if it is killed", ["signal", "SIGABRT"], 1011, "was killed by SIGABRT", ["1"], { signal: "SIGABRT" }],
    ["1011 in a message", ["rawExit", incomplete, "lsp"], 1011, "exited with code 0, in the middle of .*", [], {}],
    ["1000 after a line without an end", ["rawExit", unended], 1000, "exited with code 0", ["1", "2"], { exitCode: 0 }],
    ["1011 after a long message", ["flood", "100", "2000"], 1011, "broke .*: Expected `line` to be .*1000.*", [], {}],
  ])("closes with %s", async (_when, command, code, why, received, end) => {
    const pair = await bridged(command, { maxMessageBytes: 1000 });
    const reason = expect.stringMatching(`^the command ${why}$`) as string;
    expect(await pair.closed).toEqual({ code, reason });
    expect(pair.received).toEqual(received);
    const close = { code, reason, error: undefined };
    expect(await pair.over).toMatchObject({ endedBy: "command", reason, isFailure: code !== 1000, close, ...end });
  });

  it.each([
    ["does not exist", { command: "/no/such/command" }, "ENOENT"],
    ["has a NUL in its arguments", { args: ["\0"] }, "ERR_INVALID_ARG_VALUE"],
  ])("closes with the cause when the command %s", async (_name, options, code) => {
    const pair = await bridged([], options);
    const reason = `the command could not be started: ${code}`;
    expect(await pair.closed).toEqual({ code: 1011, reason });
    expect(await pair.over).toMatchObject({ endedBy: "command", reason, exitCode: null, signal: null });
  });

  it("delivers all its output before the close, for any time", async () => {
    const { pid, ...pair } = await greeted(["pid"]);
    const closing = vi.spyOn(pair.server, "close");
    // As when the client's window is full.
    pair.raw.cork();
    for (let i = 0; i < 5; i++) pair.webSocket.send(`"${"x".repeat(100_000)}"`);
    await expect.poll(() => pair.server.bufferedAmount).toBeGreaterThan(500_000);
    const ended = once(pair.child, "close");
    process.kill(pid, "SIGKILL");
    await ended;
    // The bridge has noticed that. If it closed now, `ws` would cut the connection after 1 s.
    await turn();
    expect(closing).not.toHaveBeenCalled();
    pair.raw.uncork();
    expect(await pair.closed).toEqual({ code: 1011, reason: "the command was killed by SIGKILL" });
    expect(pair.received).toHaveLength(5);
  });

  it("delivers nothing after an invalid message, and truncates the reason to the 123 bytes of a close frame", async () => {
    const { pid, ...pair } = await greeted(["incorrigible", "lsp"]);
    pair.raw.cork();
    pair.webSocket.send("1");
    await expect.poll(() => runs(pid)).toBe(false);
    pair.raw.uncork();
    const { code, reason } = await pair.closed;
    expect(code).toBe(1011);
    expect(Buffer.byteLength(reason)).toBeLessThanOrEqual(123);
    expect(Buffer.byteLength(reason)).toBeGreaterThan(120);
    expect((await pair.over).reason.length).toBeGreaterThan(123);
    expect(pair.received).toEqual(["1"]);
  });

  it("is reported correctly while reading from the client is paused", async () => {
    const { pid, ...pair } = await greeted(["unreading"]);
    await fill(pair);
    process.kill(pid, "SIGKILL");
    expect(await pair.closed).toEqual({ code: 1011, reason: "the command was killed by SIGKILL" });
    // The client's close frame follows all its messages.
    expect(await pair.over).toMatchObject({ endedBy: "command", close: { code: 1011 } });
  });

  it("closes when the command has closed its input and still runs", async () => {
    const { pid, ...pair } = await greeted(["unreadable"]);
    pair.webSocket.send("1");
    await expect.poll(() => pair.child.stdin!.closed).toBe(true);
    await pass(2 * GRACE_MS);
    expect(await pair.closed).toEqual({ code: 1011, reason: "the command closed its input" });
    expect(await pair.over).toMatchObject({ endedBy: "command", signal: "SIGTERM" });
    expect(runs(pid)).toBe(false);
  });
});

it("the end of the WebSocket ends the command's input, after all earlier messages", async () => {
  const { pid, ...pair } = await greeted(["tidy"]);
  for (let i = 0; i < 100; i++) pair.webSocket.send(String(i));
  pair.webSocket.close(3000, "done");
  expect(await pair.over).toEqual({
    endedBy: "socket",
    reason: "the WebSocket was closed with 3000",
    isFailure: false,
    close: { code: 3000, reason: "done", error: undefined },
    exitCode: 0,
    signal: null,
  });
  expect(pair.stderr()).toBe("got 100\n");
  expect(runs(pid)).toBe(false);
});

it.each<[string, string, NodeJS.Signals]>([
  ["ends a command that ignores SIGTERM by SIGKILL", "stubborn", "SIGKILL"],
  ["is noticed while the command does not read", "unreading", "SIGTERM"],
])("the end of the WebSocket %s", async (_what, command, signal) => {
  const { pid, ...pair } = await greeted([command], { pingMs: GRACE_MS / 2 });
  if (command === "unreading") await fill(pair);
  pair.webSocket.terminate();
  while (pair.server.readyState !== WebSocket.CLOSED) await pass(GRACE_MS / 2);
  await pass(signal === "SIGTERM" ? GRACE_MS : 2 * GRACE_MS);
  expect(await pair.over).toMatchObject({ endedBy: "socket", close: { code: 1006 }, signal });
  expect(runs(pid)).toBe(false);
});

it.each<[string, string[], end: number | string, code: number, outlives: boolean]>([
  ["are ended before the bridge is over", ["leave"], 4, 1011, false],
  ["are ended before the bridge is over, also if the WebSocket ended", ["wrapper", "stubborn"], "SIGTERM", 1006, false],
  ["do not delay the end when they have left the process group", ["leave", "apart"], 4, 1011, true],
])("child processes that outlive their command %s", async (_what, command, end, code, outlives) => {
  const { pid, child, ...pair } = await greeted(command);
  const isLeft = pair.over.then(() => runs(pid));
  if (code === 1006) {
    pair.webSocket.terminate();
    await once(pair.server, "close");
    await pass(GRACE_MS);
  }
  await expect.poll(() => child.exitCode ?? child.signalCode).toBe(end);
  // The bridge closes the pipes. Its next check of the process group kills what is left.
  await pass(GRACE_MS + 20);
  await expect.poll(() => runs(pid)).toBe(outlives);
  await passUntil(pair.over, 20);
  expect([(await pair.closed).code, await isLeft]).toEqual([code, outlives]);
  if (outlives) process.kill(pid, "SIGKILL");
});

describe("aborting a bridge", () => {
  it("closes with 1001, ends the command, and leaves no listener on a signal that outlives it", async () => {
    const controller = new AbortController();
    const { signal } = controller;
    const add = vi.spyOn(signal, "addEventListener");
    const remove = vi.spyOn(signal, "removeEventListener");
    const { pid, ...pair } = await greeted(["pid"], { signal });
    controller.abort();
    expect(await pair.closed).toEqual({ code: 1001, reason: "the bridge is closing" });
    expect(await pair.over).toMatchObject({ endedBy: "signal", close: { code: 1001 }, exitCode: 0 });
    expect(runs(pid)).toBe(false);
    expect(add.mock.calls).toHaveLength(1);
    expect(remove.mock.calls).toEqual(add.mock.calls);
  });

  it("does not wait for a client that does not read", async () => {
    const controller = new AbortController();
    const pair = await bridged(["flood", "200", "100000"], { signal: controller.signal });
    pair.webSocket.pause();
    await expect.poll(() => pair.child.stdout!.isPaused()).toBe(true);
    controller.abort();
    // The command was blocked too, and continues now.
    await expect.poll(pair.stderr).toContain("done");
    expect(pair.server.readyState).toBe(WebSocket.CLOSING);
    pair.webSocket.terminate();
    expect(await pair.over).toMatchObject({ endedBy: "signal", exitCode: 0 });
  });

  it.each(["signal", "drain"])("ends at once when its `%s` was aborted before", async (name) => {
    const pair = await bridged(["pid"], { [name]: AbortSignal.abort() });
    expect((await pair.closed).code).toBe(1001);
    expect(await pair.over).toMatchObject({ endedBy: "signal" });
  });
});

it("draining a bridge delivers the answers that the command writes after the end of its input, and closes with 1001", async () => {
  const controller = new AbortController();
  const pair = await greeted(["thorough"], { drain: controller.signal });
  for (let i = 0; i < 3; i++) pair.webSocket.send("1");
  pair.webSocket.ping();
  await once(pair.webSocket, "pong");
  controller.abort();
  // Sent after the end of input, which is not a failure.
  pair.webSocket.send("1");
  expect(await pair.next()).toBe("ended");
  process.kill(pair.pid, "SIGUSR2");
  expect(await pair.closed).toEqual({ code: 1001, reason: "the bridge is closing" });
  expect(pair.received.at(-1)).toBe('{"got":3}');
  expect(await pair.over).toMatchObject({ endedBy: "signal", isFailure: false, exitCode: 3 });
});

it.each<[string, string, (pair: Bridged, abort: () => void) => unknown]>([
  ["after the drain timeout", "signal", () => pass(30_000)],
  ["when it is aborted", "signal", (_pair, abort) => abort()],
  ["when the client disconnects", "socket", ({ webSocket }) => webSocket.terminate()],
])("draining a bridge ends a command that still runs %s", async (_when, endedBy, act) => {
  const [drain, abort] = [new AbortController(), new AbortController()];
  const { pid, ...pair } = await greeted(["stubborn"], { drain: drain.signal, signal: abort.signal });
  drain.abort();
  void act(pair, () => abort.abort());
  expect(await pair.closed).toMatchObject({ code: endedBy === "signal" ? 1001 : 1006 });
  expect(await passUntil(pair.over, GRACE_MS)).toMatchObject({ endedBy, isFailure: false });
  expect(runs(pid)).toBe(false);
});

it("the command's standard error does not stop the command when it is ignored", async () => {
  const { pid, ...pair } = await greeted(["complain"], { stderr: "ignore" });
  for (let i = 0; i < 20; i++) pair.webSocket.send(`"${"x".repeat(100_000)}"`);
  pair.webSocket.close();
  expect(await pair.over).toMatchObject({ exitCode: 0 });
  expect(runs(pid)).toBe(false);
});

it("the command's standard error is forwarded to a function that may fail, of which the bridge warns once", async () => {
  const bug = new Error("bug of the application");
  const warnings: unknown[] = [];
  vi.spyOn(process, "emitWarning").mockImplementation((warning) => void warnings.push(warning));
  const chunks: string[] = [];
  const fails = (chunk: Buffer): any => {
    chunks.push(chunk.toString());
    if (chunks.length > 1) throw bug;
    return Promise.reject(bug);
  };
  const uncaught = await uncaughtIn(async () => {
    const pair = await greeted(["complain"], { stderr: fails });
    pair.webSocket.send('"oh "');
    await expect.poll(() => chunks.length).toBe(1);
    pair.webSocket.send('"no"');
    await expect.poll(() => chunks.length).toBe(2);
    pair.webSocket.close();
    expect(await pair.over).toMatchObject({ exitCode: 0 });
  });
  expect(uncaught).toEqual([]);
  expect(warnings).toMatchObject([{ name: "reciproc", cause: bug }]);
});

describe("the options of a bridge", () => {
  const open = { readyState: WebSocket.OPEN, OPEN: WebSocket.OPEN } as WebSocket;

  it.each<[string, unknown]>([
    ["command", ""],
    ["args", "a b"],
    ["args", [1]],
    ["framing", "toString"],
    ["maxMessageBytes", 0],
    ["maxMessageBytes", 2 ** 31],
    ["drainMs", 0],
    ["graceMs", -1],
    ["stderr", "pipe"],
    ["signal", {}],
    ["drain", new AbortController()],
    ["comand", "x"],
  ])("refuse `%s` that is %j", async (name, value) => {
    const refused = bridge(open, { command: "x", [name]: value });
    await expect(refused).rejects.toThrow(TypeError);
    await expect(refused).rejects.toThrow(`\`${name}\``);
  });

  it("require an open WebSocket", async () => {
    const closed = { readyState: WebSocket.CLOSED, OPEN: WebSocket.OPEN } as WebSocket;
    const refused = bridge(closed, { command: "x" });
    await expect(refused).rejects.toThrow(TypeError);
    await expect(refused).rejects.toThrow("`webSocket.readyState`");
  });
});
