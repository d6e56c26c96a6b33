/** Messages of the commands that listen: why a connection was refused, and why the command cannot listen. */
import type { IncomingMessage } from "node:http";
import type { Refusal } from "../server/upgrade.js";
import type { Args, OptionName } from "./args.js";
import type { Output } from "./output.js";

/** The port of a command that listens, without `--port`. */
export const DEFAULT_PORT = 3000;

/** Flags by the server's names of its options. A Map, because some looked-up names come from request headers. */
const FLAGS = new Map<string, OptionName>([
  ["hosts", "allow-host"],
  ["limits.maxConnections", "max-connections"],
  ["origins", "allow-origin"],
  ["path", "path"],
]);

/** Prints a refused connection in one line, with the flag that would accept it if the command has that flag. */
export function printRefusal(
  stderr: Output,
  { status, reason }: Refusal,
  { socket }: IncomingMessage,
  options: readonly OptionName[],
): void {
  const named = reason.replace(/`([\w.]+)`/g, (quoted, name: string) => {
    const flag = FLAGS.get(name);
    return flag !== undefined && options.includes(flag) ? `--${flag}` : quoted;
  });
  stderr.alarm(`refused ${socket.remoteAddress ?? "a connection"}: ${status}, ${named}`);
}

/** Prints why the command cannot listen on the requested address. */
export function printListenError(
  stderr: Output,
  error: NodeJS.ErrnoException,
  { host, port = DEFAULT_PORT }: Args,
): void {
  const reason = error.code === "EADDRINUSE" ? "the address is in use" : error.message;
  stderr.alarm(`cannot listen on ${host ?? "127.0.0.1"}:${port}: ${reason}`);
}
