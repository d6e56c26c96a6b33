/** A reciproc client drives aria2, a C++ program whose server agrees to no subprotocol and sends notifications. */
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect } from "../../support/connect.js";
import { aptInstall, onPath } from "../../support/debian.js";
import { listening } from "../../support/network.js";
import { freePort } from "../../support/ports.js";
import { Program, type Command } from "../../support/program.js";
import { rejection } from "../../support/turns.js";
import { Inbox } from "../../support/inbox.js";
import { agreedProtocol } from "./behaviour.js";

class Aria2 extends Program {
  get url(): string {
    return `ws://127.0.0.1:${this.port}/jsonrpc`;
  }

  protected async takePorts(): Promise<void> {
    this.port = await freePort(); // aria2 does not accept port 0
  }

  protected async prepare(): Promise<Command> {
    const [path] = onPath("aria2c");
    if (path === undefined) throw new Error("aria2c was not found and could not be installed; install aria2");
    const options = ["--no-conf", "--enable-rpc", `--rpc-listen-port=${this.port}`, `--dir=${this.folder}`];
    return { path, args: options, output: "stdout", ready: /IPv4 RPC: listening/ };
  }
}

let aria2: Aria2;
beforeAll(async () => {
  if (onPath("aria2c").length === 0) await aptInstall("aria2");
  aria2 = await Program.launch(new Aria2());
});
afterAll(() => aria2[Symbol.asyncDispose]());

describe("aria2", () => {
  it("does not agree to reciproc.v1, and is called without it", async () => {
    expect(await agreedProtocol(aria2.url)).toBeUndefined();
    await using peer = await connect(aria2.url);
    expect(await peer.request("aria2.getVersion")).toMatchObject({ version: expect.stringMatching(/^1\./) });
    const many = Array.from({ length: 200 }, () => peer.request("aria2.getGlobalStat"));
    expect(await Promise.all(many)).toHaveLength(200);
  });

  it("fails calls with its own codes, refuses notifications, and answers batches", async () => {
    await using peer = await connect(aria2.url);
    expect(await rejection(peer.request("nope"))).toMatchObject({ name: "RpcError", code: 1 });
    // aria2 accepts positional params only.
    expect(await rejection(peer.request("aria2.tellActive", { keys: [] }))).toMatchObject({ code: -32602 });
    const errors = new Inbox<any>();
    peer.on("error", errors.push);
    peer.notify("aria2.getVersion");
    expect(await errors.next()).toMatchObject({ name: "RpcError", code: -32600 });
    const batch = peer.batch();
    const calls = [batch.request("system.listNotifications"), batch.request("nope"), batch.request("aria2.getVersion")];
    batch.send();
    expect(await calls[0]).toContain("aria2.onDownloadStart");
    expect(await rejection(calls[1]!)).toMatchObject({ code: 1 });
    expect(await calls[2]).toBeTypeOf("object");
  });

  it("downloads a file, and notifies every client", async () => {
    const http = createServer((_request, response) => response.end("what was asked for"));
    await using site = await listening(http);
    const peers = [await connect(aria2.url), await connect(aria2.url)] as const;
    const pushed = peers.map((peer) => {
      const inbox = new Inbox();
      peer.on("notification", (method, params) => inbox.push([method, params]));
      return inbox;
    });
    const gid = await peers[0].request("aria2.addUri", [[`${site.url.replace("ws:", "http:")}/file.txt`]]);
    const events = ["aria2.onDownloadStart", "aria2.onDownloadComplete"].map((event) => [event, [{ gid }]]);
    for (const inbox of pushed) expect([await inbox.next(), await inbox.next()]).toEqual(events);
    expect(await readFile(join(aria2.folder, "file.txt"), "utf8")).toBe("what was asked for");
    for (const peer of peers) await peer.close();
  });
});
