import type { IncomingMessage } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createServer as createTcpServer } from "node:net";
import { type TLSSocket } from "node:tls";
import { describe, expect, it } from "vitest";
import { virtualClock } from "../../src/testing/index.js";
import { ConnectError, connect, serve } from "../../src/node.js";
import { selfSigned } from "../support/certificates.js";
import { listening, portOf } from "../support/network.js";
import { gate, rejection } from "../support/turns.js";

async function deadUrl(): Promise<string> {
  await using somebody = await listening(createTcpServer());
  return somebody.url;
}

describe("a connect that fails", () => {
  it("reports the address without its secret parts, and the reason", async () => {
    const url = (await deadUrl()).replace("ws://", "ws://user:hunter2@");
    const error = await rejection(connect(`${url}/rpc?token=s3cret#frag`));
    expect(error).toBeInstanceOf(ConnectError);
    const port = portOf(url);
    expect(error).toMatchObject({
      name: "ConnectError",
      code: "CONNECT_FAILED",
      status: undefined,
      url: `ws://127.0.0.1:${port}/rpc`,
      cause: { code: "ECONNREFUSED" },
    });
    expect(JSON.stringify(error) + String(error) + String(error.cause)).not.toMatch(/hunter2|s3cret/);
  });

  it("gives up after openTimeoutMs on a server that never answers, and hangs up", async () => {
    const hungUp = gate();
    const silent = createTcpServer((socket) => {
      socket.on("close", () => hungUp.resolve());
      socket.on("error", () => {});
      socket.resume();
    });
    await using where = await listening(silent);
    using clock = virtualClock();
    const failed = rejection(connect(where.url, { openTimeoutMs: 30 }));
    await clock.pass(30);
    const error = await failed;
    expect(error).toBeInstanceOf(ConnectError);
    expect(error.message).toContain("within 30 ms");
    await hungUp.promise;
  });

  it("says that a server does not speak TLS if it gets a wss: address", async () => {
    await using server = await serve({ port: 0 });
    const url = server.url.replace("ws:", "wss:");
    const error = await rejection(connect(url));
    expect(error.message).toContain("does not speak TLS here; try ws:");
    expect(error.cause).toBeInstanceOf(Error);
  });

  it.each(["/relative", "", "ws://user:s3cret@host:port/?token=s3cret", "ftp://x", "file:///x", undefined])(
    "rejects with a TypeError for the address %s, of which the error shows nothing that may be secret",
    async (url) => {
      const error = await rejection(connect(url as string));
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toContain("`url`");
      expect(error.message).not.toContain("s3cret");
    },
  );
});

it("over TLS connects to an https.Server at wss:, with the certificate authority of `tls`", async () => {
  const { key, cert } = selfSigned();
  await using https = await listening(createTlsServer({ key, cert }));
  await using server = await serve({ server: https.server, path: "/rpc", methods: { m: () => "secure" } });
  expect(server.url).toBe(`wss://127.0.0.1:${portOf(https.url)}/rpc`);
  const error = await rejection(connect(server.url));
  expect(error).toMatchObject({ name: "ConnectError", cause: { code: "DEPTH_ZERO_SELF_SIGNED_CERT" } });
  await using peer = await connect(server.url, { tls: { ca: cert } });
  expect(await peer.request("m")).toBe("secure");
  await using byHttps = await connect(server.url.replace("wss:", "https:"), { tls: { ca: cert } });
  expect(await byHttps.request("m")).toBe("secure");
});

it("over TLS sends the client certificate of `tls` to a server that requires one", async () => {
  const [own, theirs] = [selfSigned(), selfSigned()];
  await using https = await listening(createTlsServer({ ...own, ca: theirs.cert, requestCert: true }));
  await using server = await serve({
    server: https.server,
    authenticate: nameOf,
    methods: { m: (_p, { peer }) => peer.auth },
  });
  await using peer = await connect(server.url, { tls: { ca: own.cert, ...theirs } });
  expect(await peer.request("m")).toBe("localhost");
  expect(await rejection(connect(server.url, { tls: { ca: own.cert } }))).toMatchObject({ name: "ConnectError" });
});

function nameOf({ socket }: IncomingMessage): unknown {
  return (socket as TLSSocket).getPeerCertificate().subject.CN;
}

it("serves the methods, and keeps the limits, of each client, when clients have almost the same options", async () => {
  await using server = await serve({
    port: 0,
    methods: { ask: (_p, { peer }) => peer.request("name", ["x".repeat(100)]) },
  });
  const first = { methods: { name: () => "first" }, limits: { maxMessageBytes: 200 } };
  const second = { ...first, methods: { name: () => "second" } };
  const third = { ...first, limits: { maxMessageBytes: 100 } };
  const fourth = { ...first, methods: { ...first.methods, other: () => "other" } };
  const answers: unknown[] = [];
  for (const options of [first, second, first, third, fourth, first]) {
    await using peer = await connect(server.url, options);
    answers.push(await peer.request("ask").catch((error: Error) => error.constructor.name));
  }
  expect(answers).toEqual(["first", "second", "first", "RpcError", "first", "first"]);
});
