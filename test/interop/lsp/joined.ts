/** A connection of vscode-jsonrpc over vscode-ws-jsonrpc, joined with a reciproc peer. Either of them may be the client. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { expect } from "vitest";
import type { Logger, MessageConnection } from "vscode-jsonrpc";
import { createWebSocketConnection, listen, toSocket } from "vscode-ws-jsonrpc";
import { WebSocketServer } from "ws";
import { connect, lsp, serve, type AnyMethods, type AnyPeer } from "../../../src/node.js";
import { joined, type Joined, type Methods } from "../support/sdk.js";
import { TappedWebSocket } from "../support/tapped.js";

/** Both ends. */
export interface JoinedLsp extends Joined {
  readonly theirs: MessageConnection;
  /** Resolves when each side has handled all messages of the other. */
  settled(): Promise<void>;
}

/** Joins a vscode-jsonrpc connection with a reciproc peer that serves these methods. */
export type Join = (methods?: Methods) => Promise<JoinedLsp>;

/** Connects a vscode-jsonrpc client to a reciproc server. */
export const joinClient: Join = async (methods = {}) => {
  const options = { port: 0, link: "plain", dialect: lsp, methods: { sync, ...methods } } as const;
  const server = await serve<AnyMethods>(options);
  const opened = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
  const wire = new TappedWebSocket(server.url);
  const complaints: string[] = [];
  const theirs = await new Promise<MessageConnection>((resolve) => {
    listen({ webSocket: wire as never, logger: loggerOf(complaints), onConnection: resolve });
  });
  return joinLsp(await opened, theirs, wire, complaints, () => server.close());
};

/** Connects a reciproc client to a vscode-jsonrpc server. */
export const joinServer: Join = async (methods = {}) => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", WebSocket: TappedWebSocket });
  await once(server, "listening");
  const complaints: string[] = [];
  const accepted = new Promise<[MessageConnection, TappedWebSocket]>((resolve) => {
    server.on("connection", (wire: TappedWebSocket) => {
      resolve([createWebSocketConnection(toSocket(wire as never), loggerOf(complaints)), wire]);
    });
  });
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const peer: AnyPeer = await connect(url, { link: "plain", dialect: lsp, methods: { sync, ...methods } });
  const [theirs, wire] = await accepted;
  return joinLsp(peer, theirs, wire, complaints, () => new Promise((resolve) => server.close(resolve)));
};

const sync = (): boolean => true;

function joinLsp(
  peer: AnyPeer,
  theirs: MessageConnection,
  wire: TappedWebSocket,
  complaints: string[],
  stop: () => Promise<unknown>,
): JoinedLsp {
  theirs.onRequest("sync", sync);
  theirs.listen();
  const ends = joined(peer, wire, complaints, stop);
  return {
    ...ends,
    theirs,
    async settled() {
      await theirs.sendRequest("sync");
      await peer.request("sync");
    },
    async [Symbol.asyncDispose]() {
      await ends[Symbol.asyncDispose]();
      expect(theirs.hasPendingResponse()).toBe(false);
    },
  };
}

function loggerOf(complaints: string[]): Logger {
  const note = (message: string): void => void complaints.push(message);
  return { error: note, warn: note, info: () => {}, log: () => {} };
}
