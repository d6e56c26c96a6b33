import { afterEach, describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { connect, ConnectError } from "../../src/index.js";
import { serve } from "../../src/node.js";
import { createServer } from "node:net";
import { listening } from "../support/network.js";
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
    expect(error.message).toBe(
      'this runtime has no WebSocket of its own; on Node import `connect` from "reciproc/node"',
    );
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

  it("offers reciproc.v1, or nothing with a plain link", async () => {
    const made: unknown[][] = [];
    stubGlobal(
      class extends WebSocket {
        constructor(...args: [string]) {
          super(...args);
          made.push(args);
        }
      },
    );
    await using server = await serve({ port: 0 });
    await using peer = await connect(server.url);
    await using other = await connect(server.url, { link: "plain" });
    expect(made).toEqual([
      [server.url, ["reciproc.v1"]],
      [server.url, []],
    ]);
    expect([peer.state, other.state]).toEqual(["open", "open"]);
  });

  it("rejects with ConnectError if the connection fails, with the runtime's error as cause", async () => {
    stubGlobal(WebSocket);
    const url = await (async () => {
      await using somebody = await listening(createServer());
      return somebody.url;
    })();
    const error = await rejection(connect(`${url}/rpc?token=s3cret`));
    expect(error).toBeInstanceOf(ConnectError);
    expect(error).toMatchObject({ url: `${url}/rpc`, status: undefined, cause: { code: "ECONNREFUSED" } });
    expect(String(error)).not.toContain("s3cret");
  });

  it("gives up after openTimeoutMs", async () => {
    stubGlobal(WebSocket);
    await using silent = await listening(createServer((socket) => void socket.on("error", () => {}).resume()));
    const error = await rejection(connect(silent.url, { openTimeoutMs: 30 }));
    expect(error).toBeInstanceOf(ConnectError);
    expect(error.message).toContain("not open within 30 ms");
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
