/** Bytes between a page in a real Chromium and a server. */
import { createHash } from "node:crypto";
import type { Page } from "playwright-core";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { bytes, bytesOf, serve, type Server } from "../../src/node.js";
import { Relay } from "../support/relay.js";
import { browser } from "./browser.js";
import { openBarePage } from "./site.js";

declare global {
  var peer: AnyPeer;
  /** Returns bytes that are no text, the same for each `seed`. */
  var makeHere: (length: number, seed?: number) => Uint8Array<ArrayBuffer>;
  /** Returns the SHA-256 of bytes. */
  var digestHere: (view: Uint8Array<ArrayBuffer>) => Promise<string>;
}

const MB = 1_000_000;

let page: Page;
let server: Server<any, any, any>;
let relay: Relay;
/** The seeds of the bytes that were notified, in order. */
const noted: number[] = [];
/** The kinds of the values that came in params. */
const kinds = new Set<string>();

function make(length: number, seed = 0): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length }, (_, i) => (i * 31 + (i >> 8) + seed) & 255);
}

function digest(view: Uint8Array): string {
  return createHash("sha256").update(view).digest("hex");
}

function kindOf(value: unknown): string {
  return value instanceof Uint8Array ? "view" : typeof value;
}

const methods = {
  echo({ name, data }: { name: string; data: unknown }) {
    kinds.add(kindOf(data));
    const view = bytesOf(data);
    return { name, digest: digest(view), data: bytes(view) };
  },
  note(params: [seed: number, data: unknown]) {
    const [seed, data] = params;
    noted.push(digest(bytesOf(data)) === digest(make(50_000, seed)) ? seed : -1);
    if (noted.length === 20) relay.cut();
  },
  async upload({ file }: { file: never }, { peer }: { peer: AnyPeer }) {
    const hash = createHash("sha256");
    let size = 0;
    for await (const part of peer.iterate(file)) {
      kinds.add(kindOf(part));
      const view = bytesOf(part);
      size += view.length;
      hash.update(view);
    }
    return { size, digest: hash.digest("hex") };
  },
  async *download() {
    for (let i = 0; i < 3; i++) yield make(100_000, i);
  },
};

beforeEach(async () => {
  noted.length = 0;
  kinds.clear();
  const opened = await openBarePage(await (await browser()).newContext());
  page = opened.page;
  server = await serve<any, any, any>({
    port: 0,
    origins: [`http://127.0.0.1:${opened.port}`],
    methods: methods as never,
  });
  relay = await Relay.to(server.url);
  await page.evaluate(() => {
    globalThis.makeHere = (length, seed = 0) => Uint8Array.from({ length }, (_, i) => (i * 31 + (i >> 8) + seed) & 255);
    globalThis.digestHere = async (view) =>
      [...new Uint8Array(await crypto.subtle.digest("SHA-256", view))]
        .map((byte) => byte.toString(16).padStart(2, "0"))
        .join("");
  });
});
afterEach(async () => {
  await page.context().close();
  await relay.close();
  await server.close();
});

/** Connects the page. `takesBytes`: with the option `bytes`. */
async function connectPage(takesBytes: boolean, options: object = {}): Promise<void> {
  await page.evaluate(
    async ([url, hasOption, more]) => {
      globalThis.peer = await reciproc.connect(url, { ...more, ...(hasOption && { bytes: reciproc.bytes }) });
    },
    [relay.url, takesBytes, options] as const,
  );
}

/** Sends bytes from the page and back. Returns what the page found. */
function echo(total: number): Promise<unknown> {
  return page.evaluate(async (length) => {
    const sent = makeHere(length);
    const answer = await peer.request("echo", { name: "ä", data: reciproc.bytes(sent) });
    const { name, digest: there, data } = answer as { name: string; digest: string; data: unknown };
    const view = reciproc.bytesOf(data) as Uint8Array<ArrayBuffer>;
    const kind = data instanceof Uint8Array ? "view" : typeof data;
    return { name, kind, length: view.length, there, here: await digestHere(view), own: await digestHere(sent) };
  }, total);
}

it("sends 1 MB in a binary frame and back, unchanged", async () => {
  const frames: (string | Buffer)[] = [];
  page.on("websocket", (webSocket) =>
    webSocket
      .on("framesent", ({ payload }) => frames.push(payload))
      .on("framereceived", ({ payload }) => frames.push(payload)),
  );
  await connectPage(true);
  const hash = digest(make(MB));
  expect(await echo(MB)).toEqual({ name: "ä", kind: "view", length: MB, there: hash, here: hash, own: hash });
  expect([...kinds]).toEqual(["view"]);
  const sizes = frames.filter((frame) => typeof frame !== "string").map(({ length }) => length);
  expect(sizes).toHaveLength(2);
  for (const size of sizes) expect(size).toBeLessThan(MB + 300);
});

it.each<[string, boolean, object]>([
  ["on a plain link", true, { link: "plain" }],
  ["without the option `bytes`", false, {}],
])("sends bytes as base64 %s, which `bytesOf` reads on both sides", async (_what, takesBytes, options) => {
  await connectPage(takesBytes, options);
  // Base64 of 1 MB is longer than the longest message of the server.
  const length = MB / 2;
  const hash = digest(make(length));
  expect(await echo(length)).toEqual({ name: "ä", kind: "string", length, there: hash, here: hash, own: hash });
  expect([...kinds]).toEqual(["string"]);
});

it.each([true, false])(
  "streams a Blob to the server, in a browser with async iterators of web streams: %s",
  async (has) => {
    await connectPage(true);
    const length = 3 * MB;
    const outcome = await page.evaluate(
      async ([size, keeps]) => {
        if (!keeps) {
          delete (ReadableStream.prototype as { values?: unknown }).values;
          delete (ReadableStream.prototype as { [Symbol.asyncIterator]?: unknown })[Symbol.asyncIterator];
        }
        const blob = new Blob([makeHere(size)]);
        return peer.request("upload", { file: peer.offer(blob.stream()) });
      },
      [length, has] as const,
    );
    expect(outcome).toEqual({ size: length, digest: digest(make(length)) });
    expect([...kinds]).toEqual(["view"]);
  },
);

it("reads a stream of bytes of the server", async () => {
  await connectPage(true);
  const read = await page.evaluate(async () => {
    const parts: Uint8Array<ArrayBuffer>[] = [];
    for await (const part of peer.stream("download")) parts.push(part as Uint8Array<ArrayBuffer>);
    return digestHere(new Uint8Array(await new Blob(parts).arrayBuffer()));
  });
  expect(read).toBe(digest(Buffer.concat([0, 1, 2].map((seed) => make(100_000, seed)))));
});

it("replays bytes after a cut, unchanged and once", async () => {
  await connectPage(true);
  await page.evaluate(async () => {
    for (let i = 0; i < 2; i++) await peer.request("upload", { file: peer.offer([]) });
    for (let seed = 0; seed < 55; seed++) {
      // The page reuses its buffer after each message.
      const view = makeHere(50_000, seed);
      peer.notify("note", [seed, reciproc.bytes(view)]);
      view.fill(0);
    }
  });
  await expect.poll(() => noted.length).toBe(55);
  expect(noted).toEqual(Array.from({ length: 55 }, (_, i) => i));
  await expect.poll(() => relay.accepted).toBe(2);
});
