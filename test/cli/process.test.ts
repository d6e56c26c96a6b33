/** The built program, once for each command: what only a process does. All else is shown by the function in this process. */
import { once } from "node:events";
import { describe, expect, it } from "vitest";
import { connect } from "../support/connect.js";
import { COMMAND, runs } from "../bridge/bridged.js";
import { plainPeer, upgrade } from "../support/network.js";
import { rejection } from "../support/turns.js";
import { servingOnPort } from "../server/by-hand.js";
import { addressIn, file, plainServer, start } from "./program.js";

/** Lets no timer of more than 2 s fire, so that a process that waits for one does not end. */
const WITHOUT_LONG_TIMERS =
  "const set = setTimeout; globalThis.setTimeout = (act, ms, ...args) => set(act, ms > 2_000 ? 2 ** 31 - 1 : ms, ...args);";

describe("the program", () => {
  it("serves, drains on the first signal, and ends at once on the second", async () => {
    const path = await file("api.mjs", "export default { add: ([a, b]) => a + b, hang: () => new Promise(() => {}) };");
    const { child, until, ended } = start(["serve", path, "--port", "0"]);
    const url = addressIn(await until("stdout", "\n"));
    await using peer = await connect(url, { reconnect: false });
    const call = rejection(peer.request("hang"));
    expect(await peer.request("add", [1, 2])).toBe(3);
    child.kill("SIGTERM");
    // After the first signal no connection is accepted.
    await expect.poll(async () => (await upgrade(url)).status).toBe(503);
    expect(peer.state).toBe("open");
    child.kill("SIGHUP");
    expect(await ended).toMatchObject({ code: 129, stdout: `listening on ${url}\n` });
    await call;
  });

  it("exits 64 when a file to serve never finishes loading", async () => {
    const { ended } = start(["serve", await file("api.mjs", "await new Promise(() => {});"), "--port", "0"]);
    const stderr = expect.stringContaining("never finishes loading") as string;
    expect(await ended).toMatchObject({ code: 64, stdout: "", stderr });
  });

  it("prints a large result whole, and ends though the server never answers the close", async () => {
    const length = 5_000_000;
    const url = await plainServer((socket) =>
      socket.on("message", () =>
        socket.send(`{"jsonrpc":"2.0","id":1,"result":"${"x".repeat(length)}"}`, () => socket.pause()),
      ),
    );
    const env = { NODE_OPTIONS: `--import "data:text/javascript,${encodeURIComponent(WITHOUT_LONG_TIMERS)}"` };
    const { code, stdout, stderr } = await start(["call", url, "any"], env).ended;
    expect({ code, stderr, length: stdout.length }).toEqual({ code: 0, stderr: "", length: length + 3 });
  });

  it("listens until its reader closes the pipe", async () => {
    const { server, url } = await servingOnPort();
    const { child, until, ended } = start(["listen", url]);
    const [peer] = (await once(server as never, "peer")) as [Awaited<ReturnType<typeof connect>>];
    peer.notify("one");
    await until("stdout", "one");
    const isClosed = once(child.stdout, "close");
    child.stdout.destroy();
    await isClosed;
    peer.notify("two");
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
  });

  it("leaves no command of a bridge running when a second signal ends it at once", async () => {
    const command = [process.execPath, COMMAND, "stubborn"];
    const { child, ended, until } = start(["bridge", "--framing=lines", "--port=0", "--", ...command]);
    const url = addressIn(await until("stdout", "\n"));
    using client = await plainPeer(url);
    const { pid } = (await client.next()) as { pid: number };
    child.kill("SIGTERM");
    await expect.poll(async () => (await upgrade(url)).status).toBe(503);
    expect(client.webSocket.readyState).toBe(client.webSocket.OPEN);
    child.kill("SIGTERM");
    expect(await ended).toMatchObject({ code: 143 });
    // Its killer has ended, so it may remain as a zombie.
    await expect.poll(() => runs(pid)).toBe(false);
  });
});
