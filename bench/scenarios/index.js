/** All scenarios by name, in the order of the report. A scenario with `runInParent` needs no client and no server. */
import { bytes } from "./bytes.js";
import { messages } from "./calls.js";
import { connections } from "./connections.js";
import { fanOuts } from "./fan-out.js";
import { liveSession } from "./live-session.js";
import { starts } from "./start.js";

const all = [...messages, ...bytes, ...fanOuts, liveSession, ...connections, ...starts];

export const scenarios = new Map(all.map((scenario) => [scenario.name, scenario]));
