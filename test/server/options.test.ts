import { createServer } from "node:http";
import { describe, expect, it } from "vitest";
import { serve } from "../../src/node.js";
import { rejection } from "../support/turns.js";

const BAD: Record<string, unknown[]> = {
  port: [-1, 65536, 1.5, "3000", null, NaN],
  host: ["", 127],
  path: ["rpc", "/rpc?a", 5, null],
  authenticate: [{}, null, false],
  origins: ["https://example.org", null],
  "origins[0]": [
    "example.org",
    "https://example.org/",
    "https://Example.org",
    "https://example.org:443",
    "*",
    "localhost:5173",
    "mailto:x",
    "https://*.example.org",
    "app://example?a",
    5,
  ].map((origin) => [origin]),
  hosts: ["example.org", null],
  "hosts[0]": ["", 5, "https://example.org", "example.org/", "*/", "*", "*.example.org"].map((host) => [host]),
  post: [200, null],
  "post.notificationStatus": [202, "200", null].map((notificationStatus) => ({ notificationStatus })),
  session: [true, null, 5, "60000", []],
  "session.ttlMs": [0, -1, 1.5, "5", Infinity, null].map((ttlMs) => ({ ttlMs })),
  "heartbeat.intervalMs": [{ intervalMs: 0 }],
  "heartbeat.deadAfterMs": [{ intervalMs: 50, deadAfterMs: 50 }],
  timeoutMs: [0],
  fallback: [5],
  around: [{}],
  methods: [[]],
  limits: [5, null],
  "limits.maxConnections": [0, -1, 1.5, NaN, "5", null].map((maxConnections) => ({ maxConnections })),
  "limits.handshakeTimeoutMs": [0, NaN, "5"].map((handshakeTimeoutMs) => ({ handshakeTimeoutMs })),
  // `ws` would read 3 GiB as no limit.
  "limits.maxMessageBytes": [3 * 2 ** 30, 2 ** 31, Infinity].map((maxMessageBytes) => ({ maxMessageBytes })),
};

describe("serve with options", () => {
  it.each(Object.entries(BAD))("refuses a bad %s, and names it and the value", async (name, values) => {
    const [option, member] = name.split(/[.[]/) as [string, string?];
    for (const [i, value] of values.entries()) {
      // The link has no effect on the options.
      const error = await rejection(serve({ port: 0, link: i % 2 === 0 ? "plain" : "packed", [option]: value }));
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toContain(`\`${name}\``);
      const at = member === undefined ? value : (value as Record<string, unknown>)[member.replace("]", "")];
      if (typeof at === "number" || typeof at === "string") expect(error.message).toContain(`\`${at}\``);
    }
  });

  it.each<[options: object, ...named: string[]]>([
    [{}, "`port`, `server` and `noServer`", "got 0"],
    [{ noServer: false }, "got 0"],
    [{ port: 0, noServer: true }, "got 2"],
    [{ server: 5 }, "`server`"],
    [{ server: {} }, "`server`"],
    [{ port: 0, server: createServer() }, "got 2"],
    [{ port: 0, server: createServer(), noServer: true }, "got 3"],
    [{ noServer: true, host: "localhost" }, "`host`", "`port`"],
    [{ port: 0, principal: () => "ada" }, "`principal`", "`authenticate`"],
    [{ port: 0, principal: "ada", authenticate: () => "ada" }, "`principal`"],
    [{ port: 0, expiresInMs: () => 5 }, "`expiresInMs`", "`authenticate`"],
    [{ port: 0, post: { status: 200 } }, "`status`", "`post`", "notificationStatus"],
    [{ port: 0, heartbeat: { interval: 5 } }, "`interval`", "`heartbeat`", "intervalMs, deadAfterMs"],
    [{ port: 0, session: { ttl: 5 } }, "`ttl`", "`session`", "ttlMs"],
    [{ port: 0, origin: "*" }, "`origin`", "`options`", "origins", "methods", "onForeignMessage"],
    [{ port: 0, limits: { maxConections: 5 } }, "`maxConections`", "`limits`", "maxConnections", "maxMessageBytes"],
  ])("refuses options that do not fit together, and unknown names (case %#)", async (options, ...named) => {
    const error = await rejection(serve(options as never));
    expect(error).toBeInstanceOf(TypeError);
    for (const part of named) expect(error.message).toContain(part);
  });

  it("leaves nothing listening if an option is invalid", async () => {
    const http = createServer();
    await rejection(serve({ server: http, timeoutMs: -1 }));
    expect(http.listenerCount("upgrade")).toBe(0);
  });
});
