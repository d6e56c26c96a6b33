/** Several servers with one engine, and their clients, in memory. */
import { vi } from "vitest";
import type { Engine } from "../../src/fleet/engine.js";
import { memory } from "../../src/fleet/memory.js";
import { testServer, type TestServer } from "../../src/testing/index.js";
import type { AnyPeer } from "../../src/node.js";

/** A node with its clients. */
export interface Node extends TestServer<any, any, any> {
  /** Connects a client. Returns the server's peer, the client, and what it got that no method serves. */
  client(name?: string, options?: object): Promise<Client>;
}

/** A client of a node. */
export interface Client {
  /** The peer of the server. */
  readonly peer: AnyPeer;
  readonly client: AnyPeer;
  /** Each notification that came: its method and its params. */
  readonly got: [method: string, params: any][];
  /** Resolves when so many notifications have come. */
  until(count: number): Promise<[method: string, params: any][]>;
}

/** Makes nodes with one engine. */
export function makeNodes(count: number, options: object = {}, engine: Engine = memory()): Node[] {
  return Array.from({ length: count }, () => makeNode({ engine, ...options }));
}

let clients = 0;

/** Makes one node. */
export function makeNode(options: object, methods: object = {}): Node {
  const server = testServer<any, any, any>({
    authenticate: (request) => ({ name: String(request.headers["x-name"] ?? "") }),
    ...options,
  });
  const client = async (name = "", clientOptions: object = {}): Promise<Client> => {
    const got: [string, any][] = [];
    const number = String(++clients);
    const coming = new Promise<AnyPeer>((resolve) => {
      const onPeer = (peer: unknown, { headers }: { headers: Record<string, unknown> }): void => {
        if (headers["x-number"] !== number) return;
        server.server.off("peer", onPeer as never);
        resolve(peer as AnyPeer);
      };
      server.server.on("peer", onPeer as never);
    });
    const connected = await server.connect(server.server.url, {
      headers: { "x-name": name, "x-number": number },
      methods,
      fallback: (params, { method }) => void got.push([method, params]),
      ...clientOptions,
    });
    const until = async (length: number): Promise<[string, any][]> => {
      await vi.waitFor(
        () => {
          if (got.length < length) throw new Error(`${got.length} of ${length} notifications: ${JSON.stringify(got)}`);
        },
        { timeout: 5_000, interval: 1 },
      );
      return got;
    };
    return { peer: await coming, client: connected as AnyPeer, got, until };
  };
  return Object.assign(server, { client });
}

/** Closes nodes. */
export async function closeAll(nodes: readonly Node[]): Promise<void> {
  await Promise.all(nodes.map(({ server }) => server.close()));
}
