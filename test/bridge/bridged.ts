/** A bridge over a real connection, and what the tests ask of processes. */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { AddressInfo, Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { expect, onTestFinished } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import { bridge, type BridgeEnd, type BridgeOptions } from "../../src/bridge/bridge.js";
import { stranger, type Stranger } from "../support/network.js";

export const COMMAND = fileURLToPath(new URL("command.mjs", import.meta.url));

/** How long the server's `ws` waits for the answer to a close, unless a test says otherwise. */
export const CLOSE_TIMEOUT_MS = 1000;

/** A client, the server's end of its connection, and the bridge between that and a command. */
export interface Bridged extends Stranger {
  readonly server: WebSocket;
  /** The connection below that. */
  readonly raw: Socket;
  readonly over: Promise<BridgeEnd>;
  /** What the command wrote to its standard error. */
  stderr(): string;
  /** Resolves when that holds `wanted`. */
  untilStderr(wanted: string): Promise<void>;
  /** The first message, parsed. It is taken from what was received. */
  greeting(): Promise<{ pid: number; helper: number }>;
}

/** For commands that do not end by themselves. Those that do get the long one, however busy the machine is. */
export const SHORT = { graceMs: 200 };

/** Bridges a connection to a command of `command.mjs`. Framing is "lines" unless the command is told "lsp". */
export async function bridged(
  args: readonly string[],
  given: Partial<BridgeOptions> = {},
  closeTimeout = CLOSE_TIMEOUT_MS,
): Promise<Bridged> {
  const options = { port: 0, host: "127.0.0.1", perMessageDeflate: false, closeTimeout };
  const http = new WebSocketServer(options);
  onTestFinished(() => {
    http.close();
  });
  await once(http, "listening");
  let stderr = "";
  const listeners = new Set<() => void>();
  const joined = new Promise<Pick<Bridged, "server" | "raw" | "over">>((resolve) => {
    http.on("connection", (server, { socket: raw }) => {
      const over = bridge(server, {
        command: process.execPath,
        args: [COMMAND, ...args],
        framing: args.includes("lsp") ? "lsp" : "lines",
        graceMs: 15_000,
        stderr: (chunk) => {
          stderr += chunk.toString();
          for (const listener of listeners) listener();
        },
        ...given,
      });
      over.catch(() => {});
      resolve({ server, raw, over });
    });
  });
  const client = await stranger(`ws://127.0.0.1:${(http.address() as AddressInfo).port}`);
  const { server, raw, over } = await joined;
  onTestFinished(async () => {
    client.webSocket.terminate();
    await over.catch(() => {});
  });
  return {
    ...client,
    server,
    raw,
    over,
    stderr: () => stderr,
    untilStderr: (wanted) =>
      new Promise((resolve) => {
        const look = (): void => {
          if (stderr.includes(wanted)) resolve();
        };
        listeners.add(look);
        look();
      }),
    greeting: async () => {
      if (client.received.length === 0) await once(client.webSocket, "message");
      return JSON.parse(client.received.shift()!) as { pid: number; helper: number };
    },
  };
}

/** Whether a process runs. One that has ended and was not waited for by its new parent does not. */
export function runs(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  return !zombie(pid);
}

function zombie(pid: number): boolean {
  try {
    return / Z /.test(readFileSync(`/proc/${pid}/stat`, "latin1").replace(/\(.*\)/s, ""));
  } catch {
    // No such directory, or no Linux.
    return false;
  }
}

/** Asks again and again until the expectation holds, with time enough for a busy machine. */
export function eventually<T>(read: () => T, interval = 50) {
  return expect.poll(read, { interval, timeout: 15_000 });
}

/** Waits until a number has not changed for a while, and answers it. */
export async function settled(read: () => number): Promise<number> {
  let last = NaN;
  const isSame = (): boolean => last === (last = read());
  await eventually(isSame, 300).toBe(true);
  return last;
}
