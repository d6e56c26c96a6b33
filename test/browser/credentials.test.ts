/** A page that cannot send headers, and shows its credentials by `auth`. */
import type { Page } from "playwright-core";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { AnyPeer, Attempt } from "../../src/index.js";
import { serve, type Server } from "../../src/node.js";
import { Relay } from "../support/relay.js";
import { browser } from "./browser.js";
import { openBarePage } from "./site.js";

declare global {
  var peer: AnyPeer;
  /** The names of the peer's events, in order. */
  var emitted: string[];
  /** What `auth` returns next. After the last, it throws. */
  var tokens: unknown[];
  /** The attempts for which `auth` was called: the number, and a word for the reason. */
  var asked: unknown[];
  var auth: (attempt: Attempt) => unknown;
}

interface User {
  readonly name: string;
  readonly token: string;
}

let page: Page;
let server: Server<any, any, User>;
let relay: Relay;
/** Everything that could be logged of the upgrade requests: their URLs and their headers. */
const heads: string[] = [];
/** What `authenticate` got. */
const shown: unknown[] = [];
/** The events `refresh`: the old and the new token. */
const refreshed: unknown[] = [];
const refused: number[] = [];

beforeEach(async () => {
  for (const list of [heads, shown, refreshed, refused]) list.length = 0;
  const opened = await openBarePage(await (await browser()).newContext());
  page = opened.page;
  server = await serve<any, any, User>({
    port: 0,
    origins: [`http://127.0.0.1:${opened.port}`],
    // A token is `<name>-<number>`. The name is the principal.
    authenticate({ url, rawHeaders }, auth) {
      heads.push(url!, ...rawHeaders);
      shown.push(auth);
      const token = String((auth as { token?: string } | undefined)?.token);
      const [, name] = /^(\w+)-\d+$/.exec(token) ?? [];
      return name === undefined ? null : { name, token };
    },
    principal: ({ name }) => name,
    methods: { who: (_params, { peer }) => peer.auth.token },
  });
  server.on("refresh", ({ auth }, old) => void refreshed.push([old.token, auth.token]));
  server.on("refuse", ({ status }) => void refused.push(status));
  relay = await Relay.to(server.url);
  await page.evaluate(() => {
    globalThis.tokens = [];
    globalThis.asked = [];
    globalThis.emitted = [];
    globalThis.auth = async ({ number, reason }) => {
      const why = reason as { status?: number; code?: number } | undefined;
      asked.push([number, why?.status ?? why?.code]);
      if (tokens.length === 0) throw new Error("no token is left");
      return { token: tokens.shift() };
    };
  });
});
afterEach(async () => {
  await page.context().close();
  await relay.close();
  await server.close();
});

/** Opens the page's peer, whose `auth` returns these tokens one after another. Returns how it opened. */
function openPage(tokens: string[], options: object = {}): Promise<unknown> {
  return page.evaluate(
    async ([url, given, more]) => {
      globalThis.tokens = given;
      globalThis.peer = reciproc.open(url, { auth, ...more });
      for (const name of ["suspend", "lost", "resume", "close", "error"] as const)
        peer.on(name, () => void emitted.push(name));
      return peer.opened.then(
        () => "open",
        ({ name, status }: Error & { status?: number }) => `${name} ${status}`,
      );
    },
    [relay.url, tokens, options] as const,
  );
}

const who = (): Promise<unknown> => page.evaluate(() => peer.request("who"));
const seen = (): Promise<unknown> => page.evaluate(() => ({ asked, emitted, state: peer.state }));

it("shows its first `auth` in its hello, and in no URL and no header", async () => {
  const urls: string[] = [];
  const frames: string[] = [];
  page.on("websocket", (webSocket) => {
    urls.push(webSocket.url());
    webSocket.on("framesent", ({ payload }) => frames.push(String(payload)));
  });
  expect(await openPage(["ada-1"])).toBe("open");
  expect(await who()).toBe("ada-1");
  expect(shown).toEqual([{ token: "ada-1" }]);
  expect(await seen()).toEqual({ asked: [[1, undefined]], emitted: [], state: "open" });
  expect(frames[0]).toBe('{"hello":{"auth":{"token":"ada-1"}}}');
  expect(heads).toContain("reciproc.v1, reciproc.auth");
  expect(urls).toEqual([relay.url]);
  expect([...heads, ...urls, relay.url].filter((text) => text.includes("ada"))).toEqual([]);
});

it("is refused with 4401, finally if `auth` is a value", async () => {
  const frames: string[] = [];
  page.on("websocket", (webSocket) =>
    webSocket.on("framereceived", ({ payload }) => frames.push(String(payload).slice(0, 19))),
  );
  expect(await openPage([], { auth: { token: "unknown" } })).toBe("ConnectError 401");
  expect(frames).toContain('{"bye":{"code":4401');
  expect(await page.evaluate(async () => (await peer.closed).code)).toBe(4401);
  expect([shown, refused, relay.accepted]).toEqual([[{ token: "unknown" }], [401], 1]);
  // Without an `auth`, the page is refused before its WebSocket opens.
  const status = await page.evaluate(
    (url) => reciproc.connect(url).catch((error: unknown) => (error as { status?: number }).status),
    relay.url,
  );
  expect([status, shown.slice(1)]).toEqual([401, [undefined]]);
});

