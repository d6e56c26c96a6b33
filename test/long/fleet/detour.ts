/** Leads the connections of this process to a broker through proxies, also those to addresses that the broker tells. */
import { Socket, type TcpSocketConnectOpts } from "node:net";

type Connect = (this: Socket, ...args: unknown[]) => Socket;

/** Connects to the proxy of a port, where there is one, in this process from now on. */
export function detour(ports: ReadonlyMap<number, number>): void {
  const connect = Socket.prototype.connect as Connect;
  const through: Connect = function (...args) {
    // `net.connect` passes its options in an array.
    const [options] = args.flat() as [Partial<TcpSocketConnectOpts>];
    const proxy = ports.get(Number(options.port));
    if (proxy !== undefined) options.port = proxy;
    return connect.apply(this, args);
  };
  Socket.prototype.connect = through;
}
