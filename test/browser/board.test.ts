import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { end } from "./browser.js";
import { draw, noticed, picture, pixels, strokes, withTwo } from "./demo.js";

const BLANK = Array.from({ length: 24 }, () => ".".repeat(32)).join("\n");
const DIAGONAL: [number, number][] = [
  [0.2, 0.2],
  [0.5, 0.5],
  [0.8, 0.6],
];
/** Longer than a page may need to leave on a loaded machine. */
const LONG_VOTE_MS = 60_000;

describe("the demo's board", () => {
  it("shows a drawing in every window, and in windows opened later", () =>
    withTwo(async (ada, bo, demo) => {
      expect(await picture(bo.page)).toBe(BLANK);
      await draw(ada.page, DIAGONAL);
      const drawn = await picture(ada.page);
      expect(drawn).not.toBe(BLANK);
      await expect.poll(() => picture(bo.page)).toBe(drawn);
      const late = await demo.invite("Cy", { viewport: { width: 900, height: 900 } });
      await strokes(late.page, 1);
      // A window of another size shows the same picture, except for squares that a line only touches.
      expect(differences(await picture(late.page), drawn)).toBeLessThan(12);
      await ada.page.getByRole("button", { name: "Undo" }).click();
      for (const { page } of [ada, bo, late]) await expect.poll(() => picture(page)).toBe(BLANK);
    }));

  it("paints a line as it grows exactly as after a reload, a dot, corners and crossings too", () =>
    withTwo(async (ada, bo) => {
      await draw(ada.page, [[0.5, 0.5]]);
      const dot = await picture(ada.page);
      expect(dot).not.toBe(BLANK);
      await expect.poll(() => picture(bo.page)).toBe(dot);
      const zigzag = Array.from({ length: 9 }, (_, i): [number, number] => [0.1 + i * 0.1, i % 2 === 0 ? 0.2 : 0.8]);
      await draw(ada.page, zigzag);
      await bo.page.getByLabel("Thick", { exact: true }).check();
      // More strokes than are repainted in each frame.
      for (let i = 0; i < 18; i++) {
        await draw(bo.page, [
          [0.05 + i * 0.05, 0.1],
          [0.9 - i * 0.05, 0.5],
        ]);
      }
      await strokes(ada.page, 20);
      // The last stroke is counted when its first piece arrives.
      const painted = await pixels(bo.page);
      await expect.poll(() => pixels(ada.page)).toBe(painted);
      await ada.page.reload();
      await strokes(ada.page, 20);
      expect(await pixels(ada.page)).toBe(painted);
    }));

  it("keeps the picture when a window changes its size", () =>
    withTwo(async (ada) => {
      await draw(ada.page, DIAGONAL);
      const before = await picture(ada.page);
      const width = await ada.page.locator("#canvas").evaluate((canvas: HTMLCanvasElement) => canvas.width);
      await ada.page.setViewportSize({ width: 700, height: 900 });
      await expect
        .poll(() => ada.page.locator("#canvas").evaluate((canvas: HTMLCanvasElement) => canvas.width))
        .not.toBe(width);
      const after = await picture(ada.page);
      expect(after).not.toBe(BLANK);
      expect(differences(after, before)).toBeLessThan(12);
    }));

  it("shows the others' pointers with their names, at their positions", () =>
    withTwo(async (ada, bo) => {
      const { x, y, width, height } = (await ada.page.locator("#canvas").boundingBox())!;
      await ada.page.mouse.move(x + width / 4, y + height / 2);
      const cursor = bo.page.locator(".cursor", { hasText: "Ada" });
      await cursor.waitFor();
      const board = (await bo.page.locator("#canvas").boundingBox())!;
      await expect
        .poll(() => cursor.evaluate((element) => element.getBoundingClientRect().left))
        .toBeCloseTo(board.x + board.width / 4, -1);
      expect(await ada.page.locator(".cursor").count()).toBe(0);
    }));

  it("delivers a chat line to every page, and to pages opened later", () =>
    withTwo(async (ada, bo, demo) => {
      await ada.page.getByLabel("Message").fill("<b>hello</b> there");
      await ada.page.getByRole("button", { name: "Send" }).click();
      for (const { page } of [ada, bo]) await page.locator(".line").getByText("<b>hello</b> there").waitFor();
      await expect.poll(() => ada.page.getByLabel("Message").inputValue()).toBe("");
      const late = await demo.invite("Cy");
      expect(await late.page.locator(".line").allTextContents()).toEqual(["Ada<b>hello</b> there"]);
    }));

  it("floats a reaction over every board", () =>
    withTwo(async (ada, bo) => {
      // Observed in the page, because a balloon disappears after some seconds.
      const seen = bo.page.waitForSelector(".balloon");
      await ada.page.getByRole("button", { name: "React with a rocket" }).click();
      expect(await (await seen).getAttribute("data-reaction")).toBe("rocket");
      expect(await (await seen).textContent()).toBe("Ada");
      await ada.page.locator(".balloon").waitFor();
    }));

  it("lists the connected people, under their newest names, until they leave", () =>
    withTwo(async (ada, bo) => {
      await ada.page.getByText("2 here").waitFor();
      await bo.page.getByLabel("You are").fill("Bea");
      await bo.page.getByLabel("You are").press("Enter");
      await ada.page.locator(".person", { hasText: "Bea" }).waitFor();
      // The order is that in which the two joined.
      const names = await ada.page.locator(".person .name").allTextContents();
      expect(new Set(names)).toEqual(new Set(["Ada (you)", "Bea"]));
      await bo.page.reload();
      const returned = bo.page.locator(".person", { hasText: "Bea (you)" });
      const id = await returned.getAttribute("data-id");
      // A reload is a departure too: the page of Ada may show it, and not yet the return, when the page of Bea is ready.
      const bea = ada.page.locator(`.person[data-id="${id}"]`);
      await bea.waitFor();
      // A closed page ends its session. A killed page may not, and its session then stays suspended.
      await bo.page.goto("about:blank");
      await bea.waitFor({ state: "detached" });
      await ada.page.getByText("1 here").waitFor();
      expect(await ada.page.locator(".person .name").allTextContents()).toEqual(["Ada (you)"]);
    }));

  it("measures each page's round trip and the messages per second", () =>
    withTwo(async (ada) => {
      await expect
        .poll(() => ada.page.locator(".person .ms").allTextContents())
        .toEqual([expect.stringMatching(/^\d+(\.\d)? ms$/), expect.stringMatching(/^\d+(\.\d)? ms$/)]);
      await expect.poll(() => ada.page.locator("#rate-figure").textContent()).toMatch(/^[1-9]\d*\/s$/);
      const points = (await ada.page.locator("#trip-line").getAttribute("points"))!;
      expect(points).toMatch(/^\d+,\d+/);
    }));
});

