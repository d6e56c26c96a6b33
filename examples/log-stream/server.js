/** Streams the lines of a file, and the lines that are appended to it: `node server.js FILE`. */
import { createReadStream } from "node:fs";
import { open, stat } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { serve } from "reciproc/node";
import { z } from "zod";

const [path = "app.log"] = process.argv.slice(2);
await (await open(path, "a")).close(); // creates the file if there is none

const server = await serve({
  port: Number(process.env.PORT ?? 3000),
  schemas: { follow: z.object({ after: z.int().min(0), text: z.string().default("") }) },
  methods: {
    size: async () => (await stat(path)).size,

    /**
     * Yields each line behind the position `after`, in bytes, with the position behind the line. With `text`, yields only lines that
     * contain it. It is read no faster than its reader reads, and ends when the reader stops.
     */
    async *follow({ after, text }, { signal }) {
      for (let position = after; ; await delay(100, undefined, { signal })) {
        if ((await stat(path)).size < position) position = 0; // the file was replaced by a shorter one
        for await (const line of linesBehind(position)) {
          position = line.position;
          if (line.text.includes(text)) yield line;
        }
      }
    },
  },
});
server.on("error", console.error);
console.log(`log of ${path}: ${server.url}`);

/** Yields each complete line of the file behind a position, with the position behind it. */
async function* linesBehind(position) {
  let rest = Buffer.alloc(0);
  for await (const part of createReadStream(path, { start: position })) {
    rest = Buffer.concat([rest, part]);
    for (let end; (end = rest.indexOf("\n")) >= 0; rest = rest.subarray(end + 1)) {
      position += end + 1;
      yield { text: rest.toString("utf8", 0, end), position };
    }
  }
}
process.once("SIGTERM", () => server.drain({ retryMs: 1_000 }));
