import { describe, expect, it } from "vitest";
import type { Peer, Server } from "../../src/node.js";
import { run, start } from "./program.js";
import { freePort, ours, stranger } from "./server.js";

function nextPeer(server: Server): Promise<Peer> {
  return new Promise((resolve) => server.once("peer", resolve));
}

describe("reciproc listen", () => {
  it("prints notifications and requests, one JSON-RPC object a line", async () => {
    const server = await ours();
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

  it("misses nothing that the server sends at once", async () => {
    const server = await ours();
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
    const server = await ours();
    const peer = nextPeer(server);
    const { child, until, ended } = start(["listen", server.url]);
    (await peer).notify("up");
    await until("stdout", "up");
    child.kill("SIGTERM");
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
    expect((await (await peer).closed).code).toBe(1000);
  });

  it.each([
    ["1001", (code: number) => code],
    ["1000", () => 1000],
    ["no code", () => undefined],
  ])("exits 0 when the server closes with %s", async (name, codeOf) => {
    const url = await stranger((socket) => socket.close(codeOf(Number(name))));
    expect(await run(["listen", url])).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  it("exits 2 when the connection is lost", async () => {
    const url = await stranger((socket) => socket.terminate());
    const { code, stdout, stderr } = await run(["listen", url]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/^lost the connection to 127\.0\.0\.1:\d+: it ended without a close\n$/);
  });

  it("exits 2 and says why when the server throws it out", async () => {
    const url = await stranger((socket) => socket.close(4401, "token expired"));
    expect(await run(["listen", url])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("closed with 4401 (token expired)\n") as string,
    });
    const { stdout } = await run(["listen", url, "--json"]);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: "CONNECTION_LOST" } });
  });

  it("exits 2 when there is no connection", async () => {
    const port = await freePort();
    expect(await run(["listen", `127.0.0.1:${port}`])).toMatchObject({
      code: 2,
      stderr: `cannot connect to 127.0.0.1:${port}: connection refused\n`,
    });
  });

  it("ends at the first message after its reader went away", async () => {
    const server = await ours();
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
