/** Bytes: messages of 1 MB, and an upload of 20 MB in parts. */
import { check } from "../load.js";
import { more } from "./metric.js";

const MB = 1_000_000;
const PART_BYTES = 64 * 1024;
/** An upload takes tens of milliseconds, so a round has several. */
const LEAST_MS = 300;

export const bytes = [
  scenario("bytes-1m", "1 MB of bytes, one message at a time", MB, (peer, data) => peer.put(data)),
  scenario("upload-20m", "Upload of 20 MB in parts of 64 KiB", 20 * MB, (peer, data) => peer.upload(partsOf(data))),
];

function scenario(name, title, length, send) {
  return {
    name,
    title,
    kind: "bytes",
    metrics: [more("rate", "MB/s")],
    async run({ connect, budget }) {
      const [peer] = await connect(1);
      const data = Uint8Array.from({ length }, (_, i) => i * 7);
      await repeat(peer, data, send, budget.warmUpMs);
      return { rate: await repeat(peer, data, send, Math.max(budget.ms, LEAST_MS)) };
    },
  };
}

/** Sends the data again and again for `ms`. Returns the megabytes per second. */
async function repeat(peer, data, send, ms) {
  const started = performance.now();
  let sent = 0;
  do {
    check(await send(peer, data), data.length, "the number of bytes");
    sent += data.length;
  } while (performance.now() - started < ms);
  return sent / MB / ((performance.now() - started) / 1_000);
}

/** Yields the parts of an upload, as a file is read. */
async function* partsOf(data) {
  for (let at = 0; at < data.length; at += PART_BYTES) yield data.subarray(at, at + PART_BYTES);
}
