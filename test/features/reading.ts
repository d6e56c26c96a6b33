/** Reads a stream that the test serves as the other side. */
import type { RawPeer } from "../support/raw.js";

/** Reads a stream in the background, and records values and outcome. */
export function reading(
  raw: RawPeer,
  ...args: [params?: unknown, options?: object]
): { values: unknown[]; end: unknown[] } {
  const values: unknown[] = [];
  const end: unknown[] = [];
  const read = async (): Promise<void> => {
    for await (const value of raw.peer.stream("tail", ...args)) values.push(value);
  };
  read().then(
    () => end.push("end"),
    (error: unknown) => end.push(error),
  );
  return { values, end };
}
