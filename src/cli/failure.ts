/** Failures of connections and calls: their messages, where they are printed, and their exit codes. */
import { STATUS_CODES } from "node:http";
import {
  ConnectError,
  ConnectionLostError,
  ProtocolError,
  RpcError,
  TimeoutError,
  TooLargeError,
  type CloseInfo,
} from "../node.js";
import { ExitCode, type Io } from "./command.js";
import { isWritable } from "./params.js";

/** A failure, ready to be printed. */
export interface Failure {
  readonly exitCode: number;
  /** One line for people. */
  readonly message: string;
  /** The `error` of `--json`. A numeric code comes from the other side, a string from reciproc. */
  readonly error: { code: number | string; message: string; data?: unknown; [more: string]: unknown };
}

/** Prints a failure: with `--json` in one line on standard output, else on standard error. Returns the exit code. */
export function printFailure(
  { exitCode, message, error: given }: Failure,
  { stdout, stderr }: Io,
  json: boolean,
): number {
  const error = isWritable(given) ? given : { ...given, data: "nested too deeply to be written" };
  if (json) stdout.line(JSON.stringify({ error }));
  else {
    stderr.alarm(message);
    if (error.data !== undefined) stderr.json(error.data);
  }
  return exitCode;
}

/** Returns the failure for an error of a connection to `where`. Rethrows any other error. */
export function failureOf(error: unknown, where: string): Failure {
  if (error instanceof RpcError) {
    const { code, message, data } = error;
    return { exitCode: ExitCode.CallFailed, message: `error ${code}: ${message}`, error: { code, message, data } };
  }
  if (error instanceof TimeoutError || error instanceof TooLargeError)
    return localFailure(ExitCode.CallFailed, error, error.message);
  if (error instanceof ProtocolError) {
    const failure = localFailure(ExitCode.CallFailed, error, `${where} broke the protocol: ${error.message}`);
    return { ...failure, error: { ...failure.error, data: error.raw } };
  }
  if (error instanceof ConnectError) {
    const failure = localFailure(ExitCode.NoConnection, error, `cannot connect to ${where}: ${reasonOf(error)}`);
    return { ...failure, error: { ...failure.error, status: error.status } };
  }
  if (error instanceof ConnectionLostError) {
    const { outcome, cause } = error;
    const consequence = outcome === "not-sent" ? "the call was not sent" : "the call may have run";
    const failure = localFailure(
      ExitCode.NoConnection,
      error,
      lostMessage(where, (cause as Error).message, consequence),
    );
    return { ...failure, error: { ...failure.error, outcome } };
  }
  throw error;
}

/** Returns the failure for a connection that ended unexpectedly. `consequence` is appended to the message. */
export function lost({ code, reason, error }: CloseInfo, where: string, consequence = ""): Failure {
  const how = error?.message ?? `closed with ${code}${reason && ` (${reason})`}`;
  return localFailure(ExitCode.NoConnection, { code: "CONNECTION_LOST" }, lostMessage(where, how, consequence));
}

/** Returns a message. 1006 means a socket that ended without a close frame (RFC 6455, section 7.1.5), so it is spelled out. */
function lostMessage(where: string, how: string, consequence: string): string {
  const words = how.replace(/^closed with 1006$/, "it ended without a close");
  return `lost the connection to ${where}: ${words}${consequence && `; ${consequence}`}`;
}

function localFailure(exitCode: number, { code }: { code: string }, message: string): Failure {
  return { exitCode, message, error: { code, message } };
}

const REASONS: Readonly<Record<string, string>> = {
  EAI_AGAIN: "the name cannot be looked up now",
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection reset",
  EHOSTUNREACH: "the host cannot be reached",
  ENETUNREACH: "the network cannot be reached",
  ENOTFOUND: "host not found",
  EPROTO: "the server does not speak TLS here",
  ETIMEDOUT: "no answer",
};

function reasonOf({ url, message, status, cause }: ConnectError): string {
  if (status !== undefined) {
    const hint = status === 401 ? " (credentials go into --header or --auth)" : "";
    return `the server answered HTTP ${status} ${STATUS_CODES[status] ?? ""}`.trimEnd() + hint;
  }
  const code = (cause as NodeJS.ErrnoException | undefined)?.code ?? "";
  // The prefix repeats the address.
  return REASONS[code] ?? message.replace(`could not connect to ${url}: `, "");
}
