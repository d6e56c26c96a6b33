/** A reciproc server for third-party clients, with a method for each kind of behaviour. */
import { RpcError, serve, type AnyPeer, type Server } from "../../../src/node.js";
import { gate, type Gate } from "../../support/turns.js";
import { Inbox } from "./inbox.js";

/** A server, and its recorded messages. */
export interface Service extends AsyncDisposable {
  readonly server: Server<any, any, any>;
  readonly url: string;
  /** The ids of received requests, in order. */
  readonly ids: unknown[];
  /** The params of the `note` notifications. */
  readonly noted: Inbox;
  /** The connected peers. */
  readonly peers: Inbox<AnyPeer>;
  /** The gate that ends the call of `wait` with this name. */
  gateOf(name: string): Gate<unknown>;
  /** The errors of the server. A test removes expected ones, and the others fail the disposal. */
  readonly errors: Inbox;
}

/** The server's own error. */
export const ATTIC = { code: 4711, message: "no such room", data: { room: "attic" } };

/** Starts a server. */
export async function startService(): Promise<Service> {
  const ids: unknown[] = [];
  const noted = new Inbox();
  const peers = new Inbox<AnyPeer>();
  const errors = new Inbox();
  const gates = new Map<string, Gate<unknown>>();
  const gateOf = (name: string): Gate<unknown> => {
    const known = gates.get(name) ?? gate<unknown>();
    gates.set(name, known);
    return known;
  };
  const server = await serve({
    port: 0,
    around: ({ direction, id }, next) => {
      if (direction === "incoming" && id !== undefined) ids.push(id);
      return next();
    },
    methods: {
      add: (params) => (Array.isArray(params) ? params[0] + params[1] : params.a + params.b),
      echo: (params) => params ?? null,
      nothing: () => undefined,
      attic: () => {
        throw new RpcError(ATTIC.code, ATTIC.message, ATTIC.data);
      },
      crash: () => {
        throw new Error("the password is hunter2");
      },
      wait: (params) => gateOf(Array.isArray(params) ? params[0] : params.name).promise,
      note: (params) => noted.push(params),
      /** Calls the caller before it answers. */
      ask: async (params, { peer }) => `you said ${await peer.request("confirm", params)}`,
    },
  });
  server.on("peer", peers.push);
  server.on("error", (error) => errors.push(error));
  return {
    server,
    url: server.url,
    ids,
    noted,
    peers,
    gateOf,
    errors,
    async [Symbol.asyncDispose]() {
      for (const { resolve } of gates.values()) resolve(null);
      await server.close();
      if (errors.left.length > 0) throw new AggregateError(errors.left, "unexpected errors of the server");
    },
  };
}
