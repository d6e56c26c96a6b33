/** A runtime that lacks parts of a browser, as React Native does. */
import { beforeEach, describe, expect, it, vi } from "vitest";
import { pass, useFakeClock } from "../support/clock.js";
import { rejection } from "../support/turns.js";
import { HELLO, METHODS, network, useVirtualServer, type Answer } from "./virtual.js";

const { URL: StandardURL } = globalThis;

/** The URL of React Native: it has no setters, and most getters throw. */
class ReadonlyURL {
  readonly #href: string;
  constructor(url: string, base?: string) {
    this.#href = new StandardURL(url, base).href;
  }
  get href(): string {
    return this.#href;
  }
  toString(): string {
    return this.#href;
  }
}
for (const name of ["protocol", "host", "hostname", "port", "pathname", "search", "searchParams", "hash", "origin"])
  Object.defineProperty(ReadonlyURL.prototype, name, {
    get: () => {
      throw new Error(`URL.${name} is not implemented`);
    },
  });

/** Accepts a client, and gives it a session with a route. */
const routed: Answer = ({ line }) => {
  const socket = line.accept("reciproc.v1");
  const hello = JSON.parse(HELLO) as { hello: { session: object } };
  Object.assign(hello.hello.session, { route: "n7" });
  socket.send(JSON.stringify(hello));
};

useFakeClock();
useVirtualServer(METHODS);

describe("a client in a runtime without `TextDecoder`, and whose `URL` has only `href`", () => {
  let connect: (url: unknown, options?: object) => Promise<any>;
  beforeEach(async () => {
    vi.stubGlobal("TextDecoder", undefined);
    vi.stubGlobal("URL", ReadonlyURL);
    vi.resetModules();
    ({ connect } = (await import("../../src/index.js")) as any);
  });

  it.each([
    ["ws://server.test/rpc", undefined, "ws://server.test/rpc"],
    ["http://server.test/rpc#part", undefined, "ws://server.test/rpc"],
    ["https://server.test/", undefined, "wss://server.test/"],
    ["/rpc?room=a%20b", "https://server.test/page?x=1", "wss://server.test/rpc?room=a%20b"],
    [new StandardURL("http://server.test/rpc"), undefined, "ws://server.test/rpc"],
  ])("connects to %s", async (url, page, address) => {
    vi.stubGlobal("location", page && { href: page });
    const peer = await connect(url);
    await pass(1);
    expect(network.last.line.near.url).toBe(address);
    expect(await Promise.all([peer.request("echo", [1]), pass(1)])).toMatchObject([[1], undefined]);
    await peer.close(3000, "ü".repeat(100));
  });

  it.each([
    ["ws://server.test/rpc", "ws://server.test/rpc?node=n7"],
    ["ws://server.test/rpc?signed=a+b%20c", "ws://server.test/rpc?signed=a+b%20c&node=n7"],
  ])("resumes a session with its route: %s", async (url, resumed) => {
    network.answer = routed;
    const peer = await connect(url);
    await pass(1);
    network.cut();
    await pass(1);
    expect(network.last.line.near.url).toBe(resumed);
    await peer.close();
    await pass(0);
  });

  it("shows no secret of its URL in an error", async () => {
    network.answer = ({ line }) => line.refuse();
    const failed = rejection(connect("ws://user:s3cret@server.test/rpc?token=s3cret"));
    await pass(0);
    expect(await failed).toMatchObject({ name: "ConnectError", url: "ws://server.test/rpc" });
  });
});

describe("a function `url` that returns no URL", () => {
  it.each([
    [undefined, "`undefined`"],
    [null, "`null`"],
    [7, "`7` (number)"],
    [{}, "an object"],
    ["", "`not a URL` (string)"],
    ["ftp://s3cret", "`ftp:` (string)"],
  ])("fails the attempt, and shows what it returned: %j", async (url, shown) => {
    // A page has a base, on which `new URL(undefined, base)` is the path "undefined".
    if (typeof url !== "string") vi.stubGlobal("location", { href: "https://server.test/page" });
    const { connect } = await import("../../src/index.js");
    const failed = await rejection(connect((() => url) as () => string));
    expect(failed).toMatchObject({
      name: "ConnectError",
      cause: { message: `Expected \`url\` to be a ws, wss, http or https URL, got ${shown}` },
    });
    expect(network.attempts).toEqual([]);
  });
});
