import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launch } from "./chromium.js";
import { draw, picture, startDemo, visit, type Demo, type Visitor } from "./demo.js";

const BLANK = Array.from({ length: 24 }, () => ".".repeat(32)).join("\n");
const DIAGONAL: [number, number][] = [
  [0.2, 0.2],
  [0.5, 0.5],
  [0.8, 0.6],
];

let browser: Browser;
let demo: Demo;
let visitors: Visitor[];

beforeAll(async () => {
  browser = await launch();
});
afterAll(() => browser.close());

/** Two people at a fresh board, who leave again, and whose pages must not have complained. */
async function withTwo(env: Record<string, string>, run: (ada: Visitor, bo: Visitor) => Promise<void>): Promise<void> {
  demo = await startDemo(env);
  visitors = [];
  try {
    const ada = await visit(browser, demo.url, "Ada");
    const bo = await visit(browser, demo.url, "Bo");
    visitors.push(ada, bo);
    await run(ada, bo);
    for (const { complaints } of visitors) expect(complaints).toEqual([]);
  } finally {
    for (const { page } of visitors) await page.context().close();
    await demo[Symbol.asyncDispose]();
  }
}

describe("the demo's board", () => {
  it("shows a drawing in every window, and to those who come later", () =>
    withTwo({}, async (ada, bo) => {
      expect(await picture(bo.page)).toBe(BLANK);
      await draw(ada.page, DIAGONAL);
      const drawn = await picture(ada.page);
      expect(drawn).not.toBe(BLANK);
      await expect.poll(() => picture(bo.page)).toBe(drawn);
      const late = await visit(browser, demo.url, "Cy", { viewport: { width: 900, height: 900 } });
      visitors.push(late);
      await late.page.getByRole("img", { name: "Shared drawing, 1 stroke", exact: true }).waitFor();
      // Another size of window: the same picture, but for the squares that a line only grazes.
      expect(differences(await picture(late.page), drawn)).toBeLessThan(12);
      await ada.page.getByRole("button", { name: "Undo" }).click();
      for (const { page } of visitors) await expect.poll(() => picture(page)).toBe(BLANK);
    }));

  it("keeps the picture when a window changes its size", () =>
    withTwo({}, async (ada) => {
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

  it("shows the others' pointers with their names, where they are", () =>
    withTwo({}, async (ada, bo) => {
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

  it("brings a chat line to everybody, and to those who come later", () =>
    withTwo({}, async (ada, bo) => {
      await ada.page.getByLabel("Message").fill("<b>hello</b> there");
      await ada.page.getByRole("button", { name: "Send" }).click();
      for (const { page } of [ada, bo]) await page.locator(".line").getByText("<b>hello</b> there").waitFor();
      await expect.poll(() => ada.page.getByLabel("Message").inputValue()).toBe("");
      const late = await visit(browser, demo.url, "Cy");
      visitors.push(late);
      expect(await late.page.locator(".line").allTextContents()).toEqual(["Ada<b>hello</b> there"]);
    }));

  it("floats a reaction over every board", () =>
    withTwo({}, async (ada, bo) => {
      // Listened for in the page: a balloon is gone after some seconds.
      const seen = bo.page.waitForSelector(".balloon");
      await ada.page.getByRole("button", { name: "React with a rocket" }).click();
      expect(await (await seen).textContent()).toBe("🚀Ada");
      await ada.page.locator(".balloon").waitFor();
    }));

  it("shows who is here, under their newest name, until they leave", () =>
    withTwo({}, async (ada, bo) => {
      await ada.page.getByText("2 here").waitFor();
      await bo.page.getByLabel("You are").fill("Bea");
      await bo.page.getByLabel("You are").press("Enter");
      await ada.page.locator(".person", { hasText: "Bea" }).waitFor();
      expect(await ada.page.locator(".person .name").allTextContents()).toEqual(["Ada (you)", "Bea"]);
      await bo.page.reload();
      await bo.page.locator(".person", { hasText: "Bea (you)" }).waitFor();
      await bo.page.context().close();
      await ada.page.getByText("1 here").waitFor();
      expect(await ada.page.locator(".person .name").allTextContents()).toEqual(["Ada (you)"]);
    }));

  it("measures everybody's round trip and the messages a second", () =>
    withTwo({}, async (ada) => {
      await expect
        .poll(() => ada.page.locator(".person .ms").allTextContents(), { timeout: 8000 })
        .toEqual([expect.stringMatching(/^\d+(\.\d)? ms$/), expect.stringMatching(/^\d+(\.\d)? ms$/)]);
      await expect.poll(() => ada.page.locator("#rate-figure").textContent()).toMatch(/^[1-9]\d*\/s$/);
      const points = (await ada.page.locator("#trip-line").getAttribute("points"))!;
      expect(points).toMatch(/^\d+,\d+/);
    }));
});

describe("the vote on clearing the board", () => {
  it("clears every board when everybody else agrees", () =>
    withTwo({}, async (ada, bo) => {
      await draw(ada.page, DIAGONAL);
      await bo.page.getByRole("img", { name: "Shared drawing, 1 stroke", exact: true }).waitFor();
      await ada.page.getByRole("button", { name: "Clear" }).click();
      const question = bo.page.getByRole("alertdialog", { name: "Ada would like to clear the board." });
      await question.waitFor();
      expect(await question.locator("#left").textContent()).toMatch(/^\d+ s left$/);
      expect(await picture(ada.page)).not.toBe(BLANK);
      await question.getByRole("button", { name: "Agree" }).click();
      for (const { page } of [ada, bo]) {
        await page.getByText("Everybody agreed: Ada cleared the board.").waitFor();
        expect(await picture(page)).toBe(BLANK);
      }
      await expectRow(bo, "vote", "incoming", /^\d+(\.\d)? ms$/);
      await expectRow(ada, "clear", "outgoing", /^\d+(\.\d)? ms$/);
    }));

  it("keeps the board when somebody refuses", () =>
    withTwo({}, async (ada, bo) => {
      await draw(ada.page, DIAGONAL);
      await ada.page.getByRole("button", { name: "Clear" }).click();
      await bo.page.getByRole("button", { name: "Keep it" }).click();
      for (const { page } of [ada, bo]) {
        await page.getByText("The board stays: Bo refused.").waitFor();
        expect(await picture(page)).not.toBe(BLANK);
      }
    }));

  it("keeps the board when somebody does not answer in time", () =>
    withTwo({ VOTE_TIMEOUT_MS: "600" }, async (ada, bo) => {
      await draw(ada.page, DIAGONAL);
      await ada.page.getByRole("button", { name: "Clear" }).click();
      await bo.page.getByRole("alertdialog").waitFor();
      for (const { page } of [ada, bo]) {
        await page.getByText("The board stays: Bo did not answer.").waitFor();
        expect(await picture(page)).not.toBe(BLANK);
      }
      await bo.page.getByRole("alertdialog").waitFor({ state: "hidden" });
    }));

  it("does not wait for somebody who leaves", () =>
    withTwo({}, async (ada, bo) => {
      await draw(ada.page, DIAGONAL);
      await ada.page.getByRole("button", { name: "Clear" }).click();
      await bo.page.getByRole("alertdialog").waitFor();
      await bo.page.context().close();
      await ada.page.getByText("Everybody agreed: Ada cleared the board.").waitFor();
      expect(await picture(ada.page)).toBe(BLANK);
    }));
});

describe("the traffic panel", () => {
  it("gathers frequent messages in one row and stands still while paused", () =>
    withTwo({}, async (ada, bo) => {
      await draw(ada.page, DIAGONAL);
      await bo.page.locator(".message.incoming[data-method=drew] .times").filter({ hasText: /×\d+/ }).waitFor();
      expect(await bo.page.locator(".message[data-method=drew]").count()).toBe(1);
      await expectRow(bo, "join", "outgoing", /^\d+(\.\d)? ms$/);
      await bo.page.getByRole("button", { name: "Pause" }).click();
      await ada.page.getByRole("button", { name: "React with fire" }).click();
      await bo.page.locator(".balloon").waitFor();
      expect(await bo.page.locator(".message[data-method=reacted]").count()).toBe(0);
      await bo.page.getByRole("button", { name: /^Resume \(\d+ missed\)$/ }).click();
      await ada.page.getByRole("button", { name: "React with fire" }).click();
      await bo.page.locator(".message[data-method=reacted]").waitFor();
    }));

  it("keeps no more than its newest rows", () =>
    withTwo({}, async (ada, bo) => {
      const fire = ada.page.getByRole("button", { name: "React with fire" });
      await fire.evaluate((button: HTMLButtonElement) => {
        for (let i = 0; i < 120; i++) button.click();
      });
      await expect.poll(() => bo.page.locator(".message").count()).toBe(80);
      expect(await bo.page.locator(".message[data-method=join]").count()).toBe(0);
    }));
});

describe("the page", () => {
  it("draws with a finger on a phone, does not scroll for it, and fits in its width", async () => {
    await using phones = await startDemo();
    const options = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };
    const { page, complaints } = await visit(browser, phones.url, "A name of 24 characters!", options);
    const { x, y, width, height } = (await page.locator("#canvas").boundingBox())!;
    const cdp = await page.context().newCDPSession(page);
    const touch = (type: string, points: { x: number; y: number }[]): Promise<unknown> =>
      cdp.send("Input.dispatchTouchEvent", { type, touchPoints: points } as never);
    await touch("touchStart", [{ x: x + width / 2, y: y + height * 0.8 }]);
    for (let i = 8; i > 1; i--) await touch("touchMove", [{ x: x + width / 2, y: y + (height * i) / 10 }]);
    await touch("touchEnd", []);
    await page.getByRole("img", { name: "Shared drawing, 1 stroke", exact: true }).waitFor();
    const columns = (await picture(page)).split("\n").filter((row) => row.includes("X"));
    expect(columns.length).toBeGreaterThan(10);
    expect(await page.evaluate(() => document.scrollingElement!.scrollTop)).toBe(0);
    await page.getByLabel("Message").fill("x".repeat(300));
    await page.getByLabel("Message").press("Enter");
    await page.locator(".line").waitFor();
    for (const tab of ["Chat", "Traffic", "People"]) {
      await page.getByRole("button", { name: tab, exact: true }).click();
      await page.locator(`[data-panel=${tab.toLowerCase()}]`).waitFor();
      expect(await page.locator("#panels > section:visible").count()).toBe(1);
      expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
    }
    expect(complaints).toEqual([]);
    await page.context().close();
  });

  it("says so when the server is gone, and comes back by its button", async () => {
    const first = await startDemo();
    const { page } = await visit(browser, first.url, "Ada");
    await first[Symbol.asyncDispose]();
    await page.getByRole("alert").getByText("The connection ended (1006).").waitFor();
    await page.getByText("Offline").waitFor();
    await using second = await startDemo({ PORT: new URL(first.url).port });
    expect(second.url).toBe(first.url);
    await page.getByRole("button", { name: "Reconnect" }).click();
    await page.locator(".person", { hasText: "Ada (you)" }).waitFor();
    await page.context().close();
  });

  it("is served from its own folders only", async () => {
    await using files = await startDemo();
    const status = async (path: string): Promise<number> => (await fetch(`${files.url}${path}`)).status;
    expect(await status("/")).toBe(200);
    expect(await status("/reciproc/index.js")).toBe(200);
    const outside = ["/server.js", "/page/..%2fserver.js", "/reciproc/%2e%2e/demo/.build/server.js", "/page/.x.js"];
    expect(await Promise.all(outside.map(status))).toEqual(outside.map(() => 404));
  });

  it("takes the next port when one is taken", async () => {
    await using first = await startDemo();
    const { port } = new URL(first.url);
    await using second = await startDemo({ PORT: port });
    expect(Number(new URL(second.url).port)).toBeGreaterThan(Number(port));
    expect((await fetch(second.url)).status).toBe(200);
  });
});

async function expectRow({ page }: Visitor, method: string, direction: string, duration: RegExp): Promise<void> {
  const row = page.locator(`.message.${direction}[data-method=${method}]`);
  await expect.poll(() => row.locator(".duration").textContent()).toMatch(duration);
  expect(await row.getByRole("img", { name: direction }).textContent()).toBe(direction === "incoming" ? "←" : "→");
  expect(await row.locator(".id").textContent()).toMatch(/^#\d+$/);
}

function differences(a: string, b: string): number {
  return a.split("").filter((square, i) => square !== b[i]).length;
}
