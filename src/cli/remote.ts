/** What `call`, `notify` and `listen` have in common: a connection, and what to say when it fails. */
import { connect, type Around, type Peer } from "../node.js";
import { hostAndPort, type Args } from "./args.js";
import type { Io } from "./command.js";
import { failureOf, tellFailure } from "./failure.js";

/** The most that the limit takes: whoever types a command wants its answer, whatever its size. */
const MAX_MESSAGE_BYTES = 256 * 2 ** 20;

/**
 * Connects, lets `use` work with the peer and answer the exit code, and closes. A failure of either is told. `comesBack`: also
 * after its connection was lost, with any server; otherwise that is the end.
 */
export async function withPeer(
  url: URL,
  args: Args,
  io: Io,
  use: (peer: Peer) => Promise<number>,
  { around, comesBack = false }: { around?: Around; comesBack?: boolean } = {},
): Promise<number> {
  try {
    const peer = await connect(url, {
      headers: args.headers,
      limits: { maxMessageBytes: MAX_MESSAGE_BYTES },
      around,
      reconnect: comesBack,
      link: args.plain ? "plain" : "packed",
      ...(args.timeoutMs !== undefined && { openTimeoutMs: args.timeoutMs, timeoutMs: args.timeoutMs }),
    });
    try {
      return await use(peer);
    } finally {
      // Not awaited: a server that leaves the close unanswered must not keep the prompt back.
      void peer.close();
    }
  } catch (error) {
    return tellFailure(failureOf(error, hostAndPort(url)), io, args.json);
  }
}
