/** Imports `redis/names`, `redis/options`: names and options can be judged without a broker there alone. */
import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { redis, type RedisOptions } from "../../src/redis/index.js";
import { SLOT_OF_TAG, TAG_COUNT } from "../../src/redis/names.js";
import { readOptions } from "../../src/redis/options.js";
import { CLUSTER_RIGHTS, RIGHTS } from "../engines/redis-rig.js";

const loginOf = (options: RedisOptions): object => readOptions(options).login;
const placeOf = (options: RedisOptions): object => readOptions(options).place;

describe("the options of redis()", () => {
  it.each<[string, object, RegExp]>([
    ["nothing that says where Redis is", {}, /exactly one of `url`, `cluster` and `sentinel`/],
    ["two places", { url: "redis://a", cluster: ["redis://a"] }, /exactly one of/],
    ["another scheme", { url: "http://a" }, /`url` to be redis:/],
    ["no URL", { url: "a:6379" }, /`url` to be redis:/],
    ["no host", { url: "redis://" }, /`url` to be redis:/],
    ["a database that is no number", { url: "redis://a/b" }, /`url` to be redis:/],
    ["a bad escape", { url: "redis://a:%zz@b" }, /`url` to be redis:/],
    ["no servers of a cluster", { cluster: [] }, /`options.cluster` to be an array|`cluster` to be an array/],
    ["a bad URL of a cluster", { cluster: ["redis://a", "b"] }, /`cluster` to be redis:/],
    ["TLS options without a URL for TLS", { url: "redis://a", tls: {} }, /`url` to be rediss:/],
    ["TLS options with a socket", { url: "unix:///a", tls: {} }, /`url` to be rediss:/],
    ["TLS for some servers only", { cluster: ["rediss://a", "redis://b"] }, /each URL of `cluster` to be rediss:/],
    ["TLS for the second server only", { cluster: ["redis://a", "rediss://b"] }, /each URL of `cluster` to be rediss:/],
    ["a Sentinel without a name", { sentinel: { urls: ["redis://a"] } }, /`sentinel.name` to be a name/],
    ["a Sentinel without URLs", { sentinel: { name: "main", urls: [] } }, /`sentinel.urls` to be an array/],
    ["a bad prefix", { url: "redis://a", prefix: "a:b" }, /`prefix` to be 1 to 64/],
    ["a long prefix", { url: "redis://a", prefix: "a".repeat(65) }, /`prefix` to be 1 to 64/],
    ["another history", { url: "redis://a", history: "some" }, /`history` to be "volatile" or "durable"/],
    ["a short lease", { url: "redis://a", leaseMs: 99 }, /`leaseMs` to be a number from 100/],
    ["an unknown name", { url: "redis://a", host: "a" }, /Unknown name `host`/],
  ])("reject %s", (_what, options, message) => {
    expect(() => redis(options)).toThrow(TypeError);
    expect(() => redis(options)).toThrow(message);
  });

  it.each<[unknown, string?]>([
    ...["redis://:5678@", "http://:5678@a", "redis://:5678@a/x", "redis://u:5678@a:b"].map((url): [object] => [
      { url },
    ]),
    ["redis://u:5678@a", "options"],
    [{ url: 5678 }, "url"],
    ...["cluster", "sentinel"].map((name): [object, string] => [{ [name]: "redis://u:5678@a" }, name]),
    [{ sentinel: { name: "main", urls: "redis://u:5678@a" } }, "sentinel.urls"],
    [{ password: 5678 }, "password"],
    [{ tls: "5678" }, "tls"],
  ])("put no password into an error, also if it has the wrong type: %j", (options, name = "url") => {
    expect(() => redis(options as never)).toThrow(TypeError);
    expect(() => redis(options as never)).toThrow(new RegExp(`^Expected \\\`${name}\\\` to be (?!.*5678)`));
  });

  it("read URLs, and the settings that the fleet applies", () => {
    expect(placeOf({ url: "redis://a" })).toEqual({ kind: "single", address: { host: "a", port: 6379 } });
    expect(placeOf({ url: "rediss://[::1]:7/2" })).toEqual({ kind: "single", address: { host: "::1", port: 7 } });
    expect(placeOf({ url: "unix:///a/b%20c" })).toEqual({ kind: "single", address: { path: "/a/b c" } });
    expect(loginOf({ url: "redis://u%40:p%3A@a/3" })).toEqual({ username: "u@", password: "p:", database: 3 });
    expect(loginOf({ url: "rediss://a", tls: { servername: "b" } })).toEqual({ tls: { servername: "b" } });
    expect(loginOf({ url: "redis://u:p@a", username: "v", password: "q" })).toEqual({ username: "v", password: "q" });
    const settings = { leaseMs: 3_000, startTimeoutMs: 1, startWithout: true };
    expect(redis({ url: "redis://a", ...settings })).toMatchObject({ name: "redis", settings });
  });

  it("keep the credentials of Sentinels apart from those of the servers", () => {
    const sentinel = { name: "main", urls: ["rediss://u:p@s1", "redis://s2:1"] };
    expect(loginOf({ sentinel, password: "q", tls: {} })).toEqual({ password: "q", tls: {} });
    expect(placeOf({ sentinel, password: "q" })).toEqual({
      kind: "sentinel",
      name: "main",
      sentinels: [
        { address: { host: "s1", port: 6379 }, login: { username: "u", password: "p", tls: {} } },
        { address: { host: "s2", port: 1 }, login: {} },
      ],
    });
  });
});

it("the tags are spread evenly over the slots of a cluster", () => {
  const ranges = SLOT_OF_TAG.map((slot) => Math.floor(slot / (16_384 / TAG_COUNT)));
  expect(ranges).toEqual(Array.from({ length: TAG_COUNT }, (_, i) => i));
});

it("the rights of the user in these tests are those that docs/API.md names", async () => {
  const document = await readFile(new URL("../../docs/API.md", import.meta.url), "utf8");
  const [, rights] = /^ACL SETUSER reciproc on >password (.*)$/m.exec(document) ?? [];
  expect(rights).toBe(RIGHTS.replaceAll("test-*:", "chat:"));
  const rows = document.matchAll(/^\| a server of a cluster +\| `(.*?)` +\|/gm);
  expect(Array.from(rows, ([, further]) => further!.replaceAll("\\|", "|")).join(" ")).toBe(CLUSTER_RIGHTS);
});
