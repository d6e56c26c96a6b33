/** Servers in memory and their clients, for tests of groups. */
import type { Link, LinkReceiver } from "../../src/message/transport.js";
import type { AnyMethods, AnyPeer, ServeOptions, Server } from "../../src/node.js";
import { testServer, type Network, type TestServer } from "../../src/testing/index.js";

/** A member: the server's peer, the client's peer, and the messages that the client got and that no method serves. */
export interface Member {
  peer: AnyPeer;
  client: AnyPeer;
  got: unknown[];
}

type Methods = Record<string, (params: any, context: any) => unknown>;

const kits = new WeakMap<Server, TestServer<AnyMethods, AnyMethods, unknown>>();

export function makeServer(options: Partial<ServeOptions<AnyMethods, AnyMethods, unknown>> = {}): Server {
  const kit = testServer(options);
  kits.set(kit.server, kit);
  return kit.server;
}

export function networkOf(server: Server): Network {
  return kits.get(server)!.network;
}

/** Connects a client that serves `methods`, with these options. Resolves when the client receives. */
export async function join(server: Server, methods: Methods = {}, options: object = {}): Promise<Member> {
  const kit = kits.get(server)!;
  const got: unknown[] = [];
  const fallback = (params: unknown, { method }: { method: string }): void => void got.push([method, params]);
  const client = await kit.connect(server.url, { ...options, methods, fallback });
  await kit.network.settle();
  const line = kit.network.of(client);
  return { peer: [...server.peers].find((peer) => kit.network.of(peer) === line)!, client, got };
}

/** A client whose messages the test sends and reads. */
export interface Silent {
  readonly peer: AnyPeer;
  /** The texts that were sent to the client. */
  readonly sent: string[];
  /** Receives a message of the client. */
  readonly feed: (message: object) => void;
  /** Opens a transport with `isConnecting`. */
  readonly open: () => void;
}

/** Connects a client that never answers, over a transport of the application. */
export function joinSilent(server: Pick<Server, "accept">, behaviour: Partial<Link> = {}, auth?: unknown): Silent {
  const sent: string[] = [];
  let receiver: LinkReceiver;
  const transport: Link = {
    start: (given) => (receiver = given),
    send: (text: string) => sent.push(text) > 0,
    close: (code = 1000, reason = "") => receiver.closed({ code, reason }),
    ...behaviour,
  };
  const peer = server.accept(transport, auth);
  return { peer, sent, feed: (message) => receiver.receive(JSON.stringify(message)), open: () => receiver.resumed() };
}
