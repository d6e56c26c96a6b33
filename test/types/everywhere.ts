// The entry for every runtime, with ES2020 and the DOM, and without types of Node or React.
import { connect, pair, parseMessage, RpcError } from "reciproc";

export async function used(): Promise<unknown[]> {
  const peer = await connect("wss://example.org/rpc", { methods: { ask: () => true } });
  return [peer, pair({}, {}), parseMessage("{}"), new RpcError(1, "declined", undefined, { cause: peer })];
}
