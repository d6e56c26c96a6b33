/** Free ports for other programs, and for servers that must begin again on the same port. */
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";

/**
 * The ports of this worker: no other worker of the run takes a port between the check and the start of its server. They are below
 * those that systems give to outgoing connections: none takes a port whose server is away. No browser refuses one of these.
 */
const FIRST = 11_000 + (Number(process.env["VITEST_POOL_ID"] ?? 0) % 64) * 320;
let next = randomInt(320);

/** Returns a port of 127.0.0.1 that is free now. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST + (next++ % 320);
    const server = createServer().listen(port, "127.0.0.1");
    const isFree = await once(server, "listening").then(
      () => true,
      (error: NodeJS.ErrnoException) => {
        if (error.code === "EADDRINUSE" || error.code === "EACCES") return false;
        throw error;
      },
    );
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
}