it("makes one further attempt with fresh credentials after a refusal, and no third", async () => {
  expect(await openPage(["expired", "ada-2"])).toBe("open");
  expect(await who()).toBe("ada-2");
  expect(await seen()).toMatchObject({
    asked: [
      [1, undefined],
      [2, 401],
    ],
    emitted: [],
  });
  await page.evaluate(() => {
    asked.length = 0;
    return peer.close();
  });
  expect(await openPage(["expired", "expired too", "ada-3"])).toBe("ConnectError 401");
  expect(await seen()).toMatchObject({
    asked: [
      [1, undefined],
      [2, 401],
    ],
    state: "closed",
  });
  expect([relay.accepted, refused]).toEqual([4, [401, 401, 401]]);
});

it("sends a fresh `auth` on its open connection, and the server refreshes its result", async () => {
  await openPage(["ada-1", "ada-2"]);
  await page.evaluate(() => peer.reauthenticate());
  expect(await who()).toBe("ada-2");
  expect(refreshed).toEqual([["ada-1", "ada-2"]]);
  // The function throws: the call rejects, and nothing else happens.
  expect(await page.evaluate(() => peer.reauthenticate().catch(String))).toBe("Error: no token is left");
  expect(await seen()).toEqual({
    asked: [
      [1, undefined],
      [0, undefined],
      [0, undefined],
    ],
    emitted: [],
    state: "open",
  });
  expect(relay.accepted).toBe(1);
});

it.each([
  ["is refused", "expired"],
  ["is of another principal", "bo-1"],
])("is closed with 4401 if the fresh `auth` %s", async (_why, token) => {
  await openPage(["ada-1", token, "ada-2"]);
  const closed = page.evaluate(async () => {
    const outcome = await peer.reauthenticate().catch((error: unknown) => (error as { code: string }).code);
    return [outcome, (await peer.closed).code];
  });
  expect(await closed).toEqual(["CONNECTION_LOST", 4401]);
  expect(refreshed).toEqual([]);
  expect(relay.accepted).toBe(1);
});

it("resumes its session after a cut with a fresh `auth`, and the server refreshes its result", async () => {
  await openPage(["ada-1", "ada-2", "expired", "ada-3"]);
  // The session is one for both sides with the client's next frame after the reply.
  for (let i = 0; i < 2; i++) await who();
  const [of] = [...server.peers];
  relay.cut();
  await expect.poll(() => page.evaluate(() => emitted)).toEqual(["suspend", "resume"]);
  expect(await who()).toBe("ada-2");
  relay.cut();
  await expect.poll(() => page.evaluate(() => emitted)).toEqual(["suspend", "resume", "suspend", "resume"]);
  expect(await who()).toBe("ada-3");
  expect([...server.peers]).toEqual([of]);
  expect(refreshed).toEqual([
    ["ada-1", "ada-2"],
    ["ada-2", "ada-3"],
  ]);
  expect((await seen()) as object).toMatchObject({
    asked: [
      [1, undefined],
      [1, 1006],
      [1, 1006],
      [2, 401],
    ],
  });
});

it("begins another session if the fresh `auth` is of another principal", async () => {
  await openPage(["ada-1", "bo-1"]);
  for (let i = 0; i < 2; i++) await who();
  relay.cut();
  await expect.poll(() => page.evaluate(() => emitted)).toEqual(["suspend", "lost", "resume"]);
  expect(await who()).toBe("bo-1");
  expect(refreshed).toEqual([]);
});

it("reports a function that fails, and tries again", async () => {
  await openPage(["ada-1"]);
  for (let i = 0; i < 2; i++) await who();
  relay.cut();
  await expect.poll(() => page.evaluate(() => emitted)).toContain("error");
  await page.evaluate(() => void tokens.push("ada-2"));
  await expect.poll(() => page.evaluate(() => emitted.at(-1))).toBe("resume");
  expect(await who()).toBe("ada-2");
});

it("connects to the address that a function returns for each attempt", async () => {
  const state = await page.evaluate(async (target) => {
    globalThis.peer = reciproc.open(
      async ({ number }) => {
        asked.push(number);
        if (number === 1) throw new Error("no address yet");
        return target;
      },
      { auth: { token: "ada-1" }, reconnect: { initial: true } },
    );
    peer.on("error", (error) => void emitted.push((error as Error).message, String((error as Error).cause)));
    await peer.opened;
    return [asked, emitted, await peer.request("who")];
  }, relay.url);
  const message = expect.stringContaining("could not connect to the server") as string;
  expect(state).toEqual([[1, 2], [message, "Error: no address yet"], "ada-1"]);
});
