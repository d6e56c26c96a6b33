/** Checks the options of a bridge. */
import { LONGEST_DELAY_MS } from "../core/deadlines.js";
import { expected } from "../core/errors.js";
import { checkKnown, positive } from "../core/options.js";
import { FRAMINGS, type FramingName } from "./framing.js";

/** The command to put behind a WebSocket, and the limits of the bridge. */
export interface BridgeOptions {
  /** The program, looked up in `PATH`. It is not run in a shell. */
  command: string;
  /** Its arguments. */
  args?: readonly string[] | undefined;
  /** The framing on its pipes: `"lsp"` is a `Content-Length` header before each message, `"lines"` one JSON a line. Default `"lsp"`. */
  framing?: FramingName | undefined;
  /** Its working directory. Default: that of this process. */
  cwd?: string | undefined;
  /** Its complete environment. Default: that of this process. */
  env?: NodeJS.ProcessEnv | undefined;
  /**
   * Longest message, in bytes of UTF-8. A longer one from the WebSocket closes it with 1009, a longer one from the command
   * with 1011. Default 16 MiB (an editor opens files and a language server lists symbols beyond 1 MiB), at most 256 MiB. The
   * `maxPayload` of the WebSocket's server must not be larger: the bridge refuses a longer message only after it was buffered.
   */
  maxMessageBytes?: number | undefined;
  /**
   * When the WebSocket ends, the command's standard input ends. The command gets SIGTERM after this time, and SIGKILL after
   * this time again. In milliseconds. Default 2,000.
   */
  graceMs?: number | undefined;
  /**
   * The interval between WebSocket pings, in milliseconds. While the command does not read, the bridge does not read the
   * WebSocket, and only a write can detect that the client is gone. Default 25,000.
   */
  pingMs?: number | undefined;
  /** The destination of the command's standard error: that of this process, none, or a function that gets chunks of any size. Default `"inherit"`. */
  stderr?: "inherit" | "ignore" | ((chunk: Buffer) => void) | undefined;
  /** When it aborts, the bridge ends the command, and closes the WebSocket with 1001. */
  signal?: AbortSignal | undefined;
  /**
   * When it aborts, the bridge ends the command's standard input after all earlier messages. If the command then exits, all its
   * output is delivered, and the WebSocket is closed with 1001. After `drainMs` the bridge acts as if `signal` had aborted.
   */
  drain?: AbortSignal | undefined;
  /** How long the command may run after `drain` aborted, in milliseconds. Default 30,000. */
  drainMs?: number | undefined;
}

/** The options after checking. */
export interface CheckedOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly framing: FramingName;
  readonly cwd: string | undefined;
  readonly env: NodeJS.ProcessEnv | undefined;
  readonly maxMessageBytes: number;
  readonly graceMs: number;
  readonly pingMs: number;
  readonly stderr: NonNullable<BridgeOptions["stderr"]>;
  readonly signal: AbortSignal | undefined;
  readonly drain: AbortSignal | undefined;
  readonly drainMs: number;
}

const MIB = 2 ** 20;
/** The default of `maxMessageBytes`. */
export const DEFAULT_MESSAGE_BYTES = 16 * MIB;
/** Far below the limit of `ws`, whose `maxPayload` is an int32. */
export const MOST_MESSAGE_BYTES = 256 * MIB;

const KNOWN: Readonly<Record<keyof BridgeOptions, 0>> = {
  command: 0,
  args: 0,
  framing: 0,
  cwd: 0,
  env: 0,
  maxMessageBytes: 0,
  graceMs: 0,
  pingMs: 0,
  stderr: 0,
  signal: 0,
  drain: 0,
  drainMs: 0,
};

/** Returns the options with their defaults. Throws a `TypeError` that names the option, the rule and the value. */
export function checkOptions(options: BridgeOptions): CheckedOptions {
  checkKnown("options", options, KNOWN);
  const { command, args = [], framing = "lsp", maxMessageBytes = DEFAULT_MESSAGE_BYTES, stderr = "inherit" } = options;
  if (!isText(command) || command === "") throw expected("command", "a non-empty string", command);
  if (!Array.isArray(args) || !args.every(isText)) throw expected("args", "a list of strings", args);
  if (!Object.hasOwn(FRAMINGS, framing)) throw expected("framing", '"lsp" or "lines"', framing);
  if (!Number.isInteger(maxMessageBytes) || maxMessageBytes < 1 || maxMessageBytes > MOST_MESSAGE_BYTES)
    throw expected("maxMessageBytes", `a whole number from 1 to ${MOST_MESSAGE_BYTES}`, maxMessageBytes);
  if (stderr !== "inherit" && stderr !== "ignore" && typeof stderr !== "function")
    throw expected("stderr", '"inherit", "ignore" or a function', stderr);
  return {
    command,
    args,
    framing,
    cwd: options.cwd,
    env: options.env,
    maxMessageBytes,
    graceMs: checkDelay("graceMs", options.graceMs ?? 2_000),
    pingMs: checkDelay("pingMs", options.pingMs ?? 25_000),
    stderr,
    signal: options.signal,
    drain: options.drain,
    drainMs: checkDelay("drainMs", options.drainMs ?? 30_000),
  };
}

/** Returns a checked delay, cut to the longest of Node's timers, which fire at once for a longer one. */
function checkDelay(name: string, value: number): number {
  return Math.min(positive(value, name), LONGEST_DELAY_MS);
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}
