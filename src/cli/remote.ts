/** The connection of a command that connects, and the report of its failure. */
import { connect, type Peer, type PeerOptions as Options } from "../node.js";
import { authOf, methodsOf } from "./answers.js";
import { hostAndPort, UsageError, type Args } from "./args.js";
import type { Io } from "./command.js";
import { failureOf, printFailure } from "./failure.js";

/** The highest value of the limit: a user who types a command wants a response of any size. */
const MAX_MESSAGE_BYTES = 256 * 2 ** 20;

type PeerOptions = Pick<Options, "around"> & { reconnect?: boolean };

/**
 * Connects, calls `use` with the peer, and closes. Prints a failure of either. Returns the exit code. `reconnect`: whether the
 * peer reconnects after its connection was lost. Default false.
 */
export async function withPeer(
  url: URL,
  args: Args,
  io: Io,
  use: (peer: Peer) => Promise<number>,
  { around, reconnect = false }: PeerOptions = {},
): Promise<number> {
  if (args.plain && args.auth !== undefined)
    throw new UsageError("--auth needs the subprotocol reciproc.v1, which --plain does not offer");
  const auth = await authOf(args.auth);
  const { methods } = await methodsOf(args.answers);
  try {
    const peer = await connect(url, {
      headers: args.headers,
      auth,
      methods,
      limits: { maxMessageBytes: MAX_MESSAGE_BYTES },
      around,
      reconnect,
      link: args.plain ? "plain" : "packed",
      ...(args.timeoutMs !== undefined && { openTimeoutMs: args.timeoutMs, timeoutMs: args.timeoutMs }),
    });
    try {
      return await use(peer);
    } finally {
      // Not awaited: a server that does not answer the close must not delay the prompt.
      void peer.close();
    }
  } catch (error) {
    return printFailure(failureOf(error, hostAndPort(url)), io, args.json);
  }
}
