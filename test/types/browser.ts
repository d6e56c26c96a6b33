// The entry for every runtime, without Node types.
import { connect, pair, parseMessage, RpcError } from "reciproc";

const peer = await connect("wss://example.org/rpc", { methods: { ask: () => true } });
await using other = pair({}, {})[0];
export const used = [peer, other, parseMessage("{}"), RpcError];
