import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { connect } from "../../src/node.js";
import { gate } from "../support/turns.js";
import { end } from "./browser.js";
import { startDemo, withOne } from "./demo.js";
import {
  goTo,
  languageServers,
  line,
  pointAt,
  ready,
  squiggles,
  textOf,
  visitEditor,
  withOneEditor,
  withTwoEditors,
} from "./editor.js";

/** The ids in a request for completions and in a cancel, in a frame of many messages. */
const COMPLETION = /"id":(\d+),"method":"textDocument\/completion"/;
const CANCEL = /"method":"\$\/cancelRequest","params":\{"id":(\d+)/;

/** Lets a language server append all that it reads to the file INPUT. */
const RECORDER = `--import=data:text/javascript,${encodeURIComponent(`
import { appendFileSync } from "node:fs";
if (process.argv[1].endsWith("language-server.js")) {
  const { stdin } = process;
  const { emit } = stdin;
  stdin.emit = function (event, ...args) {
    if (event === "data") appendFileSync(process.env.INPUT, args[0]);
    return emit.call(this, event, ...args);
  };
}`)}`;

describe("the language server in the editor", () => {
  it("reports the initial error of the file to all people, until one of them fixes it", () =>
    withTwoEditors(async (ada, bo) => {
      for (const { page } of [ada, bo]) {
        await expect.poll(() => squiggles(page)).toEqual(["colr"]);
        await page.getByRole("button", { name: "1 problem", exact: true }).waitFor();
      }
      await line(ada.page, "colr").getByText("colr").dblclick();
      await ada.page.keyboard.type("color");
      for (const { page } of [ada, bo]) {
        await page.getByRole("button", { name: "No problems" }).waitFor();
        expect(await squiggles(page)).toEqual([]);
        expect(await textOf(page)).toContain("\n  color: rebeccapurple;\n");
      }
    }));

  it("underlines, for both, an error that one types", () =>
    withTwoEditors(async (ada, bo) => {
      await goTo(ada.page, "position: absolute");
      await ada.page.keyboard.type("\nwdith: 1px;");
      for (const { page } of [ada, bo]) await expect.poll(() => squiggles(page)).toEqual(["colr", "wdith"]);
      await bo.page.getByRole("tab", { name: /^welcome\.css 2/ }).waitFor();
      await line(bo.page, "wdith").getByText("wdith").hover();
      await bo.page.locator(".cm-tooltip-hover").getByText("Unknown property: 'wdith'").waitFor();
      await bo.page.getByRole("button", { name: "2 problems" }).click();
      await bo.page.locator(".cm-activeLine", { hasText: "colr" }).waitFor();
    }));

  it("completes a property, with documentation beside it, and then offers values", () =>
    withTwoEditors(async (ada, bo) => {
      await goTo(ada.page, "place-items");
      await ada.page.keyboard.type("\nbor");
      const { page } = ada;
      await page.getByRole("option", { name: "border-radius", exact: true }).waitFor();
      await page.locator(".cm-completionInfo").getByText("Shorthand property for setting border").waitFor();
      await page.keyboard.type("der-rad");
      const option = page.locator("[role=option][aria-selected=true]", { hasText: "border-radius" });
      await option.waitFor();
      await option.click();
      // The caret is at the snippet's open place, and the server requested further suggestions there.
      await page.getByRole("option", { name: "initial", exact: true }).waitFor();
      await page.keyboard.type("1px");
      for (const each of [ada, bo]) {
        await expect.poll(() => textOf(each.page)).toContain("  place-items: center;\n  border-radius: 1px;\n");
        await expect.poll(() => squiggles(each.page)).toEqual(["colr"]);
      }
    }));

  it("gets a cancel when its completions are no longer needed", async () => {
    const folder = await mkdtemp(join(tmpdir(), "reciproc-input-"));
    const input = join(folder, "input");
    await withOne(
      async ({ page }, demo) => {
        const sent: string[] = [];
        page.on("websocket", (webSocket) =>
          webSocket.on("framesent", ({ payload }) => {
            if (new URL(webSocket.url()).pathname === "/lsp/css") sent.push(payload as string);
          }),
        );
        await page.clock.install();
        await page.reload();
        await page.getByRole("tab", { name: "Editor" }).click();
        await ready(page, "css");
        await goTo(page, "place-items");
        const [server] = languageServers(demo, "css");
        process.kill(server!, "SIGSTOP");
        // The timeout of the call, 10 s, sends a cancel too. So the clock of the page does not run on from here.
        await page.clock.pauseAt(Date.now() + 30_000);
        try {
          await page.keyboard.type("\nbor");
          await page.clock.runFor(1000);
          await expect.poll(() => idOf(COMPLETION, sent)).toBeDefined();
          await page.keyboard.press("Home");
          await page.clock.runFor(1000);
          await expect.poll(() => idOf(CANCEL, sent)).toBe(idOf(COMPLETION, sent));
        } finally {
          process.kill(server!, "SIGCONT");
        }
        const cancelled = async (): Promise<string | undefined> => idOf(CANCEL, [await readFile(input, "utf8")]);
        await expect.poll(cancelled).toBeDefined();
        expect(await cancelled()).toBe(idOf(COMPLETION, [await readFile(input, "utf8")]));
        // Its clock stands still for all later visits.
        await page.context().close();
      },
      { env: { NODE_OPTIONS: RECORDER, INPUT: input } },
    );
    await rm(folder, { recursive: true });
  });

  it("explains the property under the pointer, and a selector without rendering its HTML", () =>
    withTwoEditors(async ({ page }) => {
      const property = await pointAt(page, "display: grid", "display");
      expect(await property.textContent()).toContain("Syntax: [ <display-outside> || <display-inside> ]");
      const link = property.getByRole("link", { name: "MDN Reference" });
      expect(await link.getAttribute("href")).toMatch(/^https:\/\/developer\.mozilla\.org\//);
      await page.mouse.move(0, 0);
      await property.waitFor({ state: "detached" });
      const selector = await pointAt(page, ".board .cursor {", "cursor");
      expect(await selector.locator("pre").first().textContent()).toContain('<element class="cursor">');
      expect(await selector.locator("element").count()).toBe(0);
    }));

  it("validates, explains and completes another file by its schema", () =>
    withTwoEditors(async (ada, bo) => {
      for (const { page } of [ada, bo]) {
        await page.getByRole("tab", { name: "server.json" }).click();
        await ready(page, "json");
        await expect.poll(() => squiggles(page)).toEqual(['"pakced"']);
      }
      const documentation = await pointAt(ada.page, '"link"', '"link"');
      expect(await documentation.textContent()).toContain("Clients that are not reciproc always get plain JSON-RPC.");
      expect(await documentation.locator("strong").count()).toBe(1);
      await line(bo.page, "pakced").getByText("pakced").click();
      await bo.page.keyboard.press("Control+Space");
      await bo.page.getByRole("option", { name: /packed/ }).click();
      for (const { page } of [ada, bo]) {
        await expect.poll(() => textOf(page)).toContain('\n  "link": "packed",\n');
        await page.getByRole("button", { name: "No problems" }).waitFor();
      }
    }));

  it("survives a cut with its process and its text, and checks what was typed meanwhile", () =>
    withOne(
      async ({ page }, demo) => {
        await expect.poll(() => squiggles(page)).toEqual(["colr"]);
        const before = languageServers(demo, "css");
        expect(before).toHaveLength(1);
        await page.locator("#cut").evaluate((button: HTMLButtonElement) => button.click());
        await page.getByText("css language server: reconnecting").waitFor();
        await goTo(page, "place-items");
        await page.keyboard.insertText("\n  wdith: 1px;");
        expect(await squiggles(page)).toEqual(["colr"]);
        await ready(page, "css");
        await expect.poll(() => squiggles(page)).toEqual(["colr", "wdith"]);
        expect(languageServers(demo, "css")).toEqual(before);
        expect(await page.locator(".message[data-method=initialize]").count()).toBe(1);
        expect(await textOf(page)).toContain("wdith");
      },
      // Long enough to type in, on a loaded machine.
      { open: visitEditor, env: { CUT_MS: "6000" } },
    ));

  it("starts again with a restarted demo, and gets the text", () =>
    withOne(
      async ({ page }, first) => {
        await expect.poll(() => squiggles(page)).toEqual(["colr"]);
        await first.kill("SIGTERM");
        await page.getByText("css language server: reconnecting").waitFor();
        await using second = await startDemo({ PORT: new URL(first.url).port });
        await ready(page, "css");
        await expect.poll(() => squiggles(page)).toEqual(["colr"]);
        expect(await page.locator(".message[data-method=initialize]").count()).toBe(2);
        expect(languageServers(second, "css")).toHaveLength(1);
        await page.context().close();
      },
      { open: visitEditor, mayComplain: true },
    ));

  it("reports no result before it has checked the text", () =>
    withOne(async ({ page }) => {
      const problems = page.locator("#problems");
      await page.evaluate(() => {
        const seen: (string | null)[] = [];
        Object.assign(globalThis, { seen });
        const button = document.querySelector<HTMLElement>("#problems")!;
        new MutationObserver(() => void (button.hidden || seen.push(button.textContent))).observe(button, {
          attributes: true,
          childList: true,
        });
      });
      await page.getByRole("tab", { name: "Editor" }).click();
      await problems.filter({ hasText: "1 problem" }).waitFor();
      const seen = await page.evaluate(() => (globalThis as unknown as { seen: string[] }).seen);
      expect(new Set(seen)).toEqual(new Set(["Checking …", "1 problem"]));
    }));

  it("checks what is typed before it has got its settings", () =>
    withOne(async ({ page }) => {
      const { requested, release } = await holdSettings(page);
      await page.reload();
      await page.getByRole("tab", { name: "Editor" }).click();
      await requested;
      await goTo(page, "position: absolute");
      await page.keyboard.type("\nwdith: 1px;");
      release();
      await expect.poll(() => squiggles(page)).toEqual(["colr", "wdith"]);
      await page.context().close();
    }));

  it("is refused to a thirteenth page", async () => {
    await using demo = await startDemo();
    const url = `${demo.url.replace("http", "ws")}/lsp/json`;
    const peers = [];
    for (let i = 0; i < 12; i++) peers.push(await connect(url, { link: "plain" }));
    await expect(connect(url, { link: "plain" })).rejects.toMatchObject({ status: 503 });
    expect(languageServers(demo, "json")).toHaveLength(12);
    await Promise.all(peers.map((peer) => peer.close()));
  });

  it("can be restarted by a button after it exits, while the editor keeps working", () =>
    withTwoEditors(async (ada, bo, demo) => {
      const servers = languageServers(demo, "css");
      expect(servers).toHaveLength(2);
      await expect.poll(() => squiggles(bo.page)).toEqual(["colr"]);
      process.kill(servers[0]!, "SIGKILL");
      const died = "css language server: stopped (the command was killed by SIGKILL)";
      const broken = await Promise.any(
        [ada, bo].map(async (each) => {
          await each.page.getByText(died).waitFor();
          return each;
        }),
      );
      const other = broken === ada ? bo : ada;
      expect(await squiggles(broken.page)).toEqual([]);
      await other.page.getByText("css language server: ready").waitFor();
      await goTo(broken.page, "place-items");
      await broken.page.keyboard.type("\nwdith: 1px;");
      await expect.poll(() => squiggles(other.page)).toEqual(["colr", "wdith"]);
      expect(await textOf(other.page)).toBe(await textOf(broken.page));
      await broken.page.getByRole("button", { name: "Restart" }).click();
      await ready(broken.page, "css");
      await expect.poll(() => squiggles(broken.page)).toEqual(["colr", "wdith"]);
    }));

  it.each([
    ["SIGTERM", 0],
    ["SIGKILL", null],
  ] as const)("ends with the demo, also by %s", (signal, exitCode) =>
    withOne(
      async ({ page }, demo) => {
        await page.getByRole("tab", { name: "server.json" }).click();
        await ready(page, "json");
        const servers = [...languageServers(demo, "css"), ...languageServers(demo, "json")];
        expect(servers).toHaveLength(2);
        expect(await demo.kill(signal)).toBe(exitCode);
        await gone(servers);
        await page.getByText("json language server: reconnecting").waitFor();
      },
      { open: visitEditor, mayComplain: true },
    ),
  );

  it("ends with the page, and is for pages of this server only", () =>
    withOneEditor(async ({ page }, demo) => {
      const servers = languageServers(demo, "css");
      expect(servers).toHaveLength(1);
      await end(page);
      await gone(servers);
      const foreign = new WebSocket(`${demo.url.replace("http", "ws")}/lsp/css`, { origin: "https://elsewhere.test" });
      const error = await new Promise<Error>((resolve) => foreign.once("error", resolve));
      expect(error.message).toContain("403");
      expect(languageServers(demo, "css")).toEqual([]);
    }));
});

/** Returns the id in the first of the texts that matches. */
function idOf(what: RegExp, texts: string[]): string | undefined {
  return texts.map((text) => what.exec(text)?.[1]).find(Boolean);
}

/** Holds back what the next language server sends to a page, from its request for settings on. */
async function holdSettings(page: Page): Promise<{ requested: Promise<void>; release: () => void }> {
  const [requested, released] = [gate(), gate()];
  await page.routeWebSocket(/\/lsp\/css/, (webSocket) => {
    let passes = Promise.resolve();
    webSocket.connectToServer().onMessage((message) => {
      if (message.includes("workspace/configuration")) {
        passes = released.promise;
        requested.resolve();
      }
      void passes.then(() => webSocket.send(message));
    });
  });
  return { requested: requested.promise, release: released.resolve };
}

/** Waits until none of these processes is left. A language server whose input has ended takes a moment to end. */
function gone(pids: readonly number[]): Promise<void> {
  return expect.poll(() => pids.filter(isRunning)).toEqual([]);
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
