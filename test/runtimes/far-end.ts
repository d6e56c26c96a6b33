/** A server for clients in other runtimes, whose connections can be cut and paused. */
import { createServer, type Socket as TcpSocket } from "node:net";
import { serve, type AnyPeer, type Server } from "../../src/node.js";
import { bareServer } from "../client/clients.js";
import { Relay } from "../support/relay.js";
import { listening } from "../support/network.js";

export interface FarEnd extends AsyncDisposable {
  /** The address of a server of this package. */
  readonly url: string;
  /** The address of the same server through a relay, which its method `freeze` pauses. */
  readonly relayUrl: string;
  /** The address of a server that chooses no subprotocol. */
  readonly bareUrl: string;
  /** The address of a port without a listener. */
  readonly refusedUrl: string;
}

const never = (): Promise<never> => new Promise(() => {});

export async function farEnd(): Promise<FarEnd> {
  const sockets = new WeakMap<object, TcpSocket>();
  const counted: number[] = [];
  const paused: TcpSocket[] = [];
  const socketOf = (peer: AnyPeer): TcpSocket => sockets.get(peer)!;
  const server: Server<any, any, any> = await serve<any, any, any>({
    port: 0,
    heartbeat: false,
    methods: {
      outer: async ([x]: [number], { peer }: { peer: AnyPeer }) => peer.request("inner", [x]),
      echo: (params: unknown) => params,
      never,
      notify([count]: [number], { peer }: { peer: AnyPeer }) {
        for (let i = 0; i < count; i++) peer.notify("n", [i]);
      },
      cut(_params: unknown, { peer }: { peer: AnyPeer }) {
        socketOf(peer).destroy();
        return never();
      },
      freeze() {
        relay.pause();
        return never();
      },
      /** Stops reading from the caller, in the next tick. Returns a number by which another connection calls `resume`. */
      pause(_params: unknown, { peer }: { peer: AnyPeer }) {
        setImmediate(() => socketOf(peer).pause());
        return paused.push(socketOf(peer)) - 1;
      },
      resume: ([index]: [number]) => void paused[index]!.resume(),
      count: ([i]: [number]) => void counted.push(i),
      counted: () => counted,
      n: () => {},
    } as never,
  });
  server.on("peer", (peer, request) => sockets.set(peer, request.socket));
  const relay = await Relay.to(server.url);
  const bare = await bareServer();
  const silent = await listening(createServer());
  const refusedUrl = silent.url;
  await silent[Symbol.asyncDispose]();
  return {
    url: server.url,
    relayUrl: relay.url,
    bareUrl: bare.url,
    refusedUrl,
    async [Symbol.asyncDispose]() {
      await relay.close();
      await bare[Symbol.asyncDispose]();
      await server.close();
    },
  };
}
