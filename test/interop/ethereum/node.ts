/** A reciproc server with the methods of an Ethereum node that wallets call. Heads are mined by the test. */
import { RpcError, serve, Subscriptions, type AnyPeer } from "../../../src/node.js";
import { gate, type Gate } from "../../support/turns.js";
import { Inbox } from "../support/inbox.js";

export const CHAIN_ID = 31_337;

/** A block's head, as `newHeads` pushes it. */
export interface Head {
  readonly number: string;
  readonly hash: string;
}

/** The node, and its recorded calls. */
export interface EthereumNode extends AsyncDisposable {
  readonly url: string;
  /** The number of open subscriptions. */
  readonly subscriptions: { readonly size: number };
  /** The subscribed topics. */
  readonly subscribed: Inbox;
  /** The unsubscribed ids. */
  readonly unsubscribed: Inbox;
  /** Every received request: `[method, id]`. */
  readonly requests: [method: string, id: unknown][];
  readonly peers: Inbox<AnyPeer>;
  /** Mines a block, and pushes its head to all subscribers of heads. */
  mine(): void;
  /** The result of `slow`, resolved by the test. */
  readonly slow: Gate<unknown>;
}

/** The behaviour of an unusual node. */
export interface Unusual {
  /** Heads that the handler pushes before the subscription is answered. */
  early?: number;
  /** Pushes those heads by `peer.notify`, without `Subscriptions`. */
  withoutHelp?: boolean;
}

const hash = (number: number): string => `0x${number.toString(16).padStart(64, "0")}`;
const head = (number: number): Head & Record<string, unknown> => ({
  number: `0x${number.toString(16)}`,
  hash: hash(number),
  parentHash: hash(Math.max(number - 1, 0)),
  nonce: "0x0000000000000000",
  timestamp: "0x65a0c000",
  gasLimit: "0x1c9c380",
  gasUsed: "0x0",
  difficulty: "0x0",
  baseFeePerGas: "0x7",
  extraData: "0x",
  logsBloom: `0x${"0".repeat(512)}`,
  miner: `0x${"0".repeat(40)}`,
  stateRoot: hash(0),
  receiptsRoot: hash(0),
  transactionsRoot: hash(0),
  sha3Uncles: hash(0),
  mixHash: hash(0),
  size: "0x200",
});

/** Starts a node. */
export async function startNode({ early = 0, withoutHelp = false }: Unusual = {}): Promise<EthereumNode> {
  let latest = 0;
  const requests: EthereumNode["requests"] = [];
  const peers = new Inbox<AnyPeer>();
  const subscribed = new Inbox();
  const unsubscribed = new Inbox();
  const slow = gate<unknown>();
  const listeners = new Set<(head: Head) => void>();
  const subscriptions = new Subscriptions<Head>({ method: "eth_subscription" });
  const errors: unknown[] = [];
  const mine = (): void => {
    const mined = head(++latest);
    for (const listen of listeners) listen(mined);
  };
  const server = await serve({
    port: 0,
    around: ({ direction, method, id }, next) => {
      if (direction === "incoming") requests.push([method, id]);
      return next();
    },
    methods: {
      eth_chainId: () => `0x${CHAIN_ID.toString(16)}`,
      net_version: () => String(CHAIN_ID),
      eth_blockNumber: () => head(latest).number,
      eth_getBlockByNumber: ([tag]) => ({
        ...head(tag === "latest" ? latest : Number(tag)),
        uncles: [],
        transactions: [],
      }),
      eth_getBalance: ([address, _tag]) => {
        if (address === `0x${"0".repeat(40)}`) throw new RpcError(4711, "no such account", { address });
        return "0xde0b6b3a7640000";
      },
      slow: () => slow.promise,
      async eth_subscribe([topic], context) {
        if (topic !== "newHeads") throw new RpcError(-32602, "no such topic", { topic });
        const { id, notify, signal } = subscriptions.open(context);
        listeners.add(notify);
        signal.addEventListener("abort", () => listeners.delete(notify));
        for (let i = 0; i < early; i++) {
          const mined = head(++latest);
          if (withoutHelp) context.peer.notify("eth_subscription", { subscription: id, result: mined });
          else notify(mined);
          await new Promise((resolve) => setImmediate(resolve));
        }
        subscribed.push(topic);
        return id;
      },
      eth_unsubscribe: ([id], { peer }) => {
        unsubscribed.push(id);
        return subscriptions.close(peer, id);
      },
    },
  });
  server.on("peer", peers.push);
  server.on("error", (error) => errors.push(error));
  return {
    url: server.url,
    subscriptions,
    subscribed,
    unsubscribed,
    requests,
    peers,
    mine,
    slow,
    async [Symbol.asyncDispose]() {
      slow.resolve(null);
      await server.close();
      if (errors.length > 0) throw new AggregateError(errors, "unexpected errors of the server");
    },
  };
}
