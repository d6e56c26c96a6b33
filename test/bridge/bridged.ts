/** Imports `bridge/bridge`: the command line shows neither how a bridge has ended nor all its options. A bridge over a real connection, and queries about processes. */
import type { ChildProcess } from "node:child_process";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import { bridge, type BridgeEnd, type BridgeOptions } from "../../src/bridge/bridge.js";
import { bareHttp, plainPeer } from "../support/network.js";
import { passUntil } from "../support/time.js";

export { bridge, type BridgeEnd, type BridgeOptions };

export const COMMAND = fileURLToPath(new URL("command.mjs", import.meta.url));

type Ends = { server: WebSocket; raw: Socket; child: ChildProcess; over: Promise<BridgeEnd> };
export type Bridged = Awaited<ReturnType<typeof bridged>>;

/** Bridges a connection to a command of `command.mjs`, by the virtual clock. Framing is "lines" unless the command gets "lsp". */
export async function bridged(args: readonly string[], given: Partial<BridgeOptions> = {}) {
  const http = await bareHttp();
  onTestFinished(() => http[Symbol.asyncDispose]());
  const webSockets = new WebSocketServer({ server: http.server, perMessageDeflate: false });
  let stderr = "";
  let child!: ChildProcess;
  const onProcess = (made: unknown): void => void (child = (made as { process: ChildProcess }).process);
  const joined = new Promise<Ends>((resolve) => {
    webSockets.on("connection", (server, { socket: raw }) => {
      subscribe("child_process", onProcess);
      const over = bridge(server, {
        command: process.execPath,
        args: [COMMAND, ...args],
        framing: args.includes("lsp") ? "lsp" : "lines",
        stderr: (chunk) => (stderr += chunk.toString()),
        ...given,
      });
      unsubscribe("child_process", onProcess);
      over.catch(() => {});
      resolve({ server, raw, child, over });
    });
  });
  const client = await plainPeer(http.url);
  const ends = await joined;
  onTestFinished(async () => {
    client.webSocket.terminate();
    await passUntil(Promise.all([ends.over, client.closed]), 1_000);
  });
  return { ...client, ...ends, stderr: () => stderr };
}

/** Bridges a connection to a command that begins by writing its number, or that of its child process. */
export async function greeted(...given: Parameters<typeof bridged>): Promise<Bridged & { pid: number }> {
  const pair = await bridged(...given);
  const greeting = (await pair.next()) as { pid: number };
  pair.received.shift();
  return { ...pair, ...greeting };
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
