/** The Agent Client Protocol's own SDK as client or agent on one end of a WebSocket, and a reciproc peer on the other. */
import { AcpServer } from "@agentclientprotocol/sdk/experimental/server";
import { createNodeWebSocketUpgradeHandler } from "@agentclientprotocol/sdk/experimental/node";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import type { AgentApp, ClientApp, ClientConnection } from "@agentclientprotocol/sdk";
import { createServer } from "node:http";
import { expect, onTestFinished, vi } from "vitest";
import { WebSocketServer } from "ws";
import { acp, connect, serve, type AnyMethods, type AnyPeer, type NodeConnectOptions } from "../../../src/node.js";
import { inspect } from "../../../src/peer/peer.js";
import { listening } from "../../support/network.js";
import { expectEmpty, type AnyOptions } from "../../support/pair.js";
import { turn } from "../../support/turns.js";
import { TappedWebSocket } from "../support/tapped.js";

/** Both ends of the wire. Disposing closes both, and asserts that no state and no unread error is left. */
export interface Joined extends AsyncDisposable {
  readonly peer: AnyPeer;
  readonly wire: TappedWebSocket;
  /** Returns the `error` events of the peer since the last call. */
  takeErrors(): unknown[];
  /** Returns the console output of the SDK since the last call. */
  takeComplaints(): unknown[][];
}

type Methods = NonNullable<AnyOptions["methods"]>;

/** Connects the SDK's client to a reciproc agent. */
export async function theirClient(app: ClientApp, methods: Methods): Promise<Joined & { theirs: ClientConnection }> {
  const complaints = listenToConsole();
  const server = await serve<AnyMethods>({ port: 0, dialect: acp, methods });
  const opened = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
  let wire!: TappedWebSocket;
  const Wire = function (...args: unknown[]): TappedWebSocket {
    return (wire = new TappedWebSocket(...args));
  };
  const theirs = app.connect(createWebSocketStream(server.url, { WebSocket: Wire as never }));
  return { ...joined(await opened, wire, complaints, () => server.close()), theirs };
}

/** Connects a reciproc client to the SDK's agent. */
export async function theirAgent(
  app: AgentApp,
  methods: Methods = {},
  options: NodeConnectOptions = {},
): Promise<Joined> {
  const complaints = listenToConsole();
  const http = await listening(createServer());
  const webSockets = new WebSocketServer({ noServer: true, WebSocket: TappedWebSocket });
  const agents = new AcpServer({ agent: app });
  http.server.on("upgrade", createNodeWebSocketUpgradeHandler(agents, webSockets));
  const peer: AnyPeer = await connect(`${http.url}/acp`, { link: "plain", dialect: acp, methods, ...options });
  const [wire] = webSockets.clients as Set<TappedWebSocket>;
  return joined(peer, wire!, complaints, async () => {
    await agents.close();
    await http[Symbol.asyncDispose]();
  });
}

function joined(peer: AnyPeer, wire: TappedWebSocket, complaints: unknown[][], stop: () => Promise<void>): Joined {
  const errors: unknown[] = [];
  peer.on("error", (error) => errors.push(error));
  return {
    peer,
    wire,
    takeErrors: () => errors.splice(0),
    takeComplaints: () => complaints.splice(0),
    async [Symbol.asyncDispose]() {
      await peer.close();
      await stop();
      await turn();
      expectEmpty(peer);
      expect(inspect(peer)).toMatchObject({ malformed: 0 });
      expect(errors).toEqual([]);
      expect(complaints).toEqual([]);
    },
  };
}

/** The SDK reports messages that it does not understand there. */
function listenToConsole(): unknown[][] {
  const complaints: unknown[][] = [];
  for (const level of ["error", "warn"] as const) {
    const spy = vi.spyOn(console, level).mockImplementation((...args) => void complaints.push(args));
    onTestFinished(() => spy.mockRestore());
  }
  return complaints;
}
