import { describe, expect, it } from "vitest";
import { serve, type Refusal } from "../../src/node.js";
import { portOf, upgrade } from "../support/network.js";

interface Rules {
  host?: string;
  hosts?: string[];
  origins?: string[] | "*";
}

const LOCAL: Rules = {};
const PUBLIC: Rules = { host: "0.0.0.0" };

/** One case: the headers, `PORT` standing for the server's, and whether they are let in. */
type Case = [what: string, rules: Rules, headers: Record<string, string>, status: 101 | 403];

async function ask(rules: Rules, given: Record<string, string>): Promise<{ status: number; refusal?: Refusal }> {
  await using server = await serve({ port: 0, ...rules });
  const port = String(portOf(server.url));
  const headers = Object.entries(given).map(([name, value]) => [name, value.replaceAll("PORT", port)]);
  let refusal: Refusal | undefined;
  server.on("refuse", (told) => (refusal = told));
  const { status } = await upgrade(server.url, Object.fromEntries(headers));
  return { status, ...(refusal && { refusal }) };
}

function check(cases: Case[]): void {
  it.each(cases)("%s", async (_what, rules, headers, status) => {
    const answer = await ask(rules, headers);
    expect(answer.status).toBe(status);
    expect(answer.refusal === undefined).toBe(status === 101);
  });
}

describe("Host, on a server bound to loopback,", () => {
  check([
    ["may be localhost, with any port", LOCAL, { Host: "localhost:1" }, 101],
    ["may be localhost without a port", LOCAL, { Host: "localhost" }, 101],
    ["may be written in capitals", LOCAL, { Host: "LocalHost:PORT" }, 101],
    ["may be 127.0.0.1", LOCAL, { Host: "127.0.0.1:PORT" }, 101],
    ["may be [::1]", LOCAL, { Host: "[::1]:PORT" }, 101],
    ["may not be another name: that is DNS rebinding", LOCAL, { Host: "evil.example:PORT" }, 403],
    ["may not begin with localhost", LOCAL, { Host: "localhost.evil.example" }, 403],
    ["may not end with localhost", LOCAL, { Host: "evil.localhost" }, 403],
    ["may not be empty", LOCAL, { Host: "" }, 403],
    ["may not hide another name behind user info", LOCAL, { Host: "localhost@evil.example" }, 403],
    ["may not hide another name in front of a path", LOCAL, { Host: "evil.example/localhost" }, 403],
    ["may not be two names", LOCAL, { Host: "localhost evil.example" }, 403],
    ["may be a listed name, with any port", { hosts: ["dev.example"] }, { Host: "dev.example:9" }, 101],
    ["may be a listed name and port", { hosts: ["dev.example:9"] }, { Host: "dev.example:9" }, 101],
    [
      "may not be a listed name on another port than the listed one",
      { hosts: ["dev.example:9"] },
      { Host: "dev.example:8" },
      403,
    ],
    ["may still be localhost when others are listed", { hosts: ["dev.example"] }, { Host: "localhost" }, 101],
    ["may not be another than the listed", { hosts: ["dev.example"] }, { Host: "evil.example" }, 403],
    ["may be none when the list is empty, but localhost", { hosts: [] }, { Host: "evil.example" }, 403],
    ["is not saved by a listed origin", { origins: "*" }, { Host: "evil.example" }, 403],
  ]);
});

describe("Host, on a server bound to every address,", () => {
  check([
    ["may be any name while none is listed", PUBLIC, { Host: "whatever.example" }, 101],
    ["may be a listed one", { ...PUBLIC, hosts: ["example.org"] }, { Host: "example.org:PORT" }, 101],
    ["may not be another than the listed", { ...PUBLIC, hosts: ["example.org"] }, { Host: "evil.example" }, 403],
    ["may not be localhost unless that is listed", { ...PUBLIC, hosts: ["example.org"] }, { Host: "localhost" }, 403],
  ]);
});

