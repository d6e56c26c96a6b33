/** Reads a stream that the test serves as the other side. */
import { rawPeer, result, type RawPeer } from "../support/raw.js";
import { turn } from "../support/turns.js";
import { feed } from "./tailing.js";

/** The values that were read, and the outcome of reading: "end" or the error. */
export interface Read {
  readonly values: unknown[];
  readonly end: unknown[];
}

/** Reads a stream in the background, and records values and outcome. */
export function reading(raw: RawPeer, ...args: [params?: unknown, options?: object]): Read {
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

/** Reads a stream of a new peer in the background, and answers its call with these messages, one after the other. */
export async function readingFrom(...messages: object[]): Promise<Read & { raw: RawPeer }> {
  const raw = rawPeer();
  const read = reading(raw);
  await turn();
  await feed(raw, ...messages);
  return { raw, ...read };
}

/** Begins to read a stream of a new peer, and answers its call with this stream, if there is one. */
export async function beginReading(
  opening?: object,
  options?: object,
): Promise<{ raw: RawPeer; stream: AsyncIterator<unknown>; first: Promise<IteratorResult<unknown>> }> {
  const raw = rawPeer();
  const stream = raw.peer.stream("tail", undefined, options)[Symbol.asyncIterator]();
  const first = stream.next();
  await turn();
  if (opening !== undefined) await feed(raw, result(1, opening));
  return { raw, stream, first };
}
