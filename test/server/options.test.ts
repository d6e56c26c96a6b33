import { createServer } from "node:http";
import { describe, expect, it } from "vitest";
import { serve } from "../../src/node.js";
import { rejection } from "../support/turns.js";

const ORIGIN = 'an origin as browsers send it, such as "https://example.org"';
const HOST = 'a whole name such as "example.org", listed once for each name';
const ORIGINS = 'a list of origins such as "https://example.org", or "*"';
const PATH = 'a string that begins with "/" and has no "?"';
const HOSTS = 'a list of names such as "example.org"';
const PORT = "a whole number from 0 to 65535";

describe("serve with options", () => {
  it.each<[name: string, value: unknown, rule: string, shown: string]>([
    ["port", -1, PORT, "`-1` (number)"],
    ["port", 65536, PORT, "`65536` (number)"],
    ["port", 1.5, PORT, "`1.5` (number)"],
    ["port", "3000", PORT, "`3000` (string)"],
    ["port", null, PORT, "`null`"],
    ["port", NaN, PORT, "`NaN` (number)"],
    ["host", "", "a non-empty string", "`` (string)"],
    ["host", 127, "a non-empty string", "`127` (number)"],
    ["path", "rpc", PATH, "`rpc` (string)"],
    ["path", "/rpc?a", PATH, "`/rpc?a` (string)"],
    ["path", 5, PATH, "`5` (number)"],
    ["path", null, PATH, "`null`"],
    ["authenticate", {}, "a function", "an object"],
    ["authenticate", null, "a function", "`null`"],
    ["authenticate", false, "a function", "`false` (boolean)"],
    ["origins", "https://example.org", ORIGINS, "`https://example.org` (string)"],
    ["origins[0]", ["example.org"], ORIGIN, "`example.org` (string)"],
    ["origins[0]", ["https://example.org/"], ORIGIN, "`https://example.org/` (string)"],
    ["origins[0]", ["https://Example.org"], ORIGIN, "`https://Example.org` (string)"],
    ["origins[0]", ["https://example.org:443"], ORIGIN, "`https://example.org:443` (string)"],
    ["origins[0]", ["*"], ORIGIN, "`*` (string)"],
    ["origins[0]", ["localhost:5173"], ORIGIN, "`localhost:5173` (string)"],
    ["origins[0]", ["mailto:x"], ORIGIN, "`mailto:x` (string)"],
    ["origins[0]", ["https://*.example.org"], ORIGIN, "`https://*.example.org` (string)"],
    ["origins[0]", ["app://example?a"], ORIGIN, "`app://example?a` (string)"],
    ["origins[0]", [5], ORIGIN, "`5` (number)"],
    ["origins", null, ORIGINS, "`null`"],
    ["hosts", "example.org", HOSTS, "`example.org` (string)"],
    ["hosts[0]", [""], HOST, "`` (string)"],
    ["hosts[0]", [5], HOST, "`5` (number)"],
    ["hosts[0]", ["https://example.org"], HOST, "`https://example.org` (string)"],
    ["hosts[0]", ["example.org/"], HOST, "`example.org/` (string)"],
    ["hosts[0]", ["*/"], HOST, "`*/` (string)"],
    ["hosts[0]", ["*"], HOST, "`*` (string)"],
    ["hosts[0]", ["*.example.org"], HOST, "`*.example.org` (string)"],
    ["hosts", null, HOSTS, "`null`"],
    ["post", 200, "an object", "`200` (number)"],
    ["post", null, "an object", "`null`"],
    ["post.notificationStatus", { notificationStatus: 202 }, "200 or 204", "`202` (number)"],
    ["post.notificationStatus", { notificationStatus: "200" }, "200 or 204", "`200` (string)"],
    ["post.notificationStatus", { notificationStatus: null }, "200 or 204", "`null`"],
    ["session", true, "`{ ttlMs }` or `false`", "`true` (boolean)"],
    ["session", null, "`{ ttlMs }` or `false`", "`null`"],
    ["session", 5, "`{ ttlMs }` or `false`", "`5` (number)"],
    ["session", "60000", "`{ ttlMs }` or `false`", "`60000` (string)"],
    ["heartbeat.intervalMs", { intervalMs: 0 }, "a positive number", "`0` (number)"],
    [
      "heartbeat.deadAfterMs",
      { intervalMs: 50, deadAfterMs: 50 },
      "more than `heartbeat.intervalMs`, 50, and finite",
      "`50` (number)",
    ],
    ["timeoutMs", 0, "a positive number", "`0` (number)"],
    ["fallback", 5, "a function", "`5` (number)"],
    ["around", {}, "a function", "an object"],
    ["methods", [], "a plain object", "an array"],
    ["limits", 5, "an object", "`5` (number)"],
    ["limits", null, "an object", "`null`"],
  ])("refuses a bad %s (case %#), and names it, the rule and the value", async (name, value, rule, shown) => {
    const [option] = name.split(/[[.]/) as [string];
    const error = await rejection(serve({ port: 0, [option]: value }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe(`Expected \`${name}\` to be ${rule}, got ${shown}`);
  });

  it.each([5, {}, null])("refuses %s for an HTTP server", async (server) => {
    const error = await rejection(serve({ server: server as never }));
    expect(error.message).toMatch(/^Expected `server` to be an http.Server, got /);
  });

  it.each<[object, string]>([
    [{}, "Expected exactly one of `port`, `server` and `noServer`, got 0"],
    [{ noServer: false }, "Expected exactly one of `port`, `server` and `noServer`, got 0"],
    [{ port: 0, noServer: true }, "Expected exactly one of `port`, `server` and `noServer`, got 2"],
    [{ port: 0, server: createServer() }, "Expected exactly one of `port`, `server` and `noServer`, got 2"],
    [
      { port: 0, server: createServer(), noServer: true },
      "Expected exactly one of `port`, `server` and `noServer`, got 3",
    ],
    [{ noServer: true, host: "localhost" }, "`host` requires `port`"],
    [{ port: 0, principal: () => "ada" }, "`principal` requires `authenticate`"],
    [
      { port: 0, principal: "ada", authenticate: () => "ada" },
      "Expected `principal` to be a function, got `ada` (string)",
    ],
    [{ port: 0, post: { status: 200 } }, "Unknown name `status` in `post`; known are notificationStatus"],
    [
      { port: 0, heartbeat: { interval: 5 } },
      "Unknown name `interval` in `heartbeat`; known are intervalMs, deadAfterMs",
    ],
    [
      { port: 0, origin: "*" },
      "Unknown name `origin` in `options`; known are port, host, server, noServer, path, link, authenticate, origins, hosts, heartbeat, session, principal, engine, topics, nodes, post, " +
        "methods, schemas, contract, remote, check, timeoutMs, retry, fallback, around, limits, dialect, compat, onForeignMessage, bytes",
    ],
    [
      { port: 0, limits: { maxConections: 5 } },
      "Unknown name `maxConections` in `limits`; known are maxConnections, handshakeTimeoutMs, maxSuspendedPerPrincipal, maxSuspendedBytes, " +
        "maxMessageBytes, maxReplyBytes, maxBatchEntries, maxInFlight, maxStreams, maxUnsentBytes, maxMessagesPerSecond, maxMalformedPerMinute",
    ],
  ])("refuses options that do not fit together, and unknown names (case %#)", async (options, message) => {
    const error = await rejection(serve(options as never));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe(message);
  });

  it.each(["maxConnections", "handshakeTimeoutMs"])(
    "refuses a limits.%s out of range, and accepts Infinity",
    async (name) => {
      for (const value of [0, -1, 1.5, NaN, "5", null]) {
        const error = await rejection(serve({ port: 0, limits: { [name]: value } }));
        expect(error).toBeInstanceOf(TypeError);
        expect(error.message).toContain(`Expected \`limits.${name}\` to be a whole number from 1 to Infinity, got `);
      }
      await using server = await serve({ noServer: true, limits: { [name]: Infinity } });
      expect(server.url).toBe("");
    },
  );

  it("refuses a peer's limit out of range, including 3 GiB, which ws would read as no limit", async () => {
    for (const value of [3 * 2 ** 30, 2 ** 31, Infinity]) {
      const error = await rejection(serve({ port: 0, limits: { maxMessageBytes: value } }));
      expect(error.message).toBe(
        `Expected \`limits.maxMessageBytes\` to be a whole number from 1 to 268435456, got \`${value}\` (number)`,
      );
    }
  });

  it.each([[], { ttl: 5 }, ...[0, -1, 1.5, "5", Infinity, null].map((ttlMs) => ({ ttlMs }))])(
    "refuses the session %j, with any link",
    async (session) => {
      for (const link of ["packed", "plain"] as const) {
        const error = await rejection(serve({ port: 0, link, session: session as never }));
        expect(error).toBeInstanceOf(TypeError);
        expect(error.message).toContain("session");
      }
    },
  );

  it("leaves nothing listening if an option is invalid", async () => {
    const http = createServer();
    await rejection(serve({ server: http, timeoutMs: -1 }));
    expect(http.listenerCount("upgrade")).toBe(0);
  });
});
