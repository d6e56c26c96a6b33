/** `serve`: the one call that starts a server. */
import type { ContractOptions } from "../core/checks.js";
import type { AnyMethods, Contract } from "../core/contract.js";
import { Server, type ServeOptions } from "./server.js";

/**
 * Serves contract `S` to all clients, and calls them back by contract `C`. `D` is the type of `peer.data`. Resolves when the
 * server listens. Rejects with a `TypeError` that names the option, the rule and the value, or with Node's error if the server
 * cannot listen.
 */
export async function serve<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods, D = unknown>(
  options: NoInfer<ServeOptions<S, C, D>> & ContractOptions<S, C>,
): Promise<Server<S, C, D>> {
  const server = new Server<S, C, D>(options);
  await server.listen();
  return server;
}
