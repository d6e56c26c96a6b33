/** The modules of a world: the sources under test, or a mutant of them. */
import type { RpcError } from "../../src/core/errors.js";
import type { connect, serve } from "../../src/node.js";
import type { inspect } from "../../src/peer/peer.js";

export interface Build {
  readonly connect: typeof connect;
  readonly serve: typeof serve;
  readonly RpcError: typeof RpcError;
  readonly inspect: typeof inspect;
}
