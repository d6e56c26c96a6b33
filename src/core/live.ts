/** Messages that a newer message makes obsolete: the options of `notify`, and the messages that wait for a slow reader. */
import type { Connection } from "./connection.js";
import { clearDeadline, setDeadline, type Expiring } from "./deadlines.js";
import { expected } from "./errors.js";
import { checkOptions, must, oneOf, optional, type Checked } from "./options.js";
import { SendQueue, type LatestHandle } from "./send-queue.js";

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

/** How often a slow reader is checked. */
const CHECK_MS = 20;

/**
 * The newest messages for a slow reader whose transport queues nothing, such as a client that is not reciproc. They are sent when the
 * reader has caught up, or right before the next other message, so that the order is kept.
 */
export class KeptMessages extends SendQueue implements Expiring {
  deadline = 0;
  readonly #connection: Connection;

  constructor(connection: Connection) {
    super();
    this.#connection = connection;
    setDeadline(this, CHECK_MS);
  }

  expire(): void {
    if (this.#connection.isLow) this.flush();
    else setDeadline(this, CHECK_MS);
  }

  /** Sends all messages. The connection needs this object no longer. */
  flush(): void {
    const connection = this.#connection;
    connection.kept = undefined;
    clearDeadline(this);
    for (const [handle, text] of this) (handle as LatestHandle).sendKept(connection, text);
  }
}
