/** `connect` for a server in another process, which a busy machine may not schedule for long: only the limit of the test ends an attempt. */
import { connect as connectInTime } from "../../src/node.js";

export const connect = ((url: string, options?: object) =>
  connectInTime(url, { openTimeoutMs: Infinity, ...options })) as typeof connectInTime;
