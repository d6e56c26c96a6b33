/** A server for clients in other runtimes, whose connections can be cut and paused. */
import type { Socket as TcpSocket } from "node:net";
import { serve, type AnyPeer, type Server } from "../../src/node.js";
import { bareServer } from "../client/clients.js";
import { Relay } from "../support/relay.js";

const never = (): Promise<never> => new Promise(() => {});

interface Call {
  readonly peer: AnyPeer;
}

/** Starts the servers: of this package, directly and through a relay, and one that chooses no subprotocol. */
export async function farEnd() {
  const sockets = new WeakMap<object, TcpSocket>();
  const counted: number[] = [];
  const paused: TcpSocket[] = [];
  const socketOf = (peer: AnyPeer): TcpSocket => sockets.get(peer)!;
  const server: Server<any, any, any> = await serve<any, any, any>({
    port: 0,
    heartbeat: false,
    methods: {
      outer: async ([x]: [number], { peer }: Call) => peer.request("inner", [x]),
      echo: (params: unknown) => params,
      never,
      notify([count]: [number], { peer }: Call) {
        for (let i = 0; i < count; i++) peer.notify("n", [i]);
      },
      cut(_params: unknown, { peer }: Call) {
        socketOf(peer).destroy();
        return never();
      },
      freeze: () => relay.pause(),
      /** Stops reading from the caller, in the next tick. Returns a number by which another connection calls `resume`. */
      pause(_params: unknown, { peer }: Call) {
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
  return {
    url: server.url,
    relayUrl: relay.url,
    bareUrl: bare.url,
    async [Symbol.asyncDispose]() {
      await relay.close();
      await bare[Symbol.asyncDispose]();
      await server.close();
    },
  };
}
