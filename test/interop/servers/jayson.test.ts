/** A reciproc client calls a jayson 5 WebSocket server, also in batches. */
import { once } from "node:events";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { describe } from "vitest";
import { Inbox } from "../support/inbox.js";
import { ATTIC } from "../support/service.js";
import { behavesAsServer, Gates, type ForeignServer } from "./behaviour.js";

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
  const webSockets = server.websocket({ port: 0, host: "127.0.0.1" });
  await once(webSockets, "listening");
  const cut = (): void => webSockets.clients.forEach((client: { terminate(): void }) => client.terminate());
  return {
    url: `ws://127.0.0.1:${(webSockets.address() as AddressInfo).port}`,
    gates,
    noted,
    cut,
    async [Symbol.asyncDispose]() {
      cut();
      await new Promise((resolve) => webSockets.close(resolve));
    },
  };
}

describe("a jayson server", () => {
  behavesAsServer({ start });
});
