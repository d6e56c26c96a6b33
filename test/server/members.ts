/** Servers in memory and their clients, for tests of groups. */
import type { AnyMethods, AnyPeer, ServeOptions, Server } from "../../src/node.js";
import { testServer, type Network, type TestServer } from "../../src/testing/index.js";
import { TestLink, type RawBehaviour } from "../support/raw.js";

/** The server's peer, the client's peer, and the messages that the client got and that no method serves. */
export type Member = Awaited<ReturnType<typeof join>>;

type Methods = Record<string, (params: any, context: any) => unknown>;

const kits = new WeakMap<Server, TestServer<AnyMethods, AnyMethods, unknown>>();

export function makeServer(options: Partial<ServeOptions<AnyMethods, AnyMethods, unknown>> = {}): Server {
  const kit = testServer(options);
  kits.set(kit.server, kit);
  return kit.server;
}

export const networkOf = (server: Server): Network => kits.get(server)!.network;

/** Connects a client that serves `methods`, with these options. Resolves when the client receives. */
export async function join(server: Server, methods: Methods = {}, options: object = {}) {
  const kit = kits.get(server)!;
  const got: unknown[] = [];
  const fallback = (params: unknown, { method }: { method: string }): void => void got.push([method, params]);
  const client: AnyPeer = await kit.connect(server.url, { ...options, methods, fallback });
  await kit.network.settle();
  const line = kit.network.of(client);
  const peer: AnyPeer = [...server.peers].find((one) => kit.network.of(one) === line)!;
  return { peer, client, got };
}

/** A client whose messages the test sends and reads. */
export type Silent = ReturnType<typeof joinSilent>;

/** Connects a client that never answers, over a transport of the application. */
export function joinSilent(server: Pick<Server, "accept">, behaviour?: RawBehaviour, auth?: unknown) {
  const link = new TestLink(behaviour);
  const peer: AnyPeer = server.accept(link, auth);
  return { peer, sent: link.sent, feed: link.feed, open: () => link.resume() };
}
