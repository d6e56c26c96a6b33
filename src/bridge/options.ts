/** Checks the options of a bridge. */
import { LONGEST_DELAY_MS } from "../base/deadlines.js";
import {
  any,
  anySignal,
  checkOptions,
  must,
  optional,
  positive,
  type Check,
  type Checked,
} from "../message/options.js";
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
  /** The destination of the command's standard error: that of this process, none, or a function that gets chunks of any size. If the
   * function throws or rejects, the process warns once. Default `"inherit"`. */
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

const MIB = 2 ** 20;
/** The default of `maxMessageBytes`. */
export const DEFAULT_MESSAGE_BYTES = 16 * MIB;
/** Far below the limit of `ws`, whose `maxPayload` is an int32. */
export const MOST_MESSAGE_BYTES = 256 * MIB;

const isText = (value: unknown): boolean => typeof value === "string";
const isTexts = (value: unknown): boolean => Array.isArray(value) && value.every(isText);
const isCount = (value: unknown): boolean =>
  Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MOST_MESSAGE_BYTES;
const isStderr = (value: unknown): boolean => value === "inherit" || value === "ignore" || typeof value === "function";

const BRIDGE_OPTIONS = {
  command: must<string>("a non-empty string", (value) => isText(value) && value !== ""),
  args: optional(must<readonly string[]>("a list of strings", isTexts), []),
  framing: optional(
    must<FramingName>('"lsp" or "lines"', (value) => Object.hasOwn(FRAMINGS, value)),
    "lsp" as const,
  ),
  cwd: any as Check<string | undefined>,
  env: any as Check<NodeJS.ProcessEnv | undefined>,
  maxMessageBytes: optional(
    must<number>(`a whole number from 1 to ${MOST_MESSAGE_BYTES}`, isCount),
    DEFAULT_MESSAGE_BYTES,
  ),
  graceMs: optional(delay, 2_000),
  pingMs: optional(delay, 25_000),
  stderr: optional(
    must<NonNullable<BridgeOptions["stderr"]>>('"inherit", "ignore" or a function', isStderr),
    "inherit" as const,
  ),
  signal: optional(anySignal),
  drain: optional(anySignal),
  drainMs: optional(delay, 30_000),
};

/** The options after checking. */
export type CheckedOptions = Checked<typeof BRIDGE_OPTIONS>;

/** Returns the options with their defaults. Throws a `TypeError` that names the option, the rule and the value. */
export function checkBridgeOptions(options: BridgeOptions): CheckedOptions {
  return checkOptions("options", options, BRIDGE_OPTIONS);
}

/** Returns a checked delay, cut to the longest of Node's timers, which fire at once for a longer one. */
function delay(value: unknown, name: string): number {
  return Math.min(positive(value, name), LONGEST_DELAY_MS);
}
