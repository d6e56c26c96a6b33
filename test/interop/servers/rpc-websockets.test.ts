/** A reciproc client calls an rpc-websockets 10 server, whose events are not JSON-RPC and are refused. */
import { Server } from "rpc-websockets";
import { describe, expect, it } from "vitest";
import { connect } from "../../../src/node.js";
import { plainPeer } from "../../support/network.js";
import { rejection } from "../../support/turns.js";
import { Inbox } from "../support/inbox.js";
import { ATTIC } from "../support/service.js";
import { behavesAsServer, connectPlainly, Gates, listeningServer, type ForeignServer } from "./behaviour.js";

async function start(): Promise<ForeignServer & { server: Server }> {
  const server = new Server({ port: 0, host: "127.0.0.1" });
  const gates = new Gates();
  const noted = new Inbox();
  server.register("add", (params: any) => (Array.isArray(params) ? params[0] + params[1] : params.a + params.b));
  server.register("echo", (params) => params);
  server.register("attic", () => {
    // It sends a thrown value unchanged if it is not an Error.
    throw server.createError(ATTIC.code, ATTIC.message, ATTIC.data as never);
  });
  server.register("wait", (params) => gates.of(params[0]).promise as never);
  server.register("note", (params) => noted.push(params));
  return { ...(await listeningServer(server.wss)), server, gates, noted };
}

describe("an rpc-websockets server", () => {
  behavesAsServer({ start });

  it("pushes messages that are not JSON-RPC, which are refused with -32600 without effect on a call", async () => {
    await using foreign = await start();
    foreign.server.event("tick");
    await using peer = await connectPlainly(foreign.url);
    const errors = new Inbox<any>();
    peer.on("error", errors.push);
    expect(await peer.request("rpc.on", ["tick"])).toEqual({ tick: "ok" });
    foreign.server.emit("tick", 1, 2);
    // Its push has `notification` instead of a method and no `jsonrpc`. It refuses the refusal, and no further message is sent.
    expect(await errors.next()).toMatchObject({ name: "RpcError", code: -32602, data: "Method not specified" });
    expect(await peer.request("add", [1, 2])).toBe(3);
    expect(errors.all).toHaveLength(1);
  });

  it("that pushes more than a hundred of them is closed with 1008, unless the limit is raised", async () => {
    await using foreign = await start();
    foreign.server.event("tick");
    await using strict = await connectPlainly(foreign.url);
    const limits = { maxMalformedPerMinute: Infinity };
    await using patient = await connect(foreign.url, { link: "plain", limits });
    for (const peer of [strict, patient]) await peer.request("rpc.on", ["tick"]);
    for (let i = 0; i <= 100; i++) foreign.server.emit("tick", i);
    expect(await strict.closed).toMatchObject({ code: 1008 });
    expect(await patient.request("add", [1, 2])).toBe(3);
  });

  it("answers no call of id 0, which is why reciproc counts from 1", async () => {
    await using foreign = await start();
    using bare = await plainPeer(foreign.url);
    for (const id of [0, 1]) bare.webSocket.send(JSON.stringify({ jsonrpc: "2.0", id, method: "echo", params: [id] }));
    expect(await bare.next()).toEqual({ jsonrpc: "2.0", id: 1, result: [1] });
  });

  it("answers an inherited name with an error of its own, which the call rejects with", async () => {
    await using foreign = await start();
    await using peer = await connectPlainly(foreign.url);
    const error = await rejection(peer.request("toString"));
    expect(error).toMatchObject({ name: "RpcError", code: -32000, message: "TypeError" });
  });
});
