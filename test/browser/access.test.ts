/** The demo for everyone: axe finds nothing, and the keyboard alone is enough. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Frame, Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { draw, LONG_VOTE, PHONE, say, strokes, withCuttable, withDemo, withOne, withTwo } from "./demo.js";
import { ready, textOf } from "./editor.js";

const axe = await readFile(join(import.meta.dirname, "node_modules/axe-core/axe.min.js"), "utf8");

async function violations(page: Page | Frame): Promise<string[]> {
  await page.evaluate(axe);
  const found = await page.evaluate(`axe.run({ iframes: false, resultTypes: ["violations"] })`);
  const { violations: rules } = found as {
    violations: { id: string; nodes: { target: string[]; failureSummary: string }[] }[];
  };
  return rules.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target.join(" ")}: ${failureSummary}`),
  );
}

const DEVICES = [
  ["wide", { viewport: { width: 1440, height: 900 } }],
  ["on a phone", PHONE],
] as const;
const PANELS = ["Try this", "Code", "People", "Traffic", "Chat"];

describe.each(["light", "dark"] as const)("axe, in the %s scheme,", (colorScheme) => {
  it.each(DEVICES)("finds nothing in a page that is %s, connected and cut", (_which, device) =>
    withCuttable(
      async ({ page, cut }, demo) => {
        const bo = await demo.invite("Bo");
        // Of all colours it has the least contrast.
        await page.getByRole("radio", { name: "Yellow" }).check();
        await draw(page, [[0.5, 0.5]]);
        await send(page, "hello");
        await say(bo.page, "hello Ada");
        for (const name of PANELS) {
          const button = page.getByRole("button", { name, exact: true });
          if (await button.isVisible()) await button.click();
          if (name === "Code") await page.locator(".source").first().waitFor();
          expect([name, await violations(page)]).toEqual([name, []]);
        }
        await page
          .locator(".message summary")
          .evaluateAll((all) => all.forEach((each) => (each as HTMLElement).click()));
        await cut();
        await send(page, "from the dark");
        await page.locator(".line.pending").waitFor({ state: "attached" });
        expect(await violations(page)).toEqual([]);
      },
      { options: { ...device, colorScheme, reducedMotion: "reduce" } },
    ),
  );

  it.each(DEVICES)("finds nothing in its question, editor, split view and documents, %s", (_which, device) =>
    withDemo(async (demo) => {
      const { page } = await demo.invite("Ada", { ...device, colorScheme, reducedMotion: "reduce" });
      const bo = await demo.invite("Bo");
      await draw(page, [[0.5, 0.5]]);
      await bo.page.getByRole("button", { name: "Clear", exact: true }).click();
      await page.getByRole("alertdialog").waitFor();
      expect(await violations(page)).toEqual([]);
      await page.getByRole("button", { name: "Keep it" }).click();
      await page.getByRole("tab", { name: "Editor" }).click();
      await ready(page, "css");
      await page.locator(".cm-lintRange").first().waitFor();
      expect(await violations(page)).toEqual([]);
      if (device === PHONE) return;
      await page.goto(`${demo.url}/split`);
      for (const frame of page.frames().slice(1)) {
        await frame.getByText("Live", { exact: true }).waitFor();
        expect(await violations(frame)).toEqual([]);
      }
      expect(await violations(page)).toEqual([]);
      await page.goto(`${demo.url}/about/README.md`);
      expect(await violations(page)).toEqual([]);
    }, LONG_VOTE),
  );
});

describe("the keyboard alone", () => {
  it("draws, and lifts the nib when the focus leaves the board", () =>
    withTwo(async ({ page }, bo) => {
      await tabTo(page, "#easel");
      for (const key of ["ArrowUp", "Space", "Shift+ArrowRight", "ArrowDown", "ArrowDown", "Space", "ArrowLeft"])
        await page.keyboard.press(key);
      for (const each of [page, bo.page]) await strokes(each, 1);
      await page.keyboard.press("Space");
      await page.keyboard.press("Tab");
      await page.locator("#easel:not(.down)").waitFor();
      for (const each of [page, bo.page]) await strokes(each, 2);
      await tabTo(page, "#undo");
      await page.keyboard.press("Enter");
      for (const each of [page, bo.page]) await strokes(each, 1);
    }));

  it("opens the editor and its files, completes a property, leaves the text, and goes to the split view", () =>
    withOne(async ({ page }, demo) => {
      const press = (key: string): Promise<void> => page.keyboard.press(key);
      await tabTo(page, "#board-tab");
      await press("ArrowRight");
      await ready(page, "css");
      expect(await page.getByRole("link", { name: "Open a second window" }).getAttribute("href")).toBe(page.url());
      await tabTo(page, "#files [role=tab]");
      await press("ArrowLeft");
      await page.getByRole("tabpanel", { name: /^server\.json/ }).waitFor();
      await press("Tab");
      await page.keyboard.type(" ");
      await expect.poll(() => textOf(page)).toMatch(/^ \{/);
      // Tab leaves the text again.
      await press("Tab");
      expect(await page.evaluate(() => document.activeElement!.closest(".cm-editor"))).toBe(null);
      // The address is that of the editor.
      await page.reload();
      await ready(page, "css");
      expect(await page.locator("#canvas").isVisible()).toBe(false);
      await page.locator("#problems", { hasText: "1 problem" }).waitFor();
      await tabTo(page, ".cm-content");
      await press("Control+End");
      await page.keyboard.type("\nb { disp");
      await page.getByRole("option", { name: "display", exact: true }).waitFor();
      // The list takes no key in its first 75 ms, so that a key pressed earlier does not accept an entry. Moves the page's clock on.
      await page.evaluate(() => void (Date.now = () => performance.timeOrigin + performance.now() + 1_000));
      await press("Tab");
      await expect.poll(() => textOf(page)).toContain("b { display:");
      await press("Escape");
      await tabTo(page, "#problems");
      await press("Enter");
      await page.locator(".cm-content:focus").waitFor();
      await tabTo(page, "#split");
      await press("Enter");
      await page.waitForURL(`${demo.url}/split`);
      for (const frame of page.frames().slice(1)) await frame.getByText("Live", { exact: true }).waitFor();
      // The focus enters both people, one after the other.
      const focused = new Set<string>();
      for (let i = 0; i < 120 && focused.size < 2; i++) {
        await press("Tab");
        focused.add(await page.evaluate(() => document.activeElement!.getAttribute("title") ?? "none"));
        focused.delete("none");
      }
      expect(focused).toEqual(new Set(["The first person", "The second person"]));
    }));

  it.each(DEVICES)("reaches every control of a page that is %s, in a visible way", (_which, device) =>
    withDemo(async (demo) => {
      const { page } = await demo.invite("Ada", device);
      for (const name of PANELS) {
        const button = page.getByRole("button", { name, exact: true });
        if (!(await button.isVisible())) continue;
        await button.click();
        await expect.poll(() => missedByTab(page)).toEqual([]);
      }
    }),
  );
});

/** Returns the controls that Tab does not reach, and those that do not show the focus. */
async function missedByTab(page: Page): Promise<string[]> {
  const count = await page.evaluate(() => {
    for (const each of document.querySelectorAll<HTMLElement>("[data-control]")) delete each.dataset["control"];
    const all = [...document.querySelectorAll<HTMLElement>("a[href], button, input, summary, [tabindex]")];
    // Of a group of radio buttons, Tab reaches the one that is chosen. The arrow keys reach the others.
    const controls = all.filter(
      (each) => each.checkVisibility() && each.tabIndex >= 0 && !each.matches("[type=radio]:not(:checked)"),
    );
    for (const [i, each] of controls.entries()) each.dataset["control"] = String(i);
    (document.activeElement as HTMLElement).blur();
    return controls.length;
  });
  const seen = new Set<string | undefined>();
  // More often than there are controls, because a row of the traffic list may appear meanwhile.
  for (let i = 0; i < count + 10; i++) {
    await page.keyboard.press("Tab");
    const control = await page.evaluate(() => {
      const focused = document.activeElement as HTMLElement;
      // The label shows the focus of a colour or a thickness.
      const shown = focused.closest(".tools label") ?? focused;
      return getComputedStyle(shown).outlineStyle === "none" ? undefined : focused.dataset["control"];
    });
    seen.add(control);
  }
  return page.evaluate(
    (reached) =>
      [...document.querySelectorAll<HTMLElement>("[data-control]")]
        .filter((each) => !reached.includes(each.dataset["control"]!))
        .map((each) => each.outerHTML.slice(0, 120)),
    [...seen].filter((each) => each !== undefined),
  );
}

async function tabTo(page: Page, selector: string): Promise<void> {
  for (let i = 0; i < 200; i++) {
    if (await page.evaluate((wanted) => document.activeElement!.matches(wanted), selector)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`Tab does not reach ${selector}`);
}

/** Sends a line of the chat, whose panel may be hidden. */
async function send(page: Page, text: string): Promise<void> {
  await page.locator("#text").evaluate((input: HTMLInputElement, value) => {
    input.value = value;
    input.form!.requestSubmit();
  }, text);
}
