/** `serve`: the one call that starts a server, over HTTP and WebSockets of Node. */
import { hash } from "node:crypto";
import type { AnyMethods, Contract } from "./contract/contract.js";
import type { Socket } from "./socket/socket.js";
import { WsSocket } from "./socket/ws.js";
import type { Platform } from "./server/entrance.js";
import { HttpGate } from "./server/http-gate.js";
import { Posts } from "./server/http.js";
import { Server, type InferredOptions, type ServiceOptions } from "./server/server.js";

/**
 * Serves contract `S` to all clients, and calls them back by contract `C`. `A` is the type of `peer.auth`. Resolves when the
 * server listens. Rejects with a `TypeError` that names the option, the rule and the value, or with Node's error if the server
 * cannot listen.
 */
export async function serve<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods, A = unknown>(
  options: ServiceOptions<NoInfer<S>, NoInfer<C>, NoInfer<A>> & InferredOptions<S, C, A>,
): Promise<Server<S, C, A>> {
  const server = new Server<S, C, A>(options, await platformFor(options));
  await server.listen();
  return server;
}

const NODE: Platform = {
  hash: (token) => hash("sha256", token, "base64"),
  connect(options, entrance) {
    const { maxMessageBytes } = options.peer.limits;
    const gate: HttpGate<Socket> = new HttpGate<Socket>(options.gate, entrance, {
      socketOf: (webSocket, raw) => new WsSocket(webSocket, maxMessageBytes, raw),
      answersPings: true,
      request: (request, response) => void posts.handle(request, response, true),
    });
    const posts = new Posts(gate, entrance.peers, options);
    return { gate, posts };
  },
};

/** Returns what a server needs of Node. Loads the fleet if the server has an engine. */
export async function platformFor(options: { engine?: unknown } | undefined): Promise<Platform> {
  if (options?.engine === undefined) return NODE;
  const { Fleet } = await import("./fleet/fleet.js");
  return { ...NODE, makeNode: (engine, host) => new Fleet(engine, host) };
}
