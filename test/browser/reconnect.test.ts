import type { Page } from "playwright-core";
import { describe, expect, it, vi } from "vitest";
import { Relay } from "../support/relay.js";
import { PATIENCE } from "./browser.js";
import {
  draw,
  leave,
  PHONE,
  pixels,
  startDemo,
  strokes,
  visit,
  withDemo,
  withOne,
  withTwo,
  type Demo,
  type Visit,
} from "./demo.js";

/** A change applied twice, or in another order, would look different. */
const ZIGZAG = Array.from({ length: 9 }, (_, i): [number, number] => [0.1 + i * 0.1, i % 2 === 0 ? 0.2 : 0.8]);
const UPHILL: [number, number][] = [
  [0.2, 0.9],
  [0.5, 0.5],
  [0.9, 0.1],
];
vi.setConfig({ testTimeout: 90_000 });

/** Visits whose pages record each connection state that they show. */
const NOTED: Visit = {
  async open(...how) {
    const visitor = await visit(...how);
    await note(visitor.page);
    return visitor;
  },
};

describe("the board, when its connection is cut", () => {
  it("delivers drawings made while its switch has cut the network, once, and shows the state", () =>
    withTwo(async (ada, bo) => {
      await cut(ada.page);
      await bo.page.getByTitle("Ada is reconnecting").waitFor();
      await draw(ada.page, ZIGZAG);
      await strokes(ada.page, 1);
      await back(ada.page);
      await strokes(bo.page, 1);
      await bo.page.getByTitle("Ada is reconnecting").waitFor({ state: "detached" });
      await alike(ada.page, bo.page);
      // The call that cut the network was pending, and is answered later.
      const answered = ada.page.locator(".message[data-method=cut] .duration");
      await expect.poll(() => answered.textContent()).toMatch(/^[3-9]\d{3} ms$/);
      await expect.poll(() => said(ada.page), PATIENCE).toEqual(["Reconnecting", "Back", "Live"]);
      expect(await said(bo.page)).toEqual([]);
      expect(new Set(await people(bo.page))).toEqual(new Set(["Ada", "Bo (you)"]));
    }, NOTED));

  it("delivers in both directions the drawings made without a network, and the unfinished line", () =>
    withOne(async (bo, demo) => {
      await using relay = await Relay.to(demo.url);
      const ada = await NOTED.open!(relay.url.replace("ws:", "http:"), "Cy");
      const { x, y, width, height } = (await ada.page.locator("#canvas").boundingBox())!;
      const to = (at: [number, number]): Promise<void> =>
        ada.page.mouse.move(x + at[0] * width, y + at[1] * height, { steps: 6 });
      await to(ZIGZAG[0]!);
      await ada.page.mouse.down();
      for (const at of ZIGZAG.slice(1, 5)) await to(at);
      await strokes(bo.page, 1);
      await relay.close();
      for (const at of ZIGZAG.slice(5)) await to(at);
      await ada.page.mouse.up();
      await ada.page.getByText("Reconnecting", { exact: true }).waitFor();
      await draw(ada.page, UPHILL);
      await strokes(ada.page, 2);
      await draw(bo.page, [[0.5, 0.95]]);
      await strokes(bo.page, 2);
      expect(await said(ada.page)).toEqual(["Reconnecting"]);
      await relay.open();
      await back(ada.page);
      for (const { page } of [ada, bo]) await strokes(page, 3);
      await expect.poll(() => said(ada.page), PATIENCE).toEqual(["Reconnecting", "Back", "Live"]);
      // The order of strokes may differ until the page is reloaded.
      await ada.page.reload();
      await strokes(ada.page, 3);
      await alike(ada.page, bo.page, await lateFor(demo));
      await leave(ada);
    }));

  it.each([
    ["SIGTERM", 0],
    ["SIGKILL", null],
  ] as const)(
    "reconnects to a server restarted after %s, delivers new drawings once, and keeps unsent text",
    (signal, exitCode) =>
      withTwo(
        async (ada, bo, first) => {
          await draw(ada.page, ZIGZAG);
          await draw(bo.page, [[0.5, 0.5]]);
          for (const { page } of [ada, bo]) await strokes(page, 2);
          await ada.page.getByLabel("Message").fill("half a li");
          expect(await first.kill(signal)).toBe(exitCode);
          for (const { page } of [ada, bo]) await page.getByText("Reconnecting", { exact: true }).waitFor();
          await draw(ada.page, UPHILL);
          await draw(bo.page, [[0.1, 0.1]]);
          for (const { page } of [ada, bo]) await strokes(page, 3);
          await using second = await startDemo({ PORT: new URL(first.url).port });
          expect(second.url).toBe(first.url);
          await Promise.all([back(ada.page), back(bo.page)]);
          // The state of the first server is lost.
          for (const { page } of [ada, bo]) await strokes(page, 2);
          await draw(bo.page, [[0.9, 0.9]]);
          for (const { page } of [ada, bo]) await strokes(page, 3);
          for (const { page } of [ada, bo]) {
            const names = await people(page);
            expect(names).toHaveLength(2);
            expect(names).toEqual(
              expect.arrayContaining(page === ada.page ? ["Ada (you)", "Bo"] : ["Ada", "Bo (you)"]),
            );
            await page.getByText("The server did not know this page any more").waitFor({ state: "attached" });
            await expect.poll(() => said(page), PATIENCE).toEqual(["Reconnecting", "Back", "Live"]);
          }
          await alike(ada.page, bo.page, await lateFor(second));
          expect(await ada.page.getByLabel("Message").inputValue()).toBe("half a li");
          await ada.page.getByRole("button", { name: "Undo" }).click();
          for (const { page } of [ada, bo]) await strokes(page, 2);
        },
        { ...NOTED, mayComplain: true },
      ),
  );

  it("delivers drawings once after the session expired, and shows those of others", () =>
    withTwo(
      async (ada, bo, demo) => {
        await draw(ada.page, [[0.1, 0.9]]);
        await strokes(bo.page, 1);
        await cut(ada.page);
        const alone = bo.page.getByText("1 here").waitFor();
        await Promise.all([draw(ada.page, ZIGZAG), alone.then(() => draw(bo.page, [[0.9, 0.9]]))]);
        await back(ada.page);
        for (const { page } of [ada, bo]) await strokes(page, 3);
        await bo.page.getByText("2 here").waitFor();
        // After a second loss, drawings delivered after the first one are not sent again.
        await expect.poll(() => said(ada.page), PATIENCE).toEqual(["Reconnecting", "Back", "Live"]);
        await cut(ada.page);
        await draw(ada.page, [[0.5, 0.05]]);
        await expect.poll(() => said(ada.page).then((words) => words.length), PATIENCE).toBe(6);
        for (const { page } of [ada, bo]) await strokes(page, 4);
        await alike(ada.page, bo.page, await lateFor(demo));
      },
      { ...NOTED, env: { SESSION_TTL_MS: "500" } },
    ));

  it.each([
    ["wide", { viewport: { width: 1280, height: 800 } }],
    ["on a phone", PHONE],
  ])("moves nothing on a page that is %s", (_which, options) =>
    withDemo(async (demo) => {
      const { page } = await demo.invite("A name of 24 characters!", options);
      const tab = page.getByRole("button", { name: "People" });
      if (await tab.isVisible()) await tab.click();
      const places = (): Promise<unknown> =>
        page.evaluate(() =>
          ["#rooms", "#me", ".board", ".tools", "#panels", "#cut", "#lines"].map((part) => {
            const { x, y, width, height } = document.querySelector(part)!.getBoundingClientRect();
            return { part, x, y, width, height };
          }),
        );
      const before = await places();
      await page.locator("#cut").click();
      await page.getByText("Reconnecting", { exact: true }).waitFor();
      expect(await places()).toEqual(before);
      await page.getByText("Back", { exact: true }).waitFor(PATIENCE);
      expect(await places()).toEqual(before);
    }),
  );
});

