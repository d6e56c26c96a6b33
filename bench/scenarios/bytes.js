/** Bytes: messages of 1 MB, and an upload of 20 MB in parts. */
import { check, perSecond } from "../load.js";
import { more } from "./metric.js";

const MB = 1_000_000;
const PART_BYTES = 64 * 1024;
/** An upload takes tens of milliseconds, so a round has several. */
const LEAST_MS = 300;

export const bytes = [
  scenario("bytes-1m", "1 MB of bytes, one message at a time", MB, ({ put }, peer, data) => put(peer, data)),
  scenario("upload-20m", "Upload of 20 MB in parts of 64 KiB", 20 * MB, ({ upload }, peer, data) =>
    upload(peer, partsOf(data)),
  ),
];

function scenario(name, title, length, send) {
  return {
    name,
    title,
    kind: "bytes",
    metrics: [more("rate", "MB/s")],
    async run({ connect, budget, ...contender }) {
      const [peer] = await connect(1);
      const data = Uint8Array.from({ length }, (_, i) => i * 7);
      const round = async () => {
        check(await send(contender, peer, data), length, "the number of bytes");
        return length / MB;
      };
      await perSecond(budget.warmUpMs, round);
      return { rate: await perSecond(Math.max(budget.ms, LEAST_MS), round) };
    },
  };
}

/** Yields the parts of an upload, as a file is read. */
async function* partsOf(data) {
  for (let at = 0; at < data.length; at += PART_BYTES) yield data.subarray(at, at + PART_BYTES);
}
