import { expect, it } from "vitest";
import { end } from "./browser.js";
import { draw, LONG_VOTE, noticed, picture, pixels, strokes, withTwo } from "./demo.js";

const BLANK = Array.from({ length: 24 }, () => ".".repeat(32)).join("\n");
const DIAGONAL: [number, number][] = [
  [0.2, 0.2],
  [0.5, 0.5],
  [0.8, 0.6],
];

it("the demo's board shows what one person draws, points at, says and feels, in every window and in later ones", () =>
  withTwo(async (ada, bo, demo) => {
    expect(await picture(bo.page)).toBe(BLANK);
    await draw(ada.page, DIAGONAL);
    const drawn = await picture(ada.page);
    expect(drawn).not.toBe(BLANK);
    await expect.poll(() => picture(bo.page)).toBe(drawn);

    const { x, y, width, height } = (await ada.page.locator("#canvas").boundingBox())!;
    await ada.page.mouse.move(x + width / 4, y + height / 2);
    const cursor = bo.page.locator(".cursor", { hasText: "Ada" });
    await cursor.waitFor();
    const board = (await bo.page.locator("#canvas").boundingBox())!;
    await expect
      .poll(() => cursor.evaluate((element) => element.getBoundingClientRect().left))
      .toBeCloseTo(board.x + board.width / 4, -1);
    expect(await ada.page.locator(".cursor").count()).toBe(0);

    await ada.page.getByLabel("Message").fill("<b>hello</b> there");
    await ada.page.getByRole("button", { name: "Send" }).click();
    for (const { page } of [ada, bo]) await page.locator(".line").getByText("<b>hello</b> there").waitFor();
    await expect.poll(() => ada.page.getByLabel("Message").inputValue()).toBe("");
    // Observed in the page, because a balloon disappears after some seconds.
    const [own, seen] = [ada, bo].map(({ page }) => page.waitForSelector(".balloon"));
    await ada.page.getByRole("button", { name: "React with a rocket" }).click();
    expect(await (await seen!).getAttribute("data-reaction")).toBe("rocket");
    expect(await (await seen!).textContent()).toBe("Ada");
    await own;

    const late = await demo.invite("Cy", { viewport: { width: 900, height: 900 } });
    await strokes(late.page, 1);
    // A window of another size shows the same picture, except for squares that a line only touches.
    expect(differences(await picture(late.page), drawn)).toBeLessThan(12);
    expect(await late.page.locator(".line").allTextContents()).toEqual(["Ada<b>hello</b> there"]);
    await ada.page.getByRole("button", { name: "Undo" }).click();
    for (const { page } of [ada, bo, late]) await expect.poll(() => picture(page)).toBe(BLANK);
  }));

it("the demo's list shows the connected people, under their newest names, with their round trips, until they leave", () =>
  withTwo(async (ada, bo) => {
    await ada.page.getByText("2 here").waitFor();
    const trip = expect.stringMatching(/^\d+(\.\d)? ms$/) as string;
    await expect.poll(() => ada.page.locator(".person .ms").allTextContents()).toEqual([trip, trip]);
    await expect.poll(() => ada.page.locator("#rate-figure").textContent()).toMatch(/^[1-9]\d*\/s$/);
    expect(await ada.page.locator("#trip-line").getAttribute("points")).toMatch(/^\d+,\d+/);
    await bo.page.getByLabel("You are").fill("Bea");
    await bo.page.getByLabel("You are").press("Enter");
    await ada.page.locator(".person", { hasText: "Bea" }).waitFor();
    // The order is that in which the two joined.
    const names = await ada.page.locator(".person .name").allTextContents();
    expect(new Set(names)).toEqual(new Set(["Ada (you)", "Bea"]));
    await bo.page.reload();
    const id = await bo.page.locator(".person", { hasText: "Bea (you)" }).getAttribute("data-id");
    // A reload is a departure too: the page of Ada may show it, and not yet the return, when the page of Bea is ready.
    const bea = ada.page.locator(`.person[data-id="${id}"]`);
    await bea.waitFor();
    // A closed page ends its session. A killed page may not, and its session then stays suspended.
    await bo.page.goto("about:blank");
    await bea.waitFor({ state: "detached" });
    await ada.page.getByText("1 here").waitFor();
    expect(await ada.page.locator(".person .name").allTextContents()).toEqual(["Ada (you)"]);
  }));

it("the demo's board paints a line as it grows exactly as after a reload, and keeps the picture in another size", () =>
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
    const before = await picture(ada.page);
    const widthOf = (): Promise<number> =>
      ada.page.locator("#canvas").evaluate((canvas: HTMLCanvasElement) => canvas.width);
    const width = await widthOf();
    await ada.page.setViewportSize({ width: 700, height: 900 });
    await expect.poll(widthOf).not.toBe(width);
    expect(differences(await picture(ada.page), before)).toBeLessThan(40);
  }));

it("the vote asks in a dialog, which a letter key does not answer, and clears every board when the others agree", () =>
  withTwo(async (ada, bo, demo) => {
    const cy = await demo.invite("Cy");
    await draw(ada.page, DIAGONAL);
    await strokes(bo.page, 1);
    await bo.page.getByLabel("Message").fill("I was just");
    const clear = ada.page.getByRole("button", { name: "Clear", exact: true });
    await clear.click();
    const card = bo.page.getByRole("alertdialog", { name: "Ada would like to clear the board." });
    await card.waitFor();
    expect(await card.locator("#left").textContent()).toMatch(/^\d+ s left$/);
    expect(await card.evaluate((element) => element === document.activeElement)).toBe(true);
    await bo.page.keyboard.type("typing ");
    await bo.page.keyboard.press("Enter");
    expect(await card.isVisible()).toBe(true);
    await bo.page.keyboard.press("Tab");
    await bo.page.keyboard.press("Enter");
    await cy.page.getByRole("button", { name: "Agree" }).click();
    for (const { page } of [ada, bo]) await noticed(page, "The board stays: Bo refused.");
    await bo.page.keyboard.type(" typing");
    expect(await bo.page.getByLabel("Message").inputValue()).toBe("I was just typing");
    await strokes(bo.page, 1);

    // Cy leaves without an answer.
    await clear.click();
    await cy.page.getByRole("alertdialog").waitFor();
    await end(cy.page);
    await bo.page.getByRole("button", { name: "Agree" }).click();
    for (const { page } of [ada, bo]) {
      await noticed(page, "Nobody objected: Ada cleared the board.");
      expect(await picture(page)).toBe(BLANK);
    }
    await draw(ada.page, DIAGONAL);
    await clear.click();
    await bo.page.getByRole("button", { name: "Agree" }).click();
    await noticed(ada.page, "Everybody agreed: Ada cleared the board.");
    // A single person needs no vote.
    await end(bo.page);
    await ada.page.getByText("1 here").waitFor();
    await draw(ada.page, DIAGONAL);
    await clear.click();
    await ada.page.getByText("Ada cleared the board.", { exact: true }).waitFor();
    expect(await picture(ada.page)).toBe(BLANK);
  }, LONG_VOTE));

function differences(a: string, b: string): number {
  return a.split("").filter((square, i) => square !== b[i]).length;
}
