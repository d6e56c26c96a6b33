/** Free ports for other programs, and for servers that must begin again on the same port. */
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:net";

/** Below the ports that systems give to outgoing connections: none takes a port whose server is away. No browser refuses one of these. */
const RANGE = [11_000, 32_000] as const;

/** Returns a port of 127.0.0.1 that is free now. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(...RANGE);
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