/** Presses the switch, and waits until the page has seen that its connection is gone. */
async function cut(page: Page): Promise<void> {
  const before = await said(page);
  // The focus does not change, so a person can keep typing.
  await page.locator("#cut").evaluate((button: HTMLButtonElement) => button.click());
  await expect.poll(() => said(page)).toEqual([...before, "Reconnecting"]);
}

/** Waits until the page has reported that it is connected again. */
async function back(page: Page): Promise<void> {
  await expect.poll(() => said(page), PATIENCE).toContain("Back");
}

/** Starts to record each connection state that the page shows. */
async function note(page: Page): Promise<void> {
  await page.evaluate(() => {
    const status = document.querySelector<HTMLElement>("#status")!;
    const words: string[] = [];
    const write = (): void => {
      words.push(status.textContent);
      status.dataset["said"] = JSON.stringify(words);
    };
    new MutationObserver(write).observe(status, { childList: true });
  });
}

function said(page: Page): Promise<string[]> {
  return page
    .locator("#status")
    .evaluate((status: HTMLElement) => JSON.parse(status.dataset["said"] ?? "[]") as string[]);
}

function people(page: Page): Promise<string[]> {
  return page.locator(".person .name").allTextContents();
}

/** Waits until all show the same board, to the pixel. */
async function alike(first: Page, ...others: Page[]): Promise<void> {
  for (const other of others) await expect.poll(async () => (await pixels(other)) === (await pixels(first))).toBe(true);
}

/** Opens a new page, to which the server sends the whole board. */
async function lateFor(demo: Pick<Demo, "url">): Promise<Page> {
  return (await visit(demo.url, "Late")).page;
}
