import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import type { Change, ClientApi, ServerApi } from "../../demo/api.js";
import { SharedDocument } from "../../demo/documents.js";
import type { Peer } from "../../src/node.js";
import { connect } from "../support/connect.js";
import { interceptSent, type Sending } from "./browser.js";
import { startDemo, withTwo } from "./demo.js";
import { goTo, line, ready, reloadEditor, same, squiggles, textOf, visitEditor, withTwoEditors } from "./editor.js";

/** The connection ends at the second edit, and reconnecting fails until "mend". A page receives nothing after `close()`. */
const endAtSecond = (isSent: boolean): Sending => {
  let isCut = false;
  return (text, send, webSocket) => {
    const isEnd = !isCut && text.includes('"edit"') && text.includes("/* two */");
    if (!isEnd || isSent) send(text);
    if (!isEnd) return;
    isCut = true;
    webSocket.close();
    const { WebSocket: Usual } = globalThis;
    globalThis.WebSocket = class extends Usual {
      constructor() {
        super("ws://127.0.0.1:9");
      }
    };
    document.addEventListener("mend", () => (globalThis.WebSocket = Usual));
  };
};

/** Delays what the page sends from "delay" until "release". */
const sendLate = (): Sending => {
  let queued: (() => void)[] | undefined;
  document.addEventListener("delay", () => (queued = []));
  document.addEventListener("release", () => {
    for (const send of queued!) send();
    queued = undefined;
  });
  return (text, send) => (queued === undefined ? send(text) : void queued.push(() => send(text)));
};

