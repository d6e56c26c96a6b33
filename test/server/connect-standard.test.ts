import { afterEach, describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { connect } from "../../src/index.js";
import { serve } from "../../src/node.js";
import { rejection } from "../support/turns.js";

/** Replaces the global WebSocket of browsers, workers, Deno, Bun and newer Nodes. */
function stubGlobal(value: unknown): void {
  vi.stubGlobal("WebSocket", value);
}

afterEach(() => void vi.unstubAllGlobals());

describe("connect of the standard entry", () => {
  it("gives a cure in its error if the runtime has no WebSocket", async () => {
    stubGlobal(undefined);
    const error = await rejection(connect("ws://127.0.0.1:1"));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe('this runtime has no WebSocket; on Node import `connect` from "reciproc/node"');
  });

  it("works over the global WebSocket, both ways", async () => {
    stubGlobal(WebSocket);
    await using server = await serve({
      port: 0,
      methods: { outer: async (_params, { peer }) => `got ${await peer.request("inner")}` },
    });
    server.on("peer", (peer) => peer.notify("welcome"));
    await using peer = await connect(server.url, { methods: { inner: () => "inner" } });
    const got: string[] = [];
    peer.on("notification", (method) => got.push(method));
    expect(await peer.request("outer")).toBe("got inner");
    expect(got).toEqual(["welcome"]);
  });

  it("accepts an address relative to the page, secure if the page is secure", async () => {
    stubGlobal(WebSocket);
    await using server = await serve({ port: 0, path: "/rpc", methods: { m: () => 1 } });
    vi.stubGlobal("location", { href: server.url.replace("ws", "http").replace("/rpc", "/app/page?x#y") });
    for (const url of ["/rpc", "../rpc", "//" + new URL(server.url).host + "/rpc"]) {
      await using peer = await connect(url);
      expect(await peer.request("m")).toBe(1);
    }
    vi.stubGlobal("location", { href: "https://127.0.0.1:9/page" });
    expect((await rejection(connect("/rpc", { openTimeoutMs: 2000 }))).url).toBe("wss://127.0.0.1:9/rpc");
  });
});
