/** What the commands that listen have in common: telling why somebody was refused, and why they cannot listen. */
import type { IncomingMessage } from "node:http";
import type { Refusal } from "../server/upgrade.js";
import type { Args, OptionName } from "./args.js";
import { printable, type Output } from "./output.js";

export const DEFAULT_PORT = 3000;

/** By the names that the server has for its options. A map: what is looked up comes from a request's headers, too. */
const FLAGS = new Map<string, OptionName>([
  ["hosts", "allow-host"],
  ["limits.maxConnections", "max-connections"],
  ["origins", "allow-origin"],
  ["path", "path"],
]);

/** Tells of a refused connection in one line, with the option that would let it in where the command takes it. */
export function tellRefusal(
  stderr: Output,
  { status, reason }: Refusal,
  { socket }: IncomingMessage,
  options: readonly OptionName[],
): void {
  const named = reason.replace(/`([\w.]+)`/g, (quoted, name: string) => {
    const flag = FLAGS.get(name);
    return flag !== undefined && options.includes(flag) ? `--${flag}` : quoted;
  });
  stderr.alarm(printable(`refused ${socket.remoteAddress ?? "a connection"}: ${status}, ${named}`));
}

/** Tells why it cannot listen where it was asked to. */
export function tellCannotListen(
  stderr: Output,
  error: NodeJS.ErrnoException,
  { host, port = DEFAULT_PORT }: Args,
): void {
  const reason = error.code === "EADDRINUSE" ? "the address is in use" : error.message;
  stderr.alarm(printable(`cannot listen on ${host ?? "127.0.0.1"}:${port}: ${reason}`));
}
