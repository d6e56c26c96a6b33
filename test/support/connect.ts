/** `connect` to a server in another process, which a busy machine may not schedule for long: only the test ends an attempt. */
import { connect as connectInTime, type AnyPeer } from "../../src/node.js";

const connectWithoutLimit = (url: string, options?: object): Promise<AnyPeer> =>
  connectInTime<any, any>(url, { openTimeoutMs: Infinity, ...options });

export const connect = connectWithoutLimit as typeof connectInTime;
