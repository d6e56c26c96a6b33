/** Imports `nats/client`, `nats/names`, `nats/options`: names and options can be judged without a broker there alone. */
import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { lackOf } from "../../src/nats/client.js";
import { nats } from "../../src/nats/index.js";
import { Names } from "../../src/nats/names.js";
import { readOptions } from "../../src/nats/options.js";
import { rightsOf } from "../engines/nats-rig.js";

describe("the options of nats()", () => {
  it.each<[string, object, RegExp]>([
    ["nothing that says where NATS is", {}, /`url` to be a URL, or an array/],
    ["no servers", { url: [] }, /`url` to be a URL, or an array/],
    ["another scheme", { url: "http://a" }, /`url` to be nats:/],
    ["no URL", { url: "a:4222" }, /`url` to be nats:/],
    ["no host", { url: "nats://" }, /`url` to be nats:/],
    ["a bad escape", { url: "nats://a:%zz@b" }, /`url` to be nats:/],
    ["a bad URL among several", { url: ["nats://a", "b"] }, /`url` to be nats:/],
    ["a bad prefix", { url: "nats://a", prefix: "a.b" }, /`prefix` to be 1 to 64/],
    ["a long prefix", { url: "nats://a", prefix: "a".repeat(65) }, /`prefix` to be 1 to 64/],
    ["two replicas", { url: "nats://a", jetstream: { replicas: 2 } }, /`jetstream.replicas` to be 1, 3 or 5/],
    ["too few bytes", { url: "nats://a", jetstream: { bytes: 1 } }, /`jetstream.bytes` to be a whole number from 2/],
    ["a short lease", { url: "nats://a", leaseMs: 99 }, /`leaseMs` to be a number from 100/],
    ["an unknown name", { url: "nats://a", host: "a" }, /Unknown name `host`/],
  ])("reject %s", (_what, options, message) => {
    expect(() => nats(options as never)).toThrow(TypeError);
    expect(() => nats(options as never)).toThrow(message);
  });

  it.each<[unknown, string?]>([
    ...["nats://:5678@", "http://:5678@a", "nats://u:5678@a:b"].map((url): [object] => [{ url }]),
    ["nats://u:5678@a", "options"],
    [{ url: 5678 }, "url"],
    ...["password", "token"].map((name): [object, string] => [{ url: "nats://a", [name]: 5678 }, name]),
    [{ url: "nats://a", tls: "5678" }, "tls"],
  ])("put no password into an error, also if it has the wrong type: %j", (options, name = "url") => {
    expect(() => nats(options as never)).toThrow(TypeError);
    expect(() => nats(options as never)).toThrow(new RegExp(`^Expected \\\`${name}\\\` to be (?!.*5678)`));
  });

  it("read URLs, and the settings that the fleet applies", () => {
    expect(readOptions({ url: "nats://a" })).toMatchObject({ servers: ["a:4222"], login: {}, tls: undefined });
    expect(readOptions({ url: "tls://[::1]:7" })).toMatchObject({ servers: ["[::1]:7"], tls: {} });
    const urls = ["nats://u%40:p%3A@a", "nats://b:1"];
    expect(readOptions({ url: urls })).toMatchObject({
      servers: ["a:4222", "b:1"],
      login: { user: "u@", pass: "p:" },
      jetstream: undefined,
    });
    expect(readOptions({ url: urls, username: "v", password: "q" }).login).toEqual({ user: "v", pass: "q" });
    expect(readOptions({ url: "nats://a", token: "t" }).login).toEqual({ token: "t" });
    expect(readOptions({ url: "nats://a", jetstream: {} }).jetstream).toEqual({ replicas: 1, bytes: 2 ** 27 });
    const settings = { leaseMs: 3_000, startTimeoutMs: 1, startWithout: true };
    expect(nats({ url: "nats://a", ...settings })).toMatchObject({ name: "nats", settings });
  });
});

it.each([
  ["2.8.4", undefined, "2.9.0"],
  ["", undefined, "2.9.0"],
  ["1.99.99", 1, "2.9.0"],
  ["2.10.18", 3, "2.10.19"],
  ["2.9.25", 5, "2.10.19"],
  ["2.9.0", undefined, undefined],
  ["2.9.10", 1, undefined],
  ["2.10.19", 3, undefined],
  ["2.10.27-RC.1", 3, undefined],
  ["2.11.0", 5, undefined],
  ["3.0.0", 3, undefined],
])("the server of version %j is too old for %s replicas if it is before %s", (version, replicas, needed) => {
  const lack = lackOf(version, replicas);
  if (needed === undefined) expect(lack).toBeUndefined();
  else expect(lack).toMatch(new RegExp(`^version ${version || "unknown"} is too old: ${needed} or later is needed`));
});

it("the names in NATS fit into a line of the protocol, which has 4,096 bytes", () => {
  const names = new Names("p".repeat(64));
  const topic = "ß".repeat(256);
  const longest = [names.log(topic), names.channel(`t:${topic}`), names.key(topic, "e", "ß".repeat(256))];
  for (const name of longest) expect(name.length).toBeLessThan(2_000);
});

it("the rights of the user in these tests are those that docs/API.md names", async () => {
  const document = await readFile(new URL("../../docs/API.md", import.meta.url), "utf8");
  const listOf = (name: string): Set<string> => {
    const [, list] = new RegExp(`^${name} = (\\[[^\\]]*\\])$`, "m").exec(document) ?? [];
    return new Set(JSON.parse(list ?? "[]") as string[]);
  };
  const { own, streams } = rightsOf("chat");
  expect(listOf("publish")).toEqual(new Set([...own, ...streams]));
  expect(listOf("subscribe")).toEqual(new Set(own));
});
