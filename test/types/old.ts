// The entry for every runtime, with the oldest libraries that its declarations need.
import { connect, pair, RpcError } from "reciproc";

export async function used(): Promise<unknown[]> {
  const peer = await connect("wss://example.org/rpc", { methods: { ask: () => true } });
  return [peer, pair({}, {}), new RpcError(1, "declined", undefined, { cause: peer })];
}
