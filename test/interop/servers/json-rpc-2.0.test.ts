/** A reciproc client calls a json-rpc-2.0 1.8 server, connected as in its README, and is called by it during a call. */
import { JSONRPCClient, JSONRPCErrorException, JSONRPCServer, JSONRPCServerAndClient } from "json-rpc-2.0";
import { describe, expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { connect } from "../../../src/node.js";
import { rejection } from "../../support/turns.js";
import { Inbox } from "../support/inbox.js";
import { ATTIC } from "../support/service.js";
import { behavesAsServer, Gates, listeningServer, type ForeignServer } from "./behaviour.js";

async function start(): Promise<ForeignServer & { clients: Inbox<JSONRPCServerAndClient> }> {
  const gates = new Gates();
  const noted = new Inbox();
  const clients = new Inbox<JSONRPCServerAndClient>();
  const webSockets = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  webSockets.on("connection", (webSocket) => {
    const both: JSONRPCServerAndClient = new JSONRPCServerAndClient(
      // The errors of its methods would be printed.
      new JSONRPCServer({ errorListener: () => {} }),
      new JSONRPCClient((message) => webSocket.send(JSON.stringify(message))),
    );
    both.addMethod("add", (params) => (Array.isArray(params) ? params[0] + params[1] : params.a + params.b));
    both.addMethod("echo", (params) => params);
    both.addMethod("attic", () => {
      throw new JSONRPCErrorException(ATTIC.message, ATTIC.code, ATTIC.data);
    });
    both.addMethod("wait", ([name]) => gates.of(name).promise);
    both.addMethod("note", noted.push);
    both.addMethod("ask", async (params) => `you said ${await both.request("confirm", params)}`);
    webSocket.on("message", (data: Buffer) => void both.receiveAndSend(JSON.parse(data.toString())));
    webSocket.on("close", () => both.rejectAllPendingRequests("the connection is closed"));
    clients.push(both);
  });
  return { ...(await listeningServer(webSockets)), clients, gates, noted };
}

describe("a json-rpc-2.0 server", () => {
  behavesAsServer({ start });

  it("calls and notifies the client before it answers", async () => {
    await using foreign = await start();
    const ticks = new Inbox();
    await using peer = await connect(foreign.url, {
      methods: { confirm: ({ question }) => `yes to ${question}`, tick: ticks.push },
    });
    expect(await peer.request("ask", { question: "sure?" })).toBe("you said yes to sure?");
    const theirs = await foreign.clients.next();
    theirs.notify("tick", [1]);
    expect(await ticks.next()).toEqual([1]);
    expect(await rejection(Promise.resolve(theirs.request("nope", [])))).toMatchObject({ code: -32601 });
  });
});