describe("Origin", () => {
  check([
    ["may be missing: that is no browser", LOCAL, {}, 101],
    ["may be the server's own", LOCAL, { Origin: "http://127.0.0.1:PORT" }, 101],
    [
      "may be loopback on any port, for a loopback host: a dev server beside it",
      LOCAL,
      { Origin: "http://localhost:5173" },
      101,
    ],
    ["may be loopback over https", LOCAL, { Origin: "https://127.0.0.1:8443" }, 101],
    ["may be [::1] for 127.0.0.1", LOCAL, { Origin: "http://[::1]:5173", Host: "127.0.0.1:PORT" }, 101],
    ["may not be another site", LOCAL, { Origin: "https://evil.example" }, 403],
    ["may not look like loopback", LOCAL, { Origin: "http://localhost.evil.example" }, 403],
    ["may not look like loopback by user info", LOCAL, { Origin: "http://localhost@evil.example" }, 403],
    ["may not be null: a sandboxed frame or a file", LOCAL, { Origin: "null" }, 403],
    ["may be null where that is listed", { origins: ["null"] }, { Origin: "null" }, 101],
    ["may not be empty", LOCAL, { Origin: "" }, 403],
    ["may not be garbage", LOCAL, { Origin: "localhost" }, 403],
    [
      "may not be loopback for a host that is not",
      PUBLIC,
      { Origin: "http://localhost:5173", Host: "example.org" },
      403,
    ],
    ["may be the host's, https by default port", PUBLIC, { Origin: "https://example.org", Host: "example.org" }, 101],
    [
      "may be the host's, https with the port spelled out",
      PUBLIC,
      { Origin: "https://example.org", Host: "example.org:443" },
      101,
    ],
    [
      "may be the host's on another port only if that is the host's too",
      PUBLIC,
      { Origin: "https://example.org:8443", Host: "example.org:8443" },
      101,
    ],
    [
      "may not be another port of a public host",
      PUBLIC,
      { Origin: "https://example.org:8443", Host: "example.org" },
      403,
    ],
    ["may not be a subdomain", PUBLIC, { Origin: "https://sub.example.org", Host: "example.org" }, 403],
    ["may be a listed one", { origins: ["https://app.example"] }, { Origin: "https://app.example" }, 101],
    [
      "may be the server's own when others are listed",
      { origins: ["https://app.example"] },
      { Origin: "http://127.0.0.1:PORT" },
      101,
    ],
    [
      "may not be the listed one over http",
      { origins: ["https://app.example"] },
      { Origin: "http://app.example" },
      403,
    ],
    [
      "may not be the listed one on another port",
      { origins: ["https://app.example"] },
      { Origin: "https://app.example:444" },
      403,
    ],
    [
      "may not be another than the listed",
      { origins: ["https://app.example"] },
      { Origin: "https://evil.example" },
      403,
    ],
    ["may be anything under *", { origins: "*" }, { Origin: "https://evil.example" }, 101],
    ["may be null under *", { origins: "*" }, { Origin: "null" }, 101],
    ["may be an app's own scheme where that is listed", { origins: ["app://main"] }, { Origin: "app://main" }, 101],
  ]);
});

describe("a refusal", () => {
  it("of a Host names it and the option that allows it", async () => {
    expect((await ask(LOCAL, { Host: "evil.example" })).refusal).toEqual({
      status: 403,
      reason: 'Host "evil.example" is not allowed; if it is yours, list it in `hosts`',
    });
  });

  it("of an Origin names it and the option that allows it", async () => {
    expect((await ask(LOCAL, { Origin: "https://evil.example" })).refusal).toEqual({
      status: 403,
      reason: 'Origin "https://evil.example" is not allowed; if it is yours, list it in `origins`',
    });
  });

  it("is followed, and the same request then passes", async () => {
    expect((await ask({ hosts: ["evil.example"] }, { Host: "evil.example" })).status).toBe(101);
    expect((await ask({ origins: ["https://evil.example"] }, { Origin: "https://evil.example" })).status).toBe(101);
  });

  it("whose listener throws is reported to `error`, and is answered all the same", async () => {
    await using server = await serve({ port: 0 });
    const bug = new Error("bug in a listener");
    const errors: unknown[] = [];
    server.on("refuse", () => {
      throw bug;
    });
    server.on("error", (error) => errors.push(error));
    expect((await upgrade(server.url, { Host: "evil.example" })).status).toBe(403);
    expect(errors).toEqual([bug]);
  });

  it("answers before anything of the request is echoed as HTML", async () => {
    await using server = await serve({ port: 0 });
    const answer = await upgrade(server.url, { Host: "<script>" });
    expect(answer.status).toBe(403);
    expect(answer.headers["content-type"]).toBe("text/plain; charset=utf-8");
    expect(Number(answer.headers["content-length"])).toBe(Buffer.byteLength(answer.body));
  });
});
