// The entry of every runtime, where there is no Node.
import { connect, pair, parseMessage, RpcError } from "reciproc";

const peer = await connect("wss://example.org/rpc", { methods: { ask: () => true } });
await using other = pair({}, {})[0];
export const used = [peer, other, parseMessage("{}"), RpcError];
