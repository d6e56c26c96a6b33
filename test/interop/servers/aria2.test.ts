/** A reciproc client drives aria2, a C++ program whose server agrees to no subprotocol and sends notifications. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import WebSocket from "ws";
import { connect, type AnyPeer } from "../../../src/node.js";
import { aptInstall, onPath } from "../../support/debian.js";
import { listening } from "../../support/network.js";
import { freePort } from "../../support/ports.js";
import { rejection } from "../../support/turns.js";
import { Inbox } from "../support/inbox.js";

const CURE = "aria2c was not found and could not be installed; install aria2";

let folder: string;
let aria2: ChildProcess | undefined;
let url: string;

beforeAll(async () => {
  if (onPath("aria2c").length === 0) await aptInstall("aria2");
  const [program] = onPath("aria2c");
  if (program === undefined) throw new Error(CURE);
  folder = await mkdtemp(join(tmpdir(), "reciproc-aria2-"));
  // Another process may take the port first.
  for (let tries = 5; aria2 === undefined; tries--) {
    try {
      aria2 = await start(program);
    } catch (error) {
      if (tries === 1) throw error;
    }
  }
}, 600_000);

afterAll(async () => {
  if (aria2 === undefined) return;
  const exited = once(aria2, "exit");
  aria2.kill("SIGKILL");
  await exited;
  await rm(folder, { recursive: true });
});

async function start(program: string): Promise<ChildProcess> {
  const port = await freePort(); // aria2 does not accept port 0
  url = `ws://127.0.0.1:${port}/jsonrpc`;
  const options = ["--no-conf", "--enable-rpc", `--rpc-listen-port=${port}`, `--dir=${folder}`];
  const child = spawn(program, [...options, `--stop-with-process=${process.pid}`], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await said(child, /IPv4 RPC: listening/);
  return child;
}

/** Resolves when a program prints the text. Rejects if the program ends before. */
function said(program: ChildProcess, what: RegExp): Promise<void> {
  return new Promise((resolve, reject) => {
    createInterface(program.stdout!).on("line", (line) => what.test(line) && resolve());
    program.once("exit", (code) => reject(new Error(`the program ended with ${code}`)));
  });
}

/** Opens a connection, and records its notifications. */
async function open(): Promise<{ peer: AnyPeer; pushed: Inbox<[method: string, params: unknown]> }> {
  const peer = await connect(url);
  const pushed = new Inbox<[string, unknown]>();
  peer.on("notification", (method, params) => pushed.push([method, params]));
  return { peer, pushed };
}

describe("aria2", () => {
  it("does not agree to reciproc.v1, and is called without it", async () => {
    const bare = new WebSocket(url, "reciproc.v1");
    const [error] = (await once(bare, "error")) as [Error];
    expect(error.message).toBe("Server sent no subprotocol");
    await using peer = await connect(url);
    expect(await peer.request("aria2.getVersion")).toMatchObject({ version: expect.stringMatching(/^1\./) });
  });

  it("fails calls with its own codes", async () => {
    const { peer } = await open();
    expect(await rejection(peer.request("nope"))).toMatchObject({ code: 1, message: "No such method: nope" });
    expect(await rejection(peer.request("aria2.tellStatus", ["zzz"]))).toMatchObject({ code: 1 });
    // aria2 accepts positional params only.
    expect(await rejection(peer.request("aria2.tellActive", { keys: [] }))).toMatchObject({ code: -32602 });
    await peer.close();
  });

  it("refuses notifications, without effect on a call", async () => {
    const { peer } = await open();
    const errors = new Inbox<any>();
    peer.on("error", errors.push);
    peer.notify("aria2.getVersion");
    expect(await errors.next()).toMatchObject({ name: "RpcError", code: -32600 });
    expect(await peer.request("aria2.getVersion")).toBeTypeOf("object");
    expect(peer.stats()).toMatchObject({ pending: 0 });
    await peer.close();
  });

  it("answers batches, and many calls at once", async () => {
    const { peer } = await open();
    const batch = peer.batch();
    const calls = [batch.request("system.listNotifications"), batch.request("nope"), batch.request("aria2.getVersion")];
    batch.send();
    expect(await calls[0]).toContain("aria2.onDownloadStart");
    expect(await rejection(calls[1]!)).toMatchObject({ code: 1 });
    expect(await calls[2]).toBeTypeOf("object");
    const many = Array.from({ length: 200 }, () => peer.request("aria2.getGlobalStat"));
    expect(await Promise.all(many)).toHaveLength(200);
    await peer.close();
  });

  it("downloads a file, and notifies every client", async () => {
    const http = createServer((_request, response) => response.end("what was asked for"));
    await using site = await listening(http);
    const { peer, pushed } = await open();
    const { peer: other, pushed: toOther } = await open();
    const gid = await peer.request("aria2.addUri", [[`${site.url.replace("ws:", "http:")}/file.txt`]]);
    const started = ["aria2.onDownloadStart", [{ gid }]];
    const done = ["aria2.onDownloadComplete", [{ gid }]];
    expect([await pushed.next(), await pushed.next()]).toEqual([started, done]);
    expect([await toOther.next(), await toOther.next()]).toEqual([started, done]);
    expect(await readFile(join(folder, "file.txt"), "utf8")).toBe("what was asked for");
    expect(await peer.request("aria2.tellStatus", [gid, ["status"]])).toEqual({ status: "complete" });
    await Promise.all([peer.close(), other.close()]);
  });
});
