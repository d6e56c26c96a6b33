/** A connection of vscode-jsonrpc over vscode-ws-jsonrpc, joined with a reciproc peer. Either of them may be the client. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { expect } from "vitest";
import type { Logger, MessageConnection } from "vscode-jsonrpc";
import { createWebSocketConnection, listen, toSocket } from "vscode-ws-jsonrpc";
import { WebSocketServer } from "ws";
import { connect, serve, type AnyMethods, type AnyPeer } from "../../../src/node.js";
import { inspect } from "../../../src/peer/peer.js";
import { expectEmpty, type AnyOptions } from "../../support/pair.js";
import { turn } from "../../support/turns.js";
import { TappedWebSocket } from "../support/tapped.js";

/** Both ends. Disposing closes them, and asserts that no state and no unread error is left. */
export interface Joined extends AsyncDisposable {
  readonly peer: AnyPeer;
  readonly theirs: MessageConnection;
  /** The vscode-jsonrpc end of the wire. */
  readonly wire: TappedWebSocket;
  /** Returns the errors that vscode-jsonrpc logged since the last call. */
  takeComplaints(): string[];
  /** Returns the `error` events of the peer since the last call. */
  takeErrors(): unknown[];
  /** Resolves when each side has handled all messages of the other. Both must serve `sync`. */
  settled(): Promise<void>;
}

/** Joins a vscode-jsonrpc connection with a reciproc peer of these options. */
export type Join = (options: AnyOptions) => Promise<Joined>;

/** Connects a vscode-jsonrpc client to a reciproc server. */
export const theyDial: Join = async (options) => {
  const server = await serve<AnyMethods>({ port: 0, link: "plain", ...(options as object) });
  const opened = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
  const wire = new TappedWebSocket(server.url);
  const { logger, complaints } = listeningLogger();
  const theirs = await new Promise<MessageConnection>((resolve) => {
    listen({ webSocket: wire as never, logger, onConnection: resolve });
  });
  return joined(await opened, theirs, wire, complaints, () => server.close());
};

/** Connects a reciproc client to a vscode-jsonrpc server. */
export const weDial: Join = async (options) => {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1", WebSocket: TappedWebSocket });
  await once(server, "listening");
  const { logger, complaints } = listeningLogger();
  const accepted = new Promise<[MessageConnection, TappedWebSocket]>((resolve) => {
    server.on("connection", (wire: TappedWebSocket) => {
      resolve([createWebSocketConnection(toSocket(wire as never), logger), wire]);
    });
  });
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const peer: AnyPeer = await connect(url, { link: "plain", ...options });
  const [theirs, wire] = await accepted;
  return joined(peer, theirs, wire, complaints, () => new Promise((resolve) => server.close(() => resolve())));
};

function joined(
  peer: AnyPeer,
  theirs: MessageConnection,
  wire: TappedWebSocket,
  complaints: string[],
  stop: () => Promise<void>,
): Joined {
  const errors: unknown[] = [];
  peer.on("error", (error) => errors.push(error));
  theirs.onRequest("sync", () => true);
  theirs.listen();
  return {
    peer,
    theirs,
    wire,
    takeComplaints: () => complaints.splice(0),
    takeErrors: () => errors.splice(0),
    async settled() {
      await theirs.sendRequest("sync");
      await peer.request("sync");
    },
    async [Symbol.asyncDispose]() {
      await peer.close();
      await stop();
      await turn();
      expectEmpty(peer);
      expect(inspect(peer)).toMatchObject({ malformed: 0 });
      expect(theirs.hasPendingResponse()).toBe(false);
      expect(complaints).toEqual([]);
      expect(errors).toEqual([]);
    },
  };
}

function listeningLogger(): { logger: Logger; complaints: string[] } {
  const complaints: string[] = [];
  const note = (message: string): void => void complaints.push(message);
  return { logger: { error: note, warn: note, info: () => {}, log: () => {} }, complaints };
}
