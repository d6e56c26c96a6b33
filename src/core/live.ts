/** The options of `notify`, for messages that a newer message makes obsolete. */
import { expected } from "./errors.js";
import { checkOptions, must, oneOf, optional, type Checked } from "./options.js";

/** The options of `notify`, for a message that a newer one makes obsolete. At most one of the two may be given. */
export interface LiveOptions {
  /**
   * Sends the message only if the peer has a socket, nothing is queued for it, and less than an eighth of `limits.maxUnsentBytes`
   * is unsent. Drops the message otherwise. No statistic counts it as a loss, and no `missed` reports it. Default false.
   */
  volatile?: boolean | undefined;
  /**
   * A key of at most 256 characters. While the peer cannot be sent to, because it is suspended or reads too slowly, only the
   * newest message of each method and key is queued, at its own place in the order of messages. At most 1,024 keys are queued for
   * a peer: beyond that, the oldest message is dropped, and reported as `missed`. Default: every message is queued.
   */
  latest?: string | undefined;
}

const LONGEST_KEY = 256;
const isKey = (value: unknown): boolean => typeof value === "string" && value.length <= LONGEST_KEY;

/** The checks of these options. */
export const LIVE_OPTIONS = {
  volatile: optional(oneOf(true, false)),
  latest: optional(must<string>(`a string of at most ${LONGEST_KEY} characters`, isKey)),
};

/** Checks the options of `notify`. Throws a `TypeError` that names the option, the rule and the value. */
export function checkLive<T extends typeof LIVE_OPTIONS>(options: object | undefined, table: T): Checked<T> {
  const checked = checkOptions("options", options, table);
  if (checked.volatile !== true || checked.latest === undefined) return checked;
  throw expected("latest", "absent beside `volatile`", checked.latest);
}
