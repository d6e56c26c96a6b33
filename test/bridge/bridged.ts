/** Imports `bridge/bridge`, because the command line sets neither `graceMs` nor `pingMs`: a bridge over a real connection, and queries about processes. */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { AddressInfo, Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import { bridge, type BridgeEnd, type BridgeOptions } from "../../src/bridge/bridge.js";
import { plainPeer, type PlainPeer } from "../support/network.js";

export { bridge, type BridgeEnd, type BridgeOptions };

export const COMMAND = fileURLToPath(new URL("command.mjs", import.meta.url));

/** A client, the server's end of its connection, and the bridge between that and a command. */
export interface Bridged extends PlainPeer {
  readonly server: WebSocket;
  /** The TCP connection of the client. */
  readonly raw: Socket;
  readonly over: Promise<BridgeEnd>;
  /** The standard error of the command. */
  stderr(): string;
}

/** For commands that end neither by themselves nor at the end of their input. Others get a long time, in case the machine is busy. */
export const SHORT = { graceMs: 100 };
/** For commands that must have time to write or to end at SIGTERM before the bridge goes further. */
export const PATIENT = { graceMs: 1_000 };

/** Bridges a connection to a command of `command.mjs`. Framing is "lines" unless the command gets "lsp". */
export async function bridged(args: readonly string[], given: Partial<BridgeOptions> = {}): Promise<Bridged> {
  // A client of the tests answers each close, however long it takes.
  const options = { port: 0, host: "127.0.0.1", perMessageDeflate: false, closeTimeout: 240_000 };
  const http = new WebSocketServer(options);
  onTestFinished(() => {
    http.close();
  });
  await once(http, "listening");
  let stderr = "";
  const joined = new Promise<Pick<Bridged, "server" | "raw" | "over">>((resolve) => {
    http.on("connection", (server, { socket: raw }) => {
      const over = bridge(server, {
        command: process.execPath,
        args: [COMMAND, ...args],
        framing: args.includes("lsp") ? "lsp" : "lines",
        graceMs: 15_000,
        stderr: (chunk) => (stderr += chunk.toString()),
        ...given,
      });
      over.catch(() => {});
      resolve({ server, raw, over });
    });
  });
  const client = await plainPeer(`ws://127.0.0.1:${(http.address() as AddressInfo).port}`);
  const { server, raw, over } = await joined;
  onTestFinished(async () => {
    client.webSocket.terminate();
    await over.catch(() => {});
  });
  return { ...client, server, raw, over, stderr: () => stderr };
}

/** Bridges a connection to a command that begins by writing its number, or that of its helper. */
export async function greeted(
  ...given: Parameters<typeof bridged>
): Promise<Bridged & { pid: number; helper: number }> {
  const pair = await bridged(...given);
  if (pair.received.length === 0) await once(pair.webSocket, "message");
  return { ...pair, ...(JSON.parse(pair.received.shift()!) as { pid: number; helper: number }) };
}

/** Returns true if the process runs. A zombie does not run. */
export function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
    // Without the name, which may contain anything.
    return (
      process.platform !== "linux" || !/ Z /.test(readFileSync(`/proc/${pid}/stat`, "latin1").replace(/\(.*\)/s, ""))
    );
  } catch {
    return false;
  }
}
