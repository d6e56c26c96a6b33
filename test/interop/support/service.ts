/** A reciproc server for third-party clients, with a method for each kind of behaviour. */
import { RpcError, serve, type AnyPeer, type Server } from "../../../src/node.js";
import { gate, raising, type Gate } from "../../support/turns.js";
import { Inbox } from "../../support/inbox.js";

export type Service = Awaited<ReturnType<typeof startService>>;

export const ATTIC = { code: 4711, message: "no such room", data: { room: "attic" } };

/** Returns what every server of these tests serves. `wait` is answered with its name at the notification `release` of that name. */
export function commonMethods(noted: Inbox): Record<string, (params: any) => unknown> {
  const gates = new Map<string, Gate<string>>();
  const gateOf = (name: string): Gate<string> => {
    if (!gates.has(name)) gates.set(name, gate());
    return gates.get(name)!;
  };
  return {
    add: (params) => (Array.isArray(params) ? params[0] + params[1] : params.a + params.b),
    echo: (params) => params ?? null,
    wait: ([name]) => gateOf(name).promise,
    release: ([name]) => gateOf(name).resolve(name),
    note: noted.push,
  };
}

export async function startService() {
  const ids: unknown[] = [];
  const [noted, peers, errors] = [new Inbox(), new Inbox<AnyPeer>(), new Inbox()];
  const server: Server<any, any, any> = await serve({
    port: 0,
    around: ({ direction, id }, next) => {
      if (direction === "incoming" && id !== undefined) ids.push(id);
      return next();
    },
    methods: {
      ...commonMethods(noted),
      nothing: () => undefined,
      attic: raising(new RpcError(ATTIC.code, ATTIC.message, ATTIC.data)),
      crash: raising(new Error("the password is hunter2")),
      ask: async (params, { peer }) => `you said ${await peer.request("confirm", params)}`,
    },
  });
  server.on("peer", peers.push);
  server.on("error", errors.push);
  return {
    server,
    url: server.url,
    ids,
    noted,
    peers,
    /** Those that a test does not take fail the disposal. */
    errors,
    async [Symbol.asyncDispose]() {
      await server.close();
      if (errors.left.length > 0) throw new AggregateError(errors.left, "unexpected errors of the server");
    },
  };
}
