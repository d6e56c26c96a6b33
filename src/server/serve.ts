/** `serve`: the one call that starts a server. */
import type { AnyMethods, Contract } from "../core/contract.js";
import { Server, type ServeOptions } from "./server.js";

/**
 * Serves contract `S` to everybody who connects and may call them back by contract `C`; `D` is the type of `peer.data`.
 * Resolves when it listens. Rejects with a `TypeError` for bad options, naming option, rule and value, and with Node's
 * error when it cannot listen.
 */
export async function serve<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods, D = unknown>(
  options: NoInfer<ServeOptions<S, C, D>>,
): Promise<Server<S, C, D>> {
  const server = new Server<S, C, D>(options);
  await server.listen();
  return server;
}
