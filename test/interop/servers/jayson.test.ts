/** A reciproc client calls a jayson 5 WebSocket server, also in batches. */
import { createRequire } from "node:module";
import { describe } from "vitest";
import { Inbox } from "../support/inbox.js";
import { ATTIC } from "../support/service.js";
import { behavesAsServer, Gates, listeningServer, type ForeignServer } from "./behaviour.js";

// Its declarations name packages that it does not install, so they are not used.
const jayson = createRequire(import.meta.url)("jayson");

type Callback = (error: unknown, result?: unknown) => void;

async function start(): Promise<ForeignServer> {
  const gates = new Gates();
  const noted = new Inbox();
  const server = jayson.server({
    add: (params: any, done: Callback) =>
      done(null, Array.isArray(params) ? params[0] + params[1] : params.a + params.b),
    echo: (params: unknown, done: Callback) => done(null, params),
    attic: (_params: unknown, done: Callback) => done(ATTIC),
    wait: ([name]: [string], done: Callback) => void gates.of(name).promise.then((value) => done(null, value)),
    note: (params: unknown, done: Callback) => (noted.push(params), done(null)),
  });
  return { ...(await listeningServer(server.websocket({ port: 0, host: "127.0.0.1" }))), gates, noted };
}

describe("a jayson server", () => {
  behavesAsServer({ start });
});
