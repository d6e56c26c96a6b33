import { describe, expect, it } from "vitest";
import type { Peer, Server } from "../../src/node.js";
import { run, start } from "./program.js";
import { servingOnPort, emitted } from "../server/by-hand.js";
import { freePort } from "../support/ports.js";
import { reciprocServer, plainServer } from "./server.js";

function nextPeer(server: Server): Promise<Peer> {
  return new Promise((resolve) => server.once("peer", resolve));
}

describe("reciproc listen", () => {
  it("prints notifications and requests, one JSON-RPC object per line", async () => {
    const server = await reciprocServer();
    const peer = nextPeer(server);
    const { child, until, ended } = start(["listen", server.url]);
    const other = await peer;
    other.notify("toast", { text: "a\nb" });
    other.notify("bare");
    await expect(other.request("confirm", [1])).rejects.toMatchObject({ code: -32601 });
    await expect(other.request("rpc.discover")).rejects.toMatchObject({ code: -32601 });
    await until("stdout", "rpc.discover");
    child.kill("SIGINT");
    expect(await ended).toEqual({
      code: 0,
      stdout:
        '{"jsonrpc":"2.0","method":"toast","params":{"text":"a\\nb"}}\n' +
        '{"jsonrpc":"2.0","method":"bare"}\n' +
        '{"jsonrpc":"2.0","id":1,"method":"confirm","params":[1]}\n' +
        '{"jsonrpc":"2.0","id":2,"method":"rpc.discover"}\n',
      stderr: "",
    });
  });

  it.each([[[]], [["--json"]]])("prints no control character of the server raw, with %j", async (options) => {
    const server = await reciprocServer();
    server.on("peer", (peer) => {
      peer.notify("a\u009b31mb", ["\u007f\u0085"]);
      void peer.close();
    });
    expect(await run(["listen", server.url, ...options])).toEqual({
      code: 0,
      stderr: "",
      stdout: '{"jsonrpc":"2.0","method":"a\\u009b31mb","params":["\\u007f\\u0085"]}\n',
    });
  });

  it("misses no message that the server sends at once", async () => {
    const server = await reciprocServer();
    server.on("peer", (peer) => {
      peer.notify("first");
      void peer.close();
    });
    expect(await run(["listen", server.url])).toEqual({
      code: 0,
      stdout: '{"jsonrpc":"2.0","method":"first"}\n',
      stderr: "",
    });
  });

  it("closes the connection on SIGTERM and exits 0", async () => {
    const server = await reciprocServer();
    const peer = nextPeer(server);
    const { child, until, ended } = start(["listen", server.url]);
    (await peer).notify("up");
    await until("stdout", "up");
    child.kill("SIGTERM");
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
    expect((await (await peer).closed).code).toBe(1000);
  });

  it.each([
    ["without --once when the server closes with 1000", [], 1000],
    ["with --once when the server closes with 1000", ["--once"], 1000],
    ["with --once when the server closes with 1001", ["--once"], 1001],
    ["with --once when the server closes without a code", ["--once"], undefined],
  ])("exits 0 %s", async (_when, options, code) => {
    const url = await plainServer((socket) => socket.close(code));
    expect(await run(["listen", url, ...options])).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  it("exits 0 with --once when a reciproc server restarts", async () => {
    const server = await reciprocServer();
    const peer = nextPeer(server);
    const { ended } = start(["listen", "--once", server.url]);
    await peer;
    await server.drain();
    expect(await ended).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  it("reconnects when the server restarts, and prints that messages may be missing", async () => {
    const port = await freePort();
    const where = `127.0.0.1:${port}`;
    const first = await reciprocServer({ port });
    const peer = nextPeer(first);
    const { child, until, ended } = start(["listen", where]);
    (await peer).notify("one");
    await until("stdout", "one");
    await first.drain({ retryMs: 100 });
    const second = await reciprocServer({ port });
    (await nextPeer(second)).notify("two");
    await until("stdout", "two");
    child.kill("SIGINT");
    expect(await ended).toEqual({
      code: 0,
      stdout: '{"jsonrpc":"2.0","method":"one"}\n{"jsonrpc":"2.0","method":"two"}\n',
      stderr:
        `lost the connection to ${where}; trying again\n` +
        `connected to ${where} again; what was sent meanwhile is missing\n`,
    });
  });

  it("resumes its session when only its socket was lost, and prints that nothing is missing", async () => {
    const { server, url, cut } = await servingOnPort();
    const coming = nextPeer(server);
    const { child, until, ended } = start(["listen", url]);
    const peer = await coming;
    peer.notify("one");
    // Answered when the client has its session.
    await expect(peer.request("x")).rejects.toMatchObject({ code: -32601 });
    await expect(peer.request("y")).rejects.toMatchObject({ code: -32601 });
    const suspended = emitted(peer, "suspend");
    cut();
    await suspended;
    peer.notify("two");
    await until("stderr", "nothing is missing");
    await until("stdout", "two");
    child.kill("SIGINT");
    const where = url.replace("ws://", "");
    const { stdout, stderr } = await ended;
    expect(stdout.split("\n").filter((line) => line.includes('"two"'))).toHaveLength(1);
    expect(stderr).toBe(
      `lost the connection to ${where}; trying again\nconnected to ${where} again; nothing is missing\n`,
    );
  });

  it("reconnects to a plain JSON-RPC server, too", async () => {
    let connections = 0;
    const url = await plainServer((socket) => {
      socket.send(`{"jsonrpc":"2.0","method":"hello ${++connections}"}`, () => connections === 1 && socket.terminate());
    });
    const { child, until, ended } = start(["listen", url]);
    await until("stdout", "hello 2");
    child.kill("SIGINT");
    expect(await ended).toMatchObject({ code: 0, stderr: expect.stringContaining("is missing\n") as string });
  });

  it("exits 2 with --once when the connection is lost", async () => {
    const url = await plainServer((socket) => socket.terminate());
    const { code, stdout, stderr } = await run(["listen", url, "--once"]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/^lost the connection to 127\.0\.0\.1:\d+: it ended without a close\n$/);
  });

  it("exits 2 and prints the reason when the server closes the connection", async () => {
    const url = await plainServer((socket) => socket.close(4401, "token expired"));
    expect(await run(["listen", url])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("closed with 4401 (token expired)\n") as string,
    });
    const { stdout } = await run(["listen", url, "--json"]);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: "CONNECTION_LOST" } });
  });

  it("ends at the first message after its reader closed the pipe", async () => {
    const server = await reciprocServer();
    const peer = nextPeer(server);
    const { child, until, ended } = start(["listen", server.url]);
    const other = await peer;
    other.notify("one");
    await until("stdout", "one");
    const gone = new Promise((resolve) => child.stdout.once("close", resolve));
    child.stdout.destroy();
    await gone;
    other.notify("two");
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
    expect((await other.closed).code).toBe(1000);
  });
});
