/** The options of a bridge, and their check. */
import { LONGEST_DELAY_MS } from "../core/deadlines.js";
import { expected } from "../core/errors.js";
import { checkKnown, checkTimeout } from "../core/options.js";
import { FRAMINGS, type FramingName } from "./framing.js";

/** What to put behind a WebSocket, and how. */
export interface BridgeOptions {
  /** The program, looked up in `PATH`. No shell reads it. */
  command: string;
  /** Its arguments. */
  args?: readonly string[] | undefined;
  /** How messages stand on its pipes: `"lsp"` behind a `Content-Length` header, `"lines"` one JSON a line. Default `"lsp"`. */
  framing?: FramingName | undefined;
  /** The directory it runs in. Default: that of this process. */
  cwd?: string | undefined;
  /** Its environment, whole. Default: that of this process. */
  env?: NodeJS.ProcessEnv | undefined;
  /**
   * Longest message, in bytes of UTF-8. A longer one from the WebSocket closes it with 1009, a longer one from the command
   * with 1011. Default 16 MiB (an editor opens files and a language server lists symbols beyond 1 MiB), at most 256 MiB. The
   * `maxPayload` of the WebSocket's own server must not be more: what exceeds it is gathered before it is refused.
   */
  maxMessageBytes?: number | undefined;
  /**
   * In milliseconds, how long the command may take to end when the WebSocket has: its standard input ends, so much later it
   * gets SIGTERM, and so much later again SIGKILL. Default 2,000.
   */
  graceMs?: number | undefined;
  /**
   * How often the WebSocket is pinged, in milliseconds. While the command does not read, the WebSocket is not read either, and
   * writing to it is the only way to learn that the other side is gone. Default 25,000.
   */
  pingMs?: number | undefined;
  /** Where the command's standard error goes: this process's own, nowhere, or to a function, in pieces of any size. Default `"inherit"`. */
  stderr?: "inherit" | "ignore" | ((chunk: Buffer) => void) | undefined;
  /** Ends both when it aborts; the WebSocket with 1001. */
  signal?: AbortSignal | undefined;
  /**
   * Ends the command's standard input when it aborts, behind what came before: a command that then finishes what it was asked
   * and exits has all its answers delivered, and the WebSocket is closed with 1001. After `drainMs` it is as with `signal`.
   */
  drain?: AbortSignal | undefined;
  /** In milliseconds. Default 30,000. */
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
/** What a message may have unless it is said otherwise. */
export const DEFAULT_MESSAGE_BYTES = 16 * MIB;
/** Far below where `ws` stops checking (`maxPayload` is an int32 there). */
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

/** Throws a `TypeError` that names the option, the rule and the value. */
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

/** Longer delays do not fit Node's timers, which would fire at once. */
function checkDelay(name: string, value: number): number {
  return Math.min(checkTimeout(name, value), LONGEST_DELAY_MS);
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}
