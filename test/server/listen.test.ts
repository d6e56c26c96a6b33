import { describe, expect, it } from "vitest";
import { connect, serve } from "../../src/node.js";
import { portOf, upgrade } from "../support/network.js";
import { rejection } from "../support/turns.js";

const methods = { add: ([a, b]: [number, number]) => a + b };

describe("serve on a port", () => {
  it("picks a free port for 0, on loopback, and reports it", async () => {
    await using server = await serve({ port: 0, methods });
    expect(server.url).toMatch(/^ws:\/\/127\.0\.0\.1:\d+\/$/);
    await using peer = await connect(server.url);
    expect(await peer.request("add", [1, 2])).toBe(3);
  });

  it("rejects with Node's error if the port is in use", async () => {
    await using server = await serve({ port: 0 });
    const error = await rejection(serve({ port: portOf(server.url) }));
    expect(error).toMatchObject({ code: "EADDRINUSE" });
  });

  it("can listen on other addresses, and then names a host that can be reached", async () => {
    await using server = await serve({ port: 0, host: "0.0.0.0", methods });
    expect(server.url).toMatch(/^ws:\/\/localhost:\d+\/$/);
    await using peer = await connect(`ws://127.0.0.1:${portOf(server.url)}`);
    expect(await peer.request("add", [1, 2])).toBe(3);
  });

  it("chooses none of the subprotocols that are offered, and no compression", async () => {
    await using server = await serve({ port: 0 });
    const answer = await upgrade(server.url, {
      "Sec-WebSocket-Protocol": "mcp, anything",
      "Sec-WebSocket-Extensions": "permessage-deflate",
    });
    expect(answer.status).toBe(101);
    expect(answer.headers).not.toHaveProperty("sec-websocket-protocol");
    expect(answer.headers).not.toHaveProperty("sec-websocket-extensions");
  });

  it("has no url once it is closed", async () => {
    const server = await serve({ port: 0 });
    await server.close();
    expect(server.url).toBe("");
  });
});
