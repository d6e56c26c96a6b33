import express from "express";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { serve, type Server } from "../../src/node.js";
import { bareHttp, listening } from "../support/network.js";
import { call, post, read } from "../support/post.js";
import { failure, notification, result } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";
import { recorded } from "./by-hand.js";

const methods = { add: ([a, b]: [number, number]) => a + b };
const CALL = '{"jsonrpc":"2.0","id":1,"method":"add","params":[1,2]}';

const send = async ({ url }: { url: string }, body = CALL): Promise<unknown> => read(await post(url, body));

const reply = (value: unknown): unknown => [200, result(1, value)];

/** Serves without a server of its own. `handle` gets each request of an HTTP server. */
async function handled(
  handle: (server: Server, request: IncomingMessage, response: ServerResponse) => unknown,
  options: object = {},
): Promise<{ url: string; errors: unknown[] }> {
  const server: Server = await serve({ noServer: true, methods, ...options });
  const http = await listening(createServer((request, response) => void handle(server, request, response)));
  onTestFinished(async () => {
    await server.close();
    await http[Symbol.asyncDispose]();
  });
  return { url: http.url, errors: recorded(server).errors };
}

/** Serves POSTs behind a parser of Express. */
function parsed(parser: ReturnType<typeof express.json>): ReturnType<typeof handled> {
  return handled(
    (server, request, response) => {
      const app = express();
      app.use(parser, (given, answer) => server.handleRequest(given, answer));
      app(request, response);
    },
    { limits: { maxMessageBytes: 100 } },
  );
}

it("an existing HTTP server leaves POSTs to an application that is added later", async () => {
  await using http = await bareHttp();
  await using server = await serve({ server: http.server, methods });
  expect(await send(http)).toEqual(reply(3));
  http.server.on("request", (_request, response) => response.end("mine"));
  expect(await send(http)).toEqual([200, "mine"]);
  await server.close();
});

describe("handleRequest", () => {
  it.each([
    ["parsed", express.json()],
    ["as text", express.text({ type: "*/*" })],
    ["as bytes", express.raw({ type: "*/*" })],
  ])("accepts a body that was already read, %s", async (_how, parser) => {
    const http = await parsed(parser);
    expect(await send({ url: `${http.url}/rpc` })).toEqual(reply(3));
    const batch = await post(http.url, [notification("add", [1, 2]), 7]);
    expect(await read(batch)).toEqual([200, [failure(null, -32600, "Invalid Request")]]);
    expect((await post(http.url, [7])).status).toBe(200);
    expect((await post(http.url, `${" ".repeat(101 - CALL.length)}${CALL}`)).status).toBe(413);
  });

  it("enforces maxMessageBytes for a text that arrived in chunks, too", async () => {
    const http = await parsed(express.text({ type: "*/*" }));
    const init = { method: "POST", headers: { "Content-Type": "application/json" }, duplex: "half" } as const;
    const body = new Blob([" ".repeat(101)]).stream();
    expect((await fetch(http.url.replace("ws:", "http:"), { ...init, body })).status).toBe(413);
  });

  it("reads a request whose encoding the application has set, and resolves when the response has left", async () => {
    const left = gate<boolean>();
    const http = await handled(
      async (server, request, response) => {
        await server.handleRequest(request.setEncoding("utf8"), response);
        left.resolve(response.writableFinished);
      },
      { methods: { echo: (params: unknown) => params } },
    );
    expect(await call(http, "echo", ["张🏊"])).toEqual(reply(["张🏊"]));
    expect(await left.promise).toBe(true);
  });

  it.each(["", CALL])("reports a body that other code has consumed: %j", async (body) => {
    const http = await handled((server, request, response) =>
      request.resume().once("end", () => server.handleRequest(request, response)),
    );
    expect(await send(http, body)).toEqual([500, "the request's body is lost\n"]);
    expect(http.errors).toEqual([expect.any(Error)]);
  });

  it("ignores a request that already has a response", async () => {
    const http = await handled((server, request, response) => {
      response.end("mine");
      // An exception would end the process.
      return server.handleRequest(request, response);
    });
    expect(await send(http)).toEqual([200, "mine"]);
    expect(await (await fetch(http.url.replace("ws:", "http:"))).text()).toBe("mine");
  });

  it("ignores a response that is sent while its handler runs, as a middleware for timeouts does", async () => {
    const begun = gate();
    const open = gate();
    const slow = (): Promise<void> => (begun.resolve(), open.promise);
    const http = await handled(
      async (server, request, response) => {
        void server.handleRequest(request, response);
        await begun.promise;
        response.writeHead(503);
        response.write("too");
        open.resolve();
        await turn();
        response.end(" late");
      },
      { methods: { slow } },
    );
    expect(await call(http, "slow")).toEqual([503, "too late"]);
    expect(http.errors).toEqual([]);
  });

  it("names one origin that can read the response, even if the application has named one too", async () => {
    const origins = ["https://example.org"];
    const http = await handled(
      (server, request, response) => {
        response.setHeader("Access-Control-Allow-Origin", "*");
        response.setHeader("Vary", "Accept");
        return server.handleRequest(request, response);
      },
      { origins },
    );
    const response = await post(http.url, CALL, { Origin: "https://example.org" });
    expect(response.headers.get("access-control-allow-origin")).toBe("https://example.org");
    expect(response.headers.get("vary")).toBe("Accept, Origin");
    expect(await read(response)).toEqual(reply(3));
  });
});
