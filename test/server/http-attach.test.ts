/** HTTP POST on an existing HTTP server, and through an application that routes requests itself. */
import express from "express";
import { createServer } from "node:http";
import { describe, expect, it } from "vitest";
import { connect, serve, type Server } from "../../src/node.js";
import { bareHttp, listening } from "../support/network.js";
import { gate, turn } from "../support/turns.js";

const methods = { add: ([a, b]: [number, number]) => a + b };
const CALL = '{"jsonrpc":"2.0","id":1,"method":"add","params":[1,2]}';

/** Posts text to a path. Returns the status and the body. */
async function post(
  { url }: { url: string },
  path: string,
  body = CALL,
  type = "application/json",
): Promise<[status: number, body: string]> {
  const headers = { "Content-Type": type, Connection: "close" };
  const response = await fetch(url.replace("ws:", "http:") + path, { method: "POST", body, headers });
  return [response.status, await response.text()];
}

const reply = (result: unknown): [number, string] => [200, JSON.stringify({ jsonrpc: "2.0", id: 1, result })];

describe("an existing HTTP server", () => {
  it("answers POSTs to the path if it has no other listener", async () => {
    await using http = await bareHttp();
    await using server = await serve({ server: http.server, path: "/rpc", methods });
    expect(await post(http, "/rpc")).toEqual(reply(3));
    expect(await post(http, "/other")).toEqual([404, 'nothing is served at this path; `path` is "/rpc"\n']);
    await using peer = await connect(server.url);
    expect(await peer.request("add", [1, 2])).toBe(3);
  });

  it("leaves POSTs to another listener", async () => {
    const app = express();
    app.post("/rpc", (_request, response) => response.send("mine"));
    await using http = await listening(createServer(app));
    await using server = await serve({ server: http.server, path: "/rpc", methods });
    expect(await post(http, "/rpc")).toEqual([200, "mine"]);
    expect((await post(http, "/other"))[0]).toBe(404);
    await using peer = await connect(server.url);
    expect(await peer.request("add", [1, 2])).toBe(3);
  });

  it("leaves POSTs to an application that is added later, too", async () => {
    await using http = await bareHttp();
    await using server = await serve({ server: http.server, methods });
    expect(await post(http, "/")).toEqual(reply(3));
    http.server.on("request", (_request, response) => response.end("mine"));
    expect(await post(http, "/")).toEqual([200, "mine"]);
    await server.close();
  });

  it("is shared by several servers, each on its path, and a third path is refused once", async () => {
    await using http = await bareHttp();
    const refused: string[] = [];
    const start = async (path: string): Promise<Server> => {
      const server = await serve({ server: http.server, path, methods: { where: () => path } });
      server.on("refuse", ({ status }) => refused.push(`${path} ${status}`));
      return server;
    };
    await using one = await start("/one");
    await using two = await start("/two");
    const where = '{"jsonrpc":"2.0","id":1,"method":"where"}';
    expect(await post(http, "/one", where)).toEqual(reply("/one"));
    expect(await post(http, "/two", where)).toEqual(reply("/two"));
    expect((await post(http, "/three", where))[0]).toBe(404);
    expect(refused).toEqual(["/one 404"]);
    expect([one.url, two.url]).toHaveLength(2);
  });

  it("is detached on close(), without being closed", async () => {
    await using http = await bareHttp();
    const server = await serve({ server: http.server, methods });
    expect(http.server.listenerCount("request")).toBe(1);
    await server.close();
    expect(http.server.listenerCount("request")).toBe(0);
    await using again = await serve({ server: http.server, methods });
    expect(again.url).not.toBe("");
    expect(await post(http, "/")).toEqual(reply(3));
  });
});

