import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { connect } from "../support/connect.js";
import { runs } from "../bridge/bridged.js";
import { gate } from "../support/turns.js";
import { end } from "./browser.js";
import { note, said, withCuttable, withOne, withTwo } from "./demo.js";
import { goTo, languageServers, line, pointAt, ready, squiggles, textOf, visitEditor } from "./editor.js";

/** The ids in a request for completions and in a cancel, in a frame of many messages. */
const COMPLETION = /"id":(\d+),"method":"textDocument\/completion"/;
const CANCEL = /"method":"\$\/cancelRequest","params":\{"id":(\d+)/;

describe("the language server in the editor", () => {
  it("reports errors to all people, until one fixes them, explains what the pointer is at, and completes", () =>
    withTwo(
      async (ada, bo) => {
        const { page } = ada;
        await Promise.all([ada, bo].map((each) => each.page.getByRole("button", { name: "1 problem" }).waitFor()));
        await goTo(page, "position: absolute");
        await page.keyboard.type("\nwdith: 1px;");
        for (const each of [ada, bo]) await expect.poll(() => squiggles(each.page)).toEqual(["colr", "wdith"]);
        await bo.page.getByRole("tab", { name: /^welcome\.css 2/ }).waitFor();
        await line(bo.page, "wdith").getByText("wdith").hover();
        await bo.page.locator(".cm-tooltip-hover").getByText("Unknown property: 'wdith'").waitFor();
        await bo.page.getByRole("button", { name: "2 problems" }).click();
        await bo.page.locator(".cm-activeLine", { hasText: "colr" }).waitFor();
        for (const [wrong, right] of [
          ["colr", "color"],
          ["wdith", "width"],
        ] as const) {
          await line(page, wrong).getByText(wrong).dblclick();
          await page.keyboard.type(right);
          // Closes the list of completions.
          await page.keyboard.press("Home");
        }
        for (const each of [ada, bo]) {
          await each.page.getByRole("button", { name: "No problems" }).waitFor();
          expect(await squiggles(each.page)).toEqual([]);
          expect(await textOf(each.page)).toContain("\n  color: rebeccapurple;\n");
        }

        // The list of the traffic shows its messages in both directions, and what the page has answered.
        const durationOf = (method: string): Promise<string | null> =>
          page.locator(`.message.incoming[data-method="${method}"] .duration`).first().textContent();
        expect(await durationOf("workspace/configuration")).toMatch(/ ms$/);
        expect(await durationOf("textDocument/publishDiagnostics")).toBe("notify");

        const property = await pointAt(page, "display: grid", "display");
        expect(await property.textContent()).toContain("Syntax: [ <display-outside> || <display-inside> ]");
        const link = property.getByRole("link", { name: "MDN Reference" });
        expect(await link.getAttribute("href")).toMatch(/^https:\/\/developer\.mozilla\.org\//);
        await page.mouse.move(0, 0);
        await property.waitFor({ state: "detached" });
        const selector = await pointAt(page, ".board .cursor {", "cursor");
        expect(await selector.locator("pre").first().textContent()).toContain('<element class="cursor">');
        expect(await selector.locator("element").count()).toBe(0);

        await goTo(page, "place-items");
        await page.keyboard.type("\nbor");
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
          await each.page.getByRole("button", { name: "No problems" }).waitFor();
        }

        // The other file has a schema.
        for (const each of [ada, bo]) {
          await each.page.getByRole("tab", { name: "server.json" }).click();
          await ready(each.page, "json");
          await expect.poll(() => squiggles(each.page)).toEqual(['"pakced"']);
        }
        const documentation = await pointAt(page, '"link"', '"link"');
        expect(await documentation.textContent()).toContain("Clients that are not reciproc always get plain JSON-RPC.");
        expect(await documentation.locator("strong").count()).toBe(1);
        await line(bo.page, "pakced").getByText("pakced").click();
        await bo.page.keyboard.press("Control+Space");
        await bo.page.getByRole("option", { name: /packed/ }).click();
        for (const each of [ada, bo]) {
          await expect.poll(() => textOf(each.page)).toContain('\n  "link": "packed",\n');
          await each.page.getByRole("button", { name: "No problems" }).waitFor();
        }
      },
      { open: visitEditor },
    ));

  it("gets a cancel when its completions are no longer needed", () =>
    withOne(async ({ page }, demo) => {
      const sent: string[] = [];
      const idOf = (what: RegExp): string | undefined => sent.map((text) => what.exec(text)?.[1]).find(Boolean);
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
        await expect.poll(() => idOf(COMPLETION)).toBeDefined();
        await page.keyboard.press("Home");
        await page.clock.runFor(1000);
        await expect.poll(() => idOf(CANCEL)).toBe(idOf(COMPLETION));
      } finally {
        process.kill(server!, "SIGCONT");
      }
      // Its clock stands still for all later visits.
      await page.context().close();
    }));

  it("survives a cut, checks what was typed meanwhile, and can be restarted by a button after it exits", () =>
    withCuttable(
      async (ada, demo) => {
        const { page } = ada;
        await expect.poll(() => squiggles(page)).toEqual(["colr"]);
        const before = languageServers(demo, "css");
        const { page: other } = await demo.invite("Bo");
        await ada.cut();
        await page.getByText("css language server: reconnecting").waitFor();
        await goTo(page, "place-items");
        await page.keyboard.insertText("\n  wdith: 1px;");
        expect(await squiggles(page)).toEqual(["colr"]);
        await ada.mend();
        await ready(page, "css");
        await expect.poll(() => squiggles(page)).toEqual(["colr", "wdith"]);
        expect(languageServers(demo, "css")).toEqual([...before, expect.any(Number)]);
        expect(await page.locator(".message[data-method=initialize]").count()).toBe(1);

        process.kill(before[0]!, "SIGKILL");
        await page.getByText("css language server: stopped (the command was killed by SIGKILL)").waitFor();
        expect(await squiggles(page)).toEqual([]);
        await goTo(page, "place-items");
        await page.keyboard.type("\nheigth: 1px;");
        const wrong = ["colr", "heigth", "wdith"];
        await expect.poll(() => squiggles(other)).toEqual(wrong);
        expect(await textOf(other)).toBe(await textOf(page));
        await page.getByRole("button", { name: "Restart" }).click();
        await ready(page, "css");
        await expect.poll(() => squiggles(page)).toEqual(wrong);
      },
      { open: visitEditor },
    ));

  it("reports no result before it has checked the text, and checks what is typed before it has its settings", () =>
    withOne(async ({ page }) => {
      const { requested, release } = await holdSettings(page);
      await page.reload();
      await note(page, "#problems");
      await page.getByRole("tab", { name: "Editor" }).click();
      await requested;
      await goTo(page, "position: absolute");
      await page.keyboard.type("\nwdith: 1px;");
      release();
      await expect.poll(() => squiggles(page)).toEqual(["colr", "wdith"]);
      await page.getByRole("button", { name: "2 problems" }).waitFor();
      const shown = await said(page, "#problems");
      expect(shown[0]).toBe("Checking …");
      expect(shown).not.toContain("No problems");
      await page.context().close();
    }));

  it("ends with its page, with a demo that is killed, and is for twelve pages of this server only", () =>
    withTwo(
      async ({ page }, bo, demo) => {
        await page.getByRole("tab", { name: "server.json" }).click();
        await ready(page, "json");
        expect(languageServers(demo, "css")).toHaveLength(2);
        await end(bo.page);
        await expect.poll(() => languageServers(demo, "css")).toHaveLength(1);
        const url = `${demo.url.replace("http", "ws")}/lsp/json`;
        const foreign = new WebSocket(url, { origin: "https://elsewhere.test" });
        const error = await new Promise<Error>((resolve) => foreign.once("error", resolve));
        expect(error.message).toContain("403");
        expect(languageServers(demo, "json")).toHaveLength(1);
        const peers = [];
        for (let i = 0; i < 11; i++) peers.push(await connect(url, { link: "plain", reconnect: false }));
        await expect(connect(url, { link: "plain" })).rejects.toMatchObject({ status: 503 });
        const servers = [...languageServers(demo, "css"), ...languageServers(demo, "json")];
        expect(servers).toHaveLength(13);
        expect(await demo.kill("SIGKILL")).toBe(null);
        // A language server whose input has ended takes a moment to end.
        await expect.poll(() => servers.filter(runs)).toEqual([]);
        await page.getByText("json language server: reconnecting").waitFor();
      },
      { open: visitEditor, mayComplain: true },
    ));
});

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
