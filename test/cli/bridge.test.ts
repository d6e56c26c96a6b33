import { once } from "node:events";
import { describe, expect, it } from "vitest";
import { connect } from "../../src/node.js";
import { virtualClock } from "../../src/testing/index.js";
import { COMMAND, runs } from "../bridge/bridged.js";
import { plainPeer, upgrade, type PlainPeer } from "../support/network.js";
import { beginListening } from "./program.js";

async function bridging(command: readonly string[], ...options: string[]) {
  const framing = command.includes("lsp") ? [] : ["--framing", "lines"];
  const running = await beginListening(["bridge", ...framing, ...options, "--", process.execPath, COMMAND, ...command]);
  /** Connects, and waits until the command has sent its number. */
  const open = async (): Promise<PlainPeer & { pid: number }> => {
    const client = await plainPeer(running.url);
    return Object.assign(client, (await client.next()) as { pid: number });
  };
  return { ...running, open };
}

/** Connects as soon as the limit allows it, which is a moment after another connection was cut. */
async function admitted(url: string): Promise<PlainPeer> {
  let client: PlainPeer | undefined;
  await expect
    .poll(async () => {
      client = await plainPeer(url).catch(() => undefined);
      return client !== undefined;
    })
    .toBe(true);
  return client!;
}

describe("reciproc bridge", () => {
  it("prints its address in its first line, and starts one command for each connection", async () => {
    const { url, signal, ended, open } = await bridging(["pid", "lsp"], "--path", "/lsp");
    expect(url).toMatch(/^ws:\/\/127\.0\.0\.1:\d+\/lsp$/);
    using one = await open();
    using other = await open();
    expect(one.pid).not.toBe(other.pid);
    one.webSocket.send('{"to":"one"}');
    other.webSocket.send('{"to":"other"}');
    await expect.poll(() => [one.received[1], other.received[1]]).toEqual(['{"to":"one"}', '{"to":"other"}']);
    signal("SIGTERM");
    expect(await one.closed).toMatchObject({ code: 1001 });
    expect(await other.closed).toMatchObject({ code: 1001 });
    expect(await ended).toEqual({ code: 0, stdout: `listening on ${url}\n`, stderr: "" });
    expect([one, other].filter(({ pid }) => runs(pid))).toEqual([]);
  });

  it("serves a reciproc peer, which offers its own protocol first", async () => {
    const { url } = await bridging(["echo"]);
    await using peer = await connect(url, { methods: { add: ([a, b]: [number, number]) => a + b } });
    // The command echoes each message, so the peer receives its own request and then its own answer.
    expect(await peer.request("add", [1, 2])).toBe(3);
  });

  it.each<[string, NodeJS.Signals, string[], number]>([
    ["at once on SIGINT", "SIGINT", [], 0],
    ["after --drain-timeout on SIGTERM", "SIGTERM", ["--drain-timeout", "50"], 50],
  ])("disconnects from commands that still run %s", async (_when, name, options, ms) => {
    using clock = virtualClock();
    const { signal, ended, open } = await bridging(["stubborn"], ...options);
    using client = await open();
    signal(name);
    if (ms > 0) {
      await clock.pass(ms - 1);
      client.webSocket.ping();
      await once(client.webSocket, "pong");
    }
    await clock.pass(1);
    expect(await client.closed).toMatchObject({ code: 1001 });
    // The bridge would do so after its grace of 2 s twice.
    process.kill(client.pid, "SIGKILL");
    expect(await ended).toMatchObject({ code: 0 });
  });

  it.each([
    ["the reason when the command fails", "3", 1011],
    ["nothing when the command exits with code 0", "0", 1000],
  ])("prints %s", async (_what, exitCode, code) => {
    const { url, signal, ended } = await bridging(["exit", exitCode, "0"]);
    using client = await plainPeer(url);
    const end = await client.closed;
    expect(end).toEqual({ code, reason: expect.stringContaining(exitCode) });
    signal("SIGTERM");
    expect(await ended).toMatchObject({ code: 0, stderr: code === 1011 ? `${end.reason}\n` : "" });
  });

  it("forwards the commands' standard error line by line, with the connection's number if there are several", async () => {
    const { open, until } = await bridging(["complain"]);
    using one = await open();
    one.webSocket.send('"alone\\nhalf "');
    await until("stderr", "alone\n");
    using two = await open();
    two.webSocket.send('"two\\n"');
    await until("stderr", "two\n");
    one.webSocket.send('"a line\\n"');
    expect(await until("stderr", "a line\n")).toBe("alone\n[2] two\n[1] half a line\n");
    two.webSocket.send(`"${"x".repeat(70_000)}"`);
    await until("stderr", `[2] ${"x".repeat(70_000)}\n`);
    one.webSocket.send('"its last words"');
    one.webSocket.close();
    await until("stderr", "[1] its last words\n");
  });

  it("closes with 1009 on a message beyond the limit, and prints it on standard error", async () => {
    const { open, until } = await bridging(["pid"], "--max-message-bytes", "100");
    using client = await open();
    client.webSocket.send("1".repeat(101));
    expect((await client.closed).code).toBe(1009);
    expect(await until("stderr", "\n")).toMatch(/^.*WebSocket.*\n$/);
  });

  it("refuses connections beyond the limit, naming the option", async () => {
    const { open, url, until } = await bridging(["pid"], "--max-connections", "2");
    using one = await open();
    using two = await open();
    expect(await upgrade(url)).toMatchObject({ status: 503 });
    expect(await until("stderr", "\n")).toBe("refused 127.0.0.1: 503, --max-connections, 2, is reached\n");
    one.webSocket.terminate();
    using three = await admitted(url);
    expect((await three.next()).pid).not.toBe(two.pid);
    expect(runs(two.pid)).toBe(true);
  });

  it("limits the commands that outlive their connections", async () => {
    using clock = virtualClock();
    const { url, signal, ended } = await bridging(["stubborn"], "--max-connections", "1");
    const pids: number[] = [];
    for (let i = 0; i < 2; i++) {
      const client = await admitted(url);
      pids.push((await client.next()).pid);
      client.webSocket.terminate();
    }
    using third = await admitted(url);
    expect(await third.closed).toMatchObject({ code: 1013 });
    // The bridge kills a command 4 s after its connection has ended.
    await clock.pass(3_999);
    expect(pids.filter(runs)).toEqual(pids);
    for (const pid of pids) process.kill(pid, "SIGKILL");
    signal("SIGTERM");
    expect(await ended).toMatchObject({ code: 0 });
  });

  it("agrees to the protocol of MCP if messages are lines, and to no other", async () => {
    const offer = { "Sec-WebSocket-Protocol": "graphql-ws, mcp, reciproc.v1" };
    const mcp = await bridging(["echo"]);
    expect((await upgrade(mcp.url, offer)).headers).toHaveProperty("sec-websocket-protocol", "mcp");
    expect((await upgrade(mcp.url)).headers).not.toHaveProperty("sec-websocket-protocol");
    const lsp = await bridging(["echo", "lsp"]);
    expect((await upgrade(lsp.url)).status).toBe(101);
    // Most clients close a connection whose offer was ignored, and a command would have started in vain.
    expect(await upgrade(lsp.url, offer)).toMatchObject({
      status: 400,
      body: expect.stringContaining('"graphql-ws, mcp, reciproc.v1"'),
    });
  });

  it("checks path, host and origin as serve does", async () => {
    const page = { Host: "example.org", Origin: "https://app.example.org" };
    const strict = await bridging(["echo"], "--path", "/lsp");
    expect(await upgrade(strict.url, page)).toMatchObject({ status: 403 });
    expect(await upgrade(strict.url.replace("/lsp", "/other"))).toMatchObject({ status: 404 });
    const open = await bridging(["echo"], "--allow-host=example.org", "--allow-origin=https://app.example.org");
    expect(await upgrade(open.url, page)).toMatchObject({ status: 101 });
  });
});