describe("handleRequest", () => {
  it("answers requests that Express routes to it, beside WebSockets on the same path", async () => {
    const app = express();
    await using http = await listening(createServer(app));
    await using server = await serve({ server: http.server, path: "/rpc", methods });
    app.post("/rpc", (request, response) => server.handleRequest(request, response));
    expect(await post(http, "/rpc")).toEqual(reply(3));
    await using peer = await connect(server.url);
    expect(await peer.request("add", [1, 2])).toBe(3);
  });

  it("accepts any path, also below a router that cuts it", async () => {
    const app = express();
    await using http = await listening(createServer(app));
    await using server = await serve({ server: http.server, path: "/ws", methods });
    app.use("/api", (request, response) => server.handleRequest(request, response));
    expect(await post(http, "/api/rpc")).toEqual(reply(3));
  });

  it.each([
    ["parsed", express.json()],
    ["as text", express.text({ type: "*/*" })],
    ["as bytes", express.raw({ type: "*/*" })],
  ])("accepts a body that was already read, %s", async (_how, parser) => {
    const app = express();
    await using http = await listening(createServer(app));
    await using server = await serve({ noServer: true, limits: { maxMessageBytes: 100 }, methods });
    app.post("/rpc", parser, (request, response) => server.handleRequest(request, response));
    expect(await post(http, "/rpc")).toEqual(reply(3));
    const batch = `[${CALL.replace('"id":1,', "")},7]`;
    expect(await post(http, "/rpc", batch)).toEqual([
      200,
      '[{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}]',
    ]);
    expect((await post(http, "/rpc", "[7]"))[0]).toBe(200);
    expect((await post(http, "/rpc", `${" ".repeat(101 - CALL.length)}${CALL}`))[0]).toBe(413);
  });

  it("enforces maxMessageBytes for a text that arrived in chunks, too", async () => {
    const app = express();
    await using http = await listening(createServer(app));
    await using server = await serve({ noServer: true, limits: { maxMessageBytes: 100 }, methods });
    app.post("/rpc", express.text({ type: "*/*" }), (request, response) => server.handleRequest(request, response));
    const response = await fetch(`${http.url.replace("ws:", "http:")}/rpc`, {
      method: "POST",
      body: new Blob([" ".repeat(101)]).stream(),
      headers: { "Content-Type": "application/json", Connection: "close" },
      duplex: "half",
    } as RequestInit);
    expect(response.status).toBe(413);
  });

  it("reads a body itself if a parser before it ignored it", async () => {
    const app = express();
    await using http = await listening(createServer(app));
    await using server = await serve({ noServer: true, methods });
    app.use(express.text({ type: "text/html" }));
    app.post("/rpc", (request, response) => server.handleRequest(request, response));
    expect(await post(http, "/rpc")).toEqual(reply(3));
  });

  it("reads a request whose encoding the application has set", async () => {
    await using server = await serve({ noServer: true, methods: { echo: (params: unknown) => params } });
    await using http = await listening(
      createServer((request, response) => server.handleRequest(request.setEncoding("utf8"), response)),
    );
    const call = '{"jsonrpc":"2.0","id":1,"method":"echo","params":["张🏊"]}';
    expect(await post(http, "/", call)).toEqual(reply(["张🏊"]));
  });

  it.each(["", CALL])("reports a body that other code has consumed: %j", async (body) => {
    await using server = await serve({ noServer: true, methods });
    const errors: unknown[] = [];
    server.on("error", (error) => errors.push(error));
    await using http = await listening(
      createServer((request, response) => {
        request.resume().once("end", () => server.handleRequest(request, response));
      }),
    );
    expect(await post(http, "/", body)).toEqual([500, "the request's body is lost\n"]);
    expect(errors).toEqual([
      new Error("a request's body was read before `handleRequest`, and is not in `request.body`"),
    ]);
  });

  it("enforces the rules against DNS rebinding and forms", async () => {
    const app = express();
    await using http = await listening(createServer(app));
    await using server = await serve({ noServer: true, methods });
    app.all("/rpc", express.text({ type: "*/*" }), (request, response) => server.handleRequest(request, response));
    expect((await post(http, "/rpc", CALL, "text/plain"))[0]).toBe(415);
    const url = `${http.url.replace("ws:", "http:")}/rpc`;
    const headers = { Connection: "close", Origin: "https://evil.example" };
    expect((await fetch(url, { method: "OPTIONS", headers })).status).toBe(403);
    expect((await fetch(url, { method: "PUT", headers: { Connection: "close" } })).status).toBe(405);
    expect((await fetch(url, { headers: { Connection: "close" } })).status).toBe(426);
  });

  it("ignores a request that already has a response", async () => {
    await using server = await serve({ noServer: true, methods });
    const thrown: unknown[] = [];
    await using http = await listening(
      createServer((request, response) => {
        response.end("mine");
        try {
          server.handleRequest(request, response);
        } catch (error) {
          thrown.push(error);
        }
      }),
    );
    expect(await post(http, "/")).toEqual([200, "mine"]);
    const page = await fetch(http.url.replace("ws:", "http:"), { headers: { Connection: "close" } });
    expect(await page.text()).toBe("mine");
    expect(thrown).toEqual([]);
  });

  it("ignores a response that is sent while its handler runs, as a middleware for timeouts does", async () => {
    const begun = gate();
    const open = gate();
    const slow = async (): Promise<void> => {
      begun.resolve();
      await open.promise;
    };
    await using server = await serve({ noServer: true, methods: { slow } });
    const errors: unknown[] = [];
    server.on("error", (error) => errors.push(error));
    await using http = await listening(
      createServer((request, response) => {
        server.handleRequest(request, response);
        void begun.promise.then(async () => {
          response.writeHead(503);
          response.write("too");
          open.resolve();
          await turn();
          response.end(" late");
        });
      }),
    );
    expect(await post(http, "/", CALL.replace("add", "slow"))).toEqual([503, "too late"]);
    expect(errors).toEqual([]);
  });

  it("names one origin that can read the response, even if the application has named one too", async () => {
    await using server = await serve({ noServer: true, origins: ["https://example.org"], methods });
    await using http = await listening(
      createServer((request, response) => {
        response.setHeader("Access-Control-Allow-Origin", "*");
        response.setHeader("Vary", "Accept");
        server.handleRequest(request, response);
      }),
    );
    const headers = { "Content-Type": "application/json", Origin: "https://example.org", Connection: "close" };
    const response = await fetch(http.url.replace("ws:", "http:"), { method: "POST", headers, body: CALL });
    expect(response.headers.get("access-control-allow-origin")).toBe("https://example.org");
    expect(response.headers.get("vary")).toBe("Accept, Origin");
    expect(await response.text()).toBe(reply(3)[1]);
  });
});
