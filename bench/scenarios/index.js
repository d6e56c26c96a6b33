/** All scenarios by name, in the order of the report. A scenario with `alone` needs no client and no server, and runs in the parent. */
import { bundleSize } from "./bundle-size.js";
import { burst } from "./burst.js";
import { bytes } from "./bytes.js";
import { calls } from "./calls.js";
import { coldImport } from "./cold-import.js";
import { connections } from "./connections.js";
import { fanOuts } from "./fan-out.js";
import { idleMemory } from "./idle-memory.js";
import { liveSession } from "./live-session.js";
import { notifications } from "./notifications.js";
import { serverCalls } from "./server-calls.js";

const all = [
  ...calls.slice(0, 2),
  burst,
  ...calls.slice(2),
  serverCalls,
  notifications,
  ...bytes,
  ...fanOuts,
  liveSession,
  idleMemory,
  connections,
  coldImport,
  bundleSize,
];

export const scenarios = new Map(all.map((scenario) => [scenario.name, scenario]));