describe("the editor's text", () => {
  it("converges when two people type at once, in one line and in two, without loss or duplicates", () =>
    withTwoEditors(async (ada, bo, demo) => {
      await Promise.all([
        write(ada.page, "place-items", " /* abcdefghijklm */"),
        write(bo.page, "place-items", " 123456789"),
      ]);
      await Promise.all([
        write(ada.page, "display: grid", "\n/* nopq */\n"),
        write(bo.page, "position: abs", "\n/* 0000 */\n"),
      ]);
      await expect.poll(() => same(ada.page, bo.page)).toBe(true);
      const text = await textOf(ada.page);
      for (const whole of ["nopq", "0000"]) expect(text.split(whole)).toHaveLength(2);
      // Each one's letters are all there, in their order, however the two went through each other.
      const mixed = /place-items: center;(.*)/.exec(text)![1]!;
      expect(mixed.replace(/[^a-m]/g, "")).toBe("abcdefghijklm");
      expect(mixed.replace(/\D/g, "")).toBe("123456789");
      // Undo reverts a person's own changes, and keeps later ones of the other.
      await goTo(ada.page, "colr");
      await ada.page.keyboard.insertText(" /* mine */");
      await line(bo.page, "/* mine */").waitFor();
      await goTo(bo.page, "/* mine */");
      await bo.page.keyboard.insertText(" /* his */");
      await line(ada.page, "/* mine */ /* his */").waitFor();
      await ada.page.keyboard.press("Control+z");
      await expect.poll(() => textOf(bo.page)).toContain("  colr: rebeccapurple; /* his */\n");
      expect(await same(ada.page, bo.page)).toBe(true);
      // A page opened later has all of it, with the carets of the others.
      const late = await demo.invite("Cy");
      await line(late.page, "/* his */").locator(".caret", { hasText: "Bo" }).waitFor();
      expect(await same(late.page, ada.page)).toBe(true);
      await goTo(late.page, "/* his */");
      await late.page.keyboard.type("/* and after */");
      await line(bo.page, "/* his *//* and after */").waitFor();
    }));

  it.each([
    ["that did not arrive", false],
    ["that arrived, and whose confirmation did not", true],
  ])("continues when the server has forgotten the page, with a change %s, applied once", (_what, arrives) =>
    withTwo(
      async (ada, bo) => {
        await using _ = await interceptSent(ada.page, endAtSecond, arrives);
        await reloadEditor(ada.page);
        await goTo(ada.page, "display: grid");
        await ada.page.keyboard.type(" /* one */");
        await line(bo.page, "/* one */").waitFor();
        await ada.page.keyboard.insertText(" /* two */");
        await ada.page.getByText("Reconnecting", { exact: true }).waitFor();
        await goTo(bo.page, "position: abs");
        await bo.page.keyboard.type(" /* meanwhile */");
        await bo.page.getByText("1 here").waitFor();
        await ada.page.evaluate(() => document.dispatchEvent(new Event("mend")));
        await line(ada.page, "/* meanwhile */").waitFor();
        await line(bo.page, "/* one */ /* two */").waitFor();
        await expect.poll(() => same(ada.page, bo.page)).toBe(true);
        expect((await textOf(ada.page)).split("/* two */")).toHaveLength(2);
        // Both can edit, and the language server, which kept running, has the changes.
        await goTo(bo.page, "/* two */");
        await bo.page.keyboard.type("\nwdith: 1px;");
        for (const { page } of [ada, bo]) await expect.poll(() => squiggles(page)).toEqual(["colr", "wdith"]);
      },
      { env: { SESSION_TTL_MS: "200" }, open: visitEditor, mayComplain: true },
    ),
  );

  it("starts again with a restarted server, without duplicates", () =>
    withTwo(
      async ({ page }, bo, first) => {
        await goTo(page, "display: grid");
        await page.keyboard.type(" /* of the first life */");
        await line(bo.page, "of the first life").waitFor();
        await first.kill("SIGTERM");
        await page.getByText("Reconnecting", { exact: true }).waitFor();
        expect(await textOf(page)).toContain("of the first life");
        // Text typed before the new document has arrived is lost with the old document, and does not affect the new one.
        await page.keyboard.type(" /* of no life */");
        await using second = await startDemo({ PORT: new URL(first.url).port });
        expect(second.url).toBe(first.url);
        for (const each of [page, bo.page]) {
          await expect.poll(() => textOf(each)).not.toContain("life */");
          await ready(each, "css");
          await expect.poll(() => squiggles(each)).toEqual(["colr"]);
          expect(await each.locator("#notice").textContent()).toContain("Here is what it has now");
          // On a busy machine, a page may have lost its connection once more.
          expect(await each.locator(".message[data-method=initialize]").count()).toBeGreaterThan(1);
        }
        expect(await same(page, bo.page)).toBe(true);
        await goTo(page, "display: grid");
        await page.keyboard.type(" /* of the second */");
        await line(bo.page, "display: grid; /* of the second */").waitFor();
        await line(bo.page, "display: grid").locator(".caret", { hasText: "Ada" }).waitFor();
      },
      { open: visitEditor, mayComplain: true },
    ));

  it("accepts text up to its limit, and reports the limit", () =>
    withTwoEditors(async (ada, bo, demo) => {
      await goTo(ada.page, "place-items");
      const before = await textOf(ada.page);
      await ada.page.keyboard.insertText(`/* ${"x".repeat(20_000)} */`);
      await ada.page.getByText("The document is full: 20000 characters is all it takes.").waitFor();
      expect(await textOf(ada.page)).toBe(before);
      // The server does not rely on that.
      const { server, version, length } = await joinByHand(demo.url);
      const edit = (changes: unknown): Promise<unknown> =>
        server.request("edit", { document: "welcome.css", version, page: "none", changes } as never);
      await expect(edit([[length, [0, "x".repeat(20_000)]]])).rejects.toMatchObject({ code: 413 });
      await expect(edit([[length + 1]])).rejects.toMatchObject({ code: 409 });
      const texts = ["two\nlines", "two\r", 1].map((text) => [[length, [0, text]]]);
      for (const changes of [[], ...texts, [[-1, [0, "x"]]], [[length, [0.5, "x"]]], [[length, ["x"]]], ["x"], "x"])
        await expect(edit(changes)).rejects.toMatchObject({ code: -32602 });
      await expect(server.request("open", { document: "constructor" } as never)).rejects.toMatchObject({
        code: -32602,
      });
      await server.close();
      await goTo(bo.page, "place-items");
      await bo.page.keyboard.type(" /* fits */");
      await line(ada.page, "/* fits */").waitFor();
    }));

  it("returns to the others' version if it was full before a change arrived", () =>
    withTwoEditors(async (ada, bo, demo) => {
      await using _ = await interceptSent(ada.page, sendLate);
      await reloadEditor(ada.page);
      await ada.page.evaluate(() => document.dispatchEvent(new Event("delay")));
      await goTo(ada.page, "display: grid");
      await ada.page.keyboard.type("\n/* too much */");
      const { server, version, length } = await joinByHand(demo.url);
      const rest = `${"x".repeat(49)}\n`.repeat(400).slice(0, 20_000 - length - 4);
      const change: Change = [length, [0, ...`/*${rest}*/`.split("\n")]];
      await server.request("edit", { document: "welcome.css", version, page: "none", changes: [change] });
      await line(ada.page, "xxx").first().waitFor();
      await line(ada.page, "/* too much */").waitFor();
      await ada.page.evaluate(() => document.dispatchEvent(new Event("release")));
      await ada.page.locator("#notice", { hasText: "The document is full" }).waitFor();
      await line(ada.page, "/* too much */").waitFor({ state: "detached" });
      // A change that shortens it is accepted, and the language server has the right lines again.
      await goTo(ada.page, "position: absolute");
      await ada.page.keyboard.press("Shift+Home");
      await ada.page.keyboard.type("wdith: 1px;");
      await expect.poll(() => textOf(bo.page)).toContain(".cursor {\n  wdith: 1px;\n");
      for (const { page } of [ada, bo]) await expect.poll(() => squiggles(page)).toEqual(["colr", "wdith"]);
      await server.close();
    }));

  it("accepts only changes that fit it, and can be updated by missed changes, unless too many were missed", () => {
    const document = new SharedDocument("welcome.css", "text");
    const edit = (changes: Change[], version = 0): unknown => document.edit(version, "none", changes, "");
    const conflict = expect.objectContaining({ code: 409 }) as Error;
    for (const changes of [[[5]], [[3, [0, "x"]]], [[4, [1]]], [[4], [3]]] as Change[][])
      expect(() => edit(changes)).toThrow(conflict);
    expect(() => edit([[4]], 1)).toThrow(conflict);
    const { life, content } = document.open(undefined);
    expect(content).toEqual({ text: "text" });
    const type = (count: number, version: number): unknown =>
      edit(
        Array.from({ length: count }, (): Change => [4, [0, ""]]),
        version,
      );
    const open = (version: number, of = life): unknown => document.open({ life: of, version });
    type(3, 0);
    expect(open(1)).toMatchObject({ version: 3, content: { updates: [{}, {}] } });
    expect(open(3)).toMatchObject({ content: { updates: [] } });
    for (const other of [open(4), open(0, "another")]) expect(other).toMatchObject({ content: { text: "text" } });
    type(1000, 3);
    expect(open(3)).toMatchObject({ content: { updates: expect.any(Array) } });
    expect(open(2)).toMatchObject({ content: { text: "text" } });
    expect(() => type(1, 2)).toThrow(conflict);
  });
});

async function write(page: Page, at: string, text: string): Promise<void> {
  await goTo(page, at);
  await page.keyboard.type(text, { delay: 3 });
}

async function joinByHand(
  url: string,
): Promise<{ server: Peer<ClientApi, ServerApi>; version: number; length: number }> {
  const server = await connect<ServerApi, ClientApi>(`${url}/rpc`, { methods: {} as never });
  await server.request("join", { name: "Cy", color: "ink" });
  const { version, content } = await server.request("open", { document: "welcome.css" });
  return { server, version, length: "text" in content ? content.text.length : -1 };
}
