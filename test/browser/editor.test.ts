import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { gate } from "../support/turns.js";
import { end, newPage } from "./browser.js";
import { draw, LONG_VOTE, noticed, PHONE, startDemo, strokes, withDemo, withOne } from "./demo.js";
import { goTo, line, pointAt, ready, textOf, visitEditor, withTwoEditors } from "./editor.js";

/** A page that Chromium ends before it has sent its close leaves when its session expires. */
const LEFT_SOON = { env: { SESSION_TTL_MS: "5000" } };

describe("the editor", () => {
  it("shows the others' carets with their names and colours, where they are", () =>
    withTwoEditors(async (ada, bo) => {
      await bo.page.getByLabel("Orange", { exact: true }).evaluate((input: HTMLInputElement) => input.click());
      await goTo(bo.page, "place-items");
      const caret = ada.page.locator(".file:visible .caret");
      await line(ada.page, "place-items").locator(".caret", { hasText: "Bo" }).waitFor();
      await expect
        .poll(() => caret.evaluate((element: HTMLElement) => element.style.getPropertyValue("--c")))
        .toBe("var(--orange)");
      expect(await bo.page.locator(".caret").count()).toBe(0);
      const column = (): Promise<number> =>
        caret.evaluate((element) => {
          const range = new Range();
          range.setStart(element.closest(".cm-line")!, 0);
          range.setEndBefore(element);
          return range.toString().length;
        });
      expect(await column()).toBe("  place-items: center;".length);
      // The caret moves with the text that Bo types, and stays before the text that Ada types there.
      await bo.page.keyboard.type("/*");
      await expect.poll(column).toBe("  place-items: center;/*".length);
      await goTo(ada.page, "place-items");
      await ada.page.keyboard.type("*/");
      await line(bo.page, "/**/").waitFor();
      expect(await column()).toBe("  place-items: center;/*".length);
      await bo.page.keyboard.press("Shift+Home");
      await expect
        .poll(() =>
          ada.page
            .locator(".theirs")
            .allTextContents()
            .then((parts) => parts.join("")),
        )
        .toBe("place-items: center;/*");
      // The caret has Bo's newest name, is in the file that he edits, and disappears when he leaves.
      await bo.page.getByLabel("You are").fill("Bob");
      await bo.page.getByLabel("You are").press("Enter");
      await ada.page.locator(".caret", { hasText: "Bob" }).waitFor();
      await bo.page.getByRole("tab", { name: "server.json" }).click();
      await goTo(bo.page, '"port"');
      await caret.waitFor({ state: "detached" });
      await ada.page.getByRole("tab", { name: "server.json" }).getByTitle("Bob is here").waitFor();
      expect(
        await ada.page
          .getByRole("tab", { name: /^welcome/ })
          .locator(".dot")
          .count(),
      ).toBe(0);
      await ada.page.getByRole("tab", { name: "server.json" }).click();
      await line(ada.page, '"port"').locator(".caret").waitFor();
      await end(bo.page);
      await caret.waitFor({ state: "detached" });
      expect(await ada.page.locator("#files .dot").count()).toBe(0);
    }, LEFT_SOON));

  it("does not change the board, undoes in the text only, and asks for a vote in either room", () =>
    withTwoEditors(async ({ page }, bo) => {
      await page.getByRole("tab", { name: "Board" }).click();
      await draw(page, [
        [0.2, 0.2],
        [0.6, 0.7],
      ]);
      await strokes(page, 1);
      await page.getByRole("tab", { name: "Editor" }).click();
      await goTo(page, "place-items");
      await page.keyboard.type(" /* gone */");
      await page.keyboard.press("Control+z");
      await expect.poll(() => textOf(page)).not.toContain("gone");
      await page.keyboard.press("Control+z");
      await page.getByRole("tab", { name: "Board" }).click();
      await strokes(page, 1);
      await page.getByRole("button", { name: "Clear", exact: true }).click();
      await bo.page.getByRole("alertdialog", { name: "Ada would like to clear the board." }).waitFor();
      await bo.page.getByRole("button", { name: "Keep it" }).click();
      for (const each of [page, bo.page]) await noticed(each, "The board stays: Bo refused.");
    }, LONG_VOTE));

  it("loads only when it is opened, from the demo's server only, and shows the file whose tab was clicked", async () => {
    await using demo = await startDemo();
    const page = await newPage();
    const addresses: string[] = [];
    page.on("request", (request) => addresses.push(request.url()));
    page.on("websocket", (webSocket) => addresses.push(webSocket.url().replace("ws", "http")));
    const clicked = gate();
    await page.route("**/editor/room.js", async (route) => {
      await clicked.promise;
      await route.continue();
    });
    await page.goto(demo.url);
    await page.getByText("Live", { exact: true }).waitFor();
    expect(addresses.filter((address) => address.includes("codemirror"))).toEqual([]);
    await page.getByRole("tab", { name: "Editor" }).click();
    const tab = page.getByRole("tab", { name: "server.json" });
    await tab.click();
    await expect.poll(() => tab.getAttribute("aria-selected")).toBe("true");
    clicked.resolve();
    await ready(page, "json");
    expect(await textOf(page)).toContain('"maxConnections"');
    await pointAt(page, '"link"', '"link"');
    expect(addresses.filter((address) => address.includes("codemirror")).length).toBeGreaterThan(5);
    const elsewhere = addresses.filter((address) => !address.startsWith(demo.url) && !address.startsWith("data:"));
    expect(elsewhere).toEqual([]);
    await page.context().close();
  });

  it.each([
    ["on a phone", PHONE],
    ["wide", { viewport: { width: 1024, height: 768 } }],
  ])("keeps the list of completions inside a page that is %s, at each end of the text", (_which, device) =>
    withDemo(
      async (demo) => {
        const { page } = await demo.invite("A name of 24 characters!", device);
        for (const place of ["display: grid", "transition: none"]) {
          await goTo(page, place);
          await page.keyboard.type("\nbor");
          await page.getByRole("option", { name: "border", exact: true }).waitFor();
          // On a phone, the explanation may cover the tools.
          const parts = [".cm-tooltip-autocomplete", ...(device === PHONE ? [] : [".cm-completionInfo"])];
          for (const part of parts) {
            await page.locator(part).waitFor();
            await expect.poll(() => isOverhanging(page, part)).toBe(false);
          }
          await page.keyboard.press("Escape");
        }
        expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(device.viewport.width);
      },
      { open: visitEditor },
    ),
  );

  it("never renders received text as HTML", () =>
    withOne(async ({ page }) => {
      const markdown = [
        "<img src=x onerror=alert(1)> **bold** &lt;b&gt; `<i>`",
        "[bad](javascript:alert(1)) [worse](data:text/html,x) [good](https://example.org/?a=1&b=2)",
        "![pixel](https://example.org/pixel.png) ![icon](data:image/svg+xml;base64,PHN2Zy8+)",
        "- one\n- two",
        "```html\n<script>alert(1)</script>\n```",
      ].join("\n\n");
      const contents = [
        { kind: "markdown", value: markdown },
        { kind: "plaintext", value: "*plain* <b>" },
        "*bare*",
        "  ",
      ];
      const html = await page.evaluate(`import("/page/editor/markdown.js").then(({ rendered }) =>
      ${JSON.stringify(contents)}.map((content) => rendered(content)?.innerHTML))`);
      const link = '<a href="https://example.org/?a=1&amp;b=2" target="_blank" rel="noopener noreferrer">good</a>';
      expect(html).toEqual([
        [
          "<p>&lt;img src=x onerror=alert(1)&gt; <strong>bold</strong> &lt;b&gt; <code>&lt;i&gt;</code></p>",
          `<p><span>bad</span> <span>worse</span> ${link}</p>`,
          '<p>pixel <img src="data:image/svg+xml;base64,PHN2Zy8+" alt="icon"></p>',
          "<ul><li>one</li><li>two</li></ul>",
          "<pre>&lt;script&gt;alert(1)&lt;/script&gt;</pre>",
        ].join(""),
        "<p>*plain* &lt;b&gt;</p>",
        "<p><em>bare</em></p>",
        undefined,
      ]);
    }));
});

function isOverhanging(page: Page, part: string): Promise<boolean> {
  return page.evaluate((selector) => {
    const editor = document.querySelector(".desk")!.getBoundingClientRect();
    const { left, top, right, bottom } = document.querySelector(selector)!.getBoundingClientRect();
    return left < editor.left || top < editor.top || right > editor.right || bottom > editor.bottom;
  }, part);
}
