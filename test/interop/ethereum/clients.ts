/** Ethereum libraries behind one interface: ethers 6.17, viem 2.57.1 and web3-providers-ws 4.0.8. */
import { WebSocketProvider as EthersProvider } from "ethers";
import { createPublicClient, RpcRequestError, webSocket, type PublicClient } from "viem";
import { WebSocketProvider as Web3Provider } from "web3-providers-ws";

export const CHAIN_ID = 31_337;

/** An open client. It must end before its node, because some libraries reconnect. */
export interface EthereumClient extends AsyncDisposable {
  call(method: string, params?: unknown[]): Promise<any>;
  /** Passes the number of each new head to `onHead`. Some libraries return before the server has subscribed them. */
  subscribe(onHead: (number: number) => void): Promise<unknown>;
  readonly closed: Promise<unknown>;
}

export interface Ethereum {
  readonly open: (url: string) => Promise<EthereumClient>;
  /** Returns the error object that the server sent, of an error with which a call rejects. */
  readonly received: (error: any) => object;
  /** The error with which it rejects pending calls when the server closes. `undefined` if it leaves them pending. */
  readonly lost: object | undefined;
}

export const ethers: Ethereum = {
  async open(url) {
    // With a known network. Otherwise it would call the server first.
    const provider = new EthersProvider(url, CHAIN_ID);
    const socket = provider.websocket as unknown as WebSocket;
    return {
      call: (method, params = []) => provider.send(method, params),
      subscribe: (onHead) => provider.on("block", onHead),
      closed: new Promise((resolve) => socket.addEventListener("close", resolve)),
      [Symbol.asyncDispose]: () => provider.destroy(),
    };
  },
  received: ({ error }) => error,
  lost: undefined,
};

type ViemClient = PublicClient<ReturnType<typeof webSocket>>;

/** Returns a viem client with its own socket, because viem shares sockets by URL and options. */
export function openViem(
  url: string,
  options: Parameters<typeof webSocket>[1] = {},
): EthereumClient & { client: ViemClient } {
  const defaults = { keepAlive: false, reconnect: false, retryCount: 0 };
  const client = createPublicClient({ transport: webSocket(url, { ...defaults, ...options }) });
  return {
    client,
    call: (method, params = []) => client.request({ method, params } as never),
    async subscribe(onHead) {
      client.watchBlockNumber({ onBlockNumber: (number) => onHead(Number(number)) });
    },
    closed: Promise.resolve(),
    [Symbol.asyncDispose]: async () => (await client.transport.getRpcClient()).close(),
  };
}

export const viem: Ethereum = {
  open: async (url) => openViem(url),
  received(error) {
    const { code, details, data } = error.walk((inner: unknown) => inner instanceof RpcRequestError);
    return { code, message: details, data };
  },
  lost: { name: "SocketClosedError" },
};

/** The provider of web3, as `any`, because its types accept only methods that the package knows. */
export async function openWeb3(url: string): Promise<EthereumClient & { provider: any }> {
  const provider: any = new Web3Provider(url, {}, { autoReconnect: false });
  await new Promise((resolve) => provider.once("connect", resolve));
  provider.on("error", () => {});
  let ids = 0;
  const call = async (method: string, params: unknown[] = []): Promise<any> => {
    const { result, error } = await provider.request({ jsonrpc: "2.0", id: `id ${++ids}`, method, params });
    if (error !== undefined) throw error;
    return result;
  };
  return {
    provider,
    call,
    async subscribe(onHead) {
      const id = await call("eth_subscribe", ["newHeads"]);
      provider.on("message", ({ params }: any) => {
        if (params?.subscription === id) onHead(Number(params.result.number));
      });
    },
    closed: Promise.resolve(),
    [Symbol.asyncDispose]: async () => provider.disconnect(),
  };
}

export const web3: Ethereum = { open: openWeb3, received: (error) => error, lost: { message: "Connection not open" } };
