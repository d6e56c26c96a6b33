/** Clients of a server in memory, for tests of its groups. */
import { Peer, type AnyMethods, type AnyPeer, type Receiver, type Server, type Transport } from "../../src/node.js";
import { plain } from "../../src/link/plain.js";
import { memorySockets } from "../../src/sockets/memory.js";

/** A member: the server's peer, the client's peer, and the messages that the client got and that no method serves. */
export interface Member {
  peer: AnyPeer;
  client: AnyPeer;
  got: unknown[];
}

type Methods = Record<string, (params: any, context: any) => unknown>;

/** Connects a client that serves `methods`. */
export function join(server: Server, methods: Methods = {}): Member {
  const [near, far] = memorySockets(10_000, 10_000);
  const got: unknown[] = [];
  const fallback = (params: unknown, { method }: { method: string }): void => void got.push([method, params]);
  const client: AnyPeer = new Peer<AnyMethods, AnyMethods>(plain(far), { methods, fallback });
  return { peer: server.accept(plain(near), undefined), client, got };
}

/** Connects a client that never answers. Returns the server's peer for it, and the texts that were sent to it. */
export function joinSilent(server: Server, behaviour: Partial<Transport> = {}): { peer: AnyPeer; sent: string[] } {
  const sent: string[] = [];
  let receiver: Receiver;
  const transport: Transport = {
    start: (given) => (receiver = given),
    send: (text) => sent.push(text) > 0,
    close: (code = 1000, reason = "") => receiver.closed({ code, reason }),
    ...behaviour,
  };
  return { peer: server.accept(transport, undefined), sent };
}
