import { describe, expect, it } from "vitest";
import { connect } from "../../src/node.js";
import { virtualClock } from "../../src/testing/index.js";
import { rejection } from "../support/turns.js";
import { beginListening, file, run } from "./program.js";

const API = `export default {
  add: ([a, b]) => a + b,
  ask: (_params, { peer }) => peer.request("confirm"),
  async rename() { throw new RangeError("too long"); },
  fail() { throw new TypeError("two\\n  lines\\t \\r\\n and \\u001b[2J a third"); },
  text() { throw "a text"; },
  thing() { throw { a: 1 }; },
  nothing() { throw null; },
  hostile() { throw Object.defineProperty(new Error("x"), "message", { get() { throw 1; } }); },
  hang: () => new Promise(() => {}),
};\n`;

const serving = async (...args: string[]) => beginListening(["serve", await file("api.mjs", API), ...args]);

describe("reciproc serve", () => {
  it("prints its address in its first line, and serves the file's methods there", async () => {
    const { url, signal, ended } = await serving("--path", "/rpc");
    expect(url).toMatch(/^ws:\/\/127\.0\.0\.1:\d+\/rpc$/);
    expect(await run(["call", url, "add", "[1,2]"])).toMatchObject({ code: 0, stdout: "3\n" });
    await using peer = await connect(url, { reconnect: false, methods: { confirm: () => "yes" } });
    expect(await peer.request("ask")).toBe("yes");
    signal("SIGTERM");
    expect((await peer.closed).code).toBe(1001);
    expect(await ended).toEqual({ code: 0, stdout: `listening on ${url}\n`, stderr: "" });
  });

  it.each([
    ["after --drain-timeout on SIGTERM", "SIGTERM", ["--drain-timeout", "50"], 50],
    ["at once on SIGINT", "SIGINT", [], 0],
  ] as const)("aborts running handlers %s, and exits 0", async (_when, name, options, ms) => {
    using clock = virtualClock();
    const { signal, ended, url } = await serving(...options);
    await using peer = await connect(url, { reconnect: false });
    const call = rejection(peer.request("hang"));
    // The handler runs when this call is answered.
    await peer.request("add", [1, 2]);
    signal(name);
    if (ms > 0) {
      await clock.pass(ms - 1);
      // The call still runs when this one is answered.
      await peer.request("add", [1, 2]);
      expect(peer.stats().pending).toBe(1);
    }
    await clock.pass(1);
    expect(await call).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
  });

  it("prints an error of a handler in one line, however many it has, with the method and the place in the file", async () => {
    const { url, until } = await serving();
    await using peer = await connect(url);
    peer.notify("rename");
    for (const method of ["rename", "fail", "text", "thing", "nothing", "hostile"])
      await expect(peer.request(method)).rejects.toMatchObject({ code: -32603, message: "Internal error" });
    await expect(peer.request("missing")).rejects.toMatchObject({ code: -32601 });
    await expect(peer.request("ask")).rejects.toMatchObject({ code: -32603 });
    await until("stderr", "ask: ");
    const place = expect.stringMatching(/^rename: RangeError: too long \(\/.*api\.mjs:4:26\)$/) as string;
    expect((await until("stderr", "Method not found")).split("\n").slice(0, -1)).toEqual([
      place,
      place,
      expect.stringMatching(/^fail: TypeError: two lines and \\u001b\[2J a third \(\/.*api\.mjs:5:18\)$/),
      // A thrown primitive cannot carry the method name.
      "error: 'a text'",
      "thing: { a: 1 }",
      "error: null",
      "hostile: a value that cannot be shown",
      // A handler received it from its caller and did not catch it.
      expect.stringMatching(/^ask: RpcError: Method not found/),
    ]);
  });

  it("names its own options when it refuses a path, a host or an origin, and accepts the allowed ones", async () => {
    const page = { Host: "example.org", Origin: "https://app.example.org" };
    const strict = await serving("--path", "/rpc");
    await expect(connect(strict.url.replace("/rpc", "/other"))).rejects.toMatchObject({ status: 404 });
    await expect(connect(strict.url, { headers: page })).rejects.toMatchObject({ status: 403 });
    const named = await serving("--allow-host", "example.org");
    await expect(connect(named.url, { headers: page })).rejects.toMatchObject({ status: 403 });
    expect(await strict.until("stderr", "example")).toMatch(
      /^refused 127\.0\.0\.1: 404, .*--path.*\nrefused 127\.0\.0\.1: 403, .*"example\.org".*--allow-host\n$/,
    );
    expect(await named.until("stderr", "\n")).toMatch(
      /^refused 127\.0\.0\.1: 403, .*"https:\/\/app\.example\.org".*--allow-origin\n$/,
    );
    const open = await serving(
      "--allow-host=other.example",
      "--allow-host=example.org",
      "--allow-origin=https://other.example",
      "--allow-origin=https://app.example.org",
    );
    await using peer = await connect(open.url, { headers: page });
    expect(await peer.request("add", [1, 2])).toBe(3);
  });

  it("shows a host as it was sent, even one that looks like an option", async () => {
    const { url, until } = await serving();
    await expect(connect(url, { headers: { Host: "`constructor`" } })).rejects.toMatchObject({ status: 403 });
    expect(await until("stderr", "\n")).toContain('Host "`constructor`" is not allowed');
  });

  it("exits 2 when it cannot listen", async () => {
    const { url } = await serving();
    const { port } = new URL(url);
    const args = ["serve", await file("api.mjs", API), "--port", port];
    const stderr = `cannot listen on 127.0.0.1:${port}: the address is in use\n`;
    expect(await run(args)).toEqual({ code: 2, stdout: "", stderr });
    expect((await run([...args, "--host", "none.invalid"])).stderr).toContain("getaddrinfo");
  });

  it.each([
    ["an ES module", "api.mjs", "export default { then: ([value]) => value };"],
    ["CommonJS", "api.cjs", "module.exports = { then(params) { return params[0]; }, add() {} };"],
    [
      "a module that exports a function `then`",
      "two.mjs",
      "export function then() {} export default { then: ([value]) => value };",
    ],
  ])("serves a method that is named `then` (%s)", async (_which, name, text) => {
    const { url, signal, ended } = await beginListening(["serve", await file(name, text)]);
    await using peer = await connect(url, { reconnect: false });
    expect(await peer.request("then", ["served"])).toBe("served");
    signal("SIGINT");
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
  });

  it.each([
    ["throws", 'throw new Error("no luck");', /cannot load ".*": Error: no luck \(.*api\.mjs:1:7\)/],
    ["is not JavaScript", "export default {", /cannot load ".*": SyntaxError: .*node --check .* shows the place/],
    [
      "imports what is not there",
      'import "no-such-package-here";',
      /cannot load ".*Cannot find package 'no-such-package-here'/,
    ],
    ["has no default export", "export const add = 1;", /has no default export/],
    ["exports no object", "export default 3;", /is not a plain object of methods/],
    ["exports an instance", "export default new (class A { add() {} })();", /is not a plain object of methods/],
    ["exports nothing callable", "export default {};", /holds no methods/],
    [
      "holds something not a function",
      "export default { add() {}, version: 3 };",
      /"version" in the default export of ".*" is not a function/,
    ],
  ])("exits 64 with one line when the file %s", async (_name, text, message) => {
    const { code, stdout, stderr } = await run(["serve", await file("api.mjs", text), "--port", "0"]);
    expect({ code, stdout }).toEqual({ code: 64, stdout: "" });
    expect(stderr).toMatch(message);
    expect(stderr).toMatch(/^reciproc serve: [^\n]*; see `reciproc serve --help`\n$/);
  });

  // Newer versions of Node load .ts, but none loads .tsx.
  it("prints the remedy for a file in TypeScript, given or imported", async () => {
    const given = await file("api.tsx", API);
    const importer = await file("api.mjs", `export { default } from ${JSON.stringify(given)};`);
    for (const path of [given, importer]) {
      expect(await run(["serve", path, "--port", "0"])).toEqual({
        code: 64,
        stdout: "",
        stderr: expect.stringMatching(
          /^reciproc serve: cannot load .*Unknown file extension "\.tsx".*; compile it first, or run with .*--import tsx[^\n]*\n$/,
        ) as string,
      });
    }
    expect((await run(["serve", await file("api.yaml", "")])).stderr).not.toContain("tsx");
  });
});
