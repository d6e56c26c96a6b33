/** Handlers that wait to be cancelled. */
import type { Context } from "../../src/index.js";
import { notification, rawPeer, type RawPeer } from "../support/raw.js";
import { gate, type Gate } from "../support/turns.js";

export const CANCELLED = [-32800, "Request cancelled"] as const;
export const cancel = (id: unknown): object => notification("$/cancelRequest", { id });

/** Rejects with the reason when the signal aborts. */
export function untilAborted({ signal }: Context): Promise<never> {
  return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

/** Returns a peer whose `wait` ends when it is aborted, and whose `stay` ignores the abort and ends as `open` decides. */
export function waiting(
  options: Parameters<typeof rawPeer>[0] = {},
): RawPeer & { contexts: Context[]; open: Gate<unknown> } {
  const contexts: Context[] = [];
  const open = gate<unknown>();
  const raw = rawPeer({
    ...options,
    methods: {
      wait: (_params, context) => (contexts.push(context), untilAborted(context)),
      stay: (_params, context) => (contexts.push(context), open.promise),
      now: () => "at once",
      ...options.methods,
    },
  });
  return { ...raw, contexts, open };
}
