/** Our server as strangers meet it: a method for each thing that can be asked of one. */
import { RpcError, serve, type AnyPeer, type Server } from "../../../src/node.js";
import { gate, type Gate } from "../../support/turns.js";
import { Inbox } from "./inbox.js";

/** A server, and what it saw. */
export interface Service extends AsyncDisposable {
  readonly server: Server<any, any, any>;
  readonly url: string;
  /** The ids of the requests that came, in their order. */
  readonly ids: unknown[];
  /** The params of `note`, which is to be notified. */
  readonly noted: Inbox;
  /** Those who connect. */
  readonly peers: Inbox<AnyPeer>;
  /** Answers the call of `wait` that names it, once it is resolved. */
  gateOf(name: string): Gate<unknown>;
  /** What went wrong on our side. A test that expects something takes it; what is left fails the disposal. */
  readonly errors: Inbox;
}

/** What our server answers with an error of its own. */
export const ATTIC = { code: 4711, message: "no such room", data: { room: "attic" } };

/** Starts one. */
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
      /** Asks the caller before it answers. */
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
      if (errors.left.length > 0) throw new AggregateError(errors.left, "errors on our side that nobody expected");
    },
  };
}