describe("the vote on clearing the board", () => {
  it("clears every board when all others agree", () =>
    withTwo(async (ada, bo) => {
      await draw(ada.page, DIAGONAL);
      await strokes(bo.page, 1);
      await ada.page.getByRole("button", { name: "Clear", exact: true }).click();
      const question = bo.page.getByRole("alertdialog", { name: "Ada would like to clear the board." });
      await question.waitFor();
      expect(await question.locator("#left").textContent()).toMatch(/^\d+ s left$/);
      expect(await picture(ada.page)).not.toBe(BLANK);
      await question.getByRole("button", { name: "Agree" }).click();
      for (const { page } of [ada, bo]) {
        await noticed(page, "Everybody agreed: Ada cleared the board.");
        expect(await picture(page)).toBe(BLANK);
      }
    }));

  type Act = (ada: Page, bo: Page) => Promise<unknown>;
  it.each<[when: string, notice: string, act: Act, gone: "Ada" | "Bo" | "none", voteMs?: number]>([
    ["one person does not answer in time", "Bo did not answer.", async () => {}, "none", 4000],
    ["the only one who was asked leaves", "nobody was left to agree.", (_ada, bo) => reload(bo), "Bo"],
    ["the asker leaves", "Ada, who asked, left.", (ada) => reload(ada), "Ada"],
  ])("keeps the board when %s", (_when, notice, act, gone, voteMs = LONG_VOTE_MS) =>
    withTwo(
      async (ada, bo) => {
        await draw(ada.page, DIAGONAL);
        const isAsked = bo.page.getByRole("alertdialog").waitFor();
        await Promise.all([ada.page.getByRole("button", { name: "Clear", exact: true }).click(), isAsked]);
        await act(ada.page, bo.page);
        if (gone !== "Ada") await noticed(ada.page, `The board stays: ${notice}`);
        if (gone !== "Bo") await noticed(bo.page, `The board stays: ${notice}`);
        await bo.page.getByRole("alertdialog").waitFor({ state: "hidden" });
        for (const { page } of [ada, bo]) {
          await strokes(page, 1);
          expect(await picture(page)).not.toBe(BLANK);
        }
      },
      { env: { VOTE_TIMEOUT_MS: String(voteMs) } },
    ),
  );

  it("clears the board when one leaves and those who stay agree, and at once for a single person", () =>
    withTwo(async (ada, bo, demo) => {
      const cy = await demo.invite("Cy");
      await draw(ada.page, DIAGONAL);
      await ada.page.getByRole("button", { name: "Clear", exact: true }).click();
      await cy.page.getByRole("alertdialog").waitFor();
      await end(cy.page);
      await bo.page.getByRole("button", { name: "Agree" }).click();
      for (const { page } of [ada, bo]) {
        await noticed(page, "Nobody objected: Ada cleared the board.");
        expect(await picture(page)).toBe(BLANK);
      }
      await end(bo.page);
      await ada.page.getByText("1 here").waitFor();
      await draw(ada.page, DIAGONAL);
      await ada.page.getByRole("button", { name: "Clear", exact: true }).click();
      await ada.page.getByText("Ada cleared the board.", { exact: true }).waitFor();
      expect(await picture(ada.page)).toBe(BLANK);
    }));

  it("has the focus while it is open, does not answer by a letter key, and restores the focus", () =>
    withTwo(async (ada, bo) => {
      await bo.page.getByLabel("Message").fill("I was just");
      await ada.page.getByRole("button", { name: "Clear", exact: true }).click();
      const card = bo.page.getByRole("alertdialog");
      await card.waitFor();
      expect(await card.evaluate((element) => element === document.activeElement)).toBe(true);
      await bo.page.keyboard.type("typing ");
      await bo.page.keyboard.press("Enter");
      expect(await card.isVisible()).toBe(true);
      await bo.page.keyboard.press("Tab");
      await bo.page.keyboard.press("Enter");
      await ada.page.getByText("The board stays: Bo refused.").waitFor();
      await bo.page.keyboard.type(" typing");
      expect(await bo.page.getByLabel("Message").inputValue()).toBe("I was just typing");
      await noticed(bo.page, "The board stays: Bo refused.");
    }));
});

/** Leaves the page and loads it again. Does not wait until it is loaded, which may take longer than a notice is visible. */
function reload(page: Page): Promise<unknown> {
  return page.reload({ waitUntil: "commit" });
}

function differences(a: string, b: string): number {
  return a.split("").filter((square, i) => square !== b[i]).length;
}
