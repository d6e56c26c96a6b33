/** What a page of the demo shows while it has no connection, and what it shows afterwards. */
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { bytes } from "../../src/node.js";
import { interceptSent, type Sending } from "./browser.js";
import {
  draw,
  enter,
  leave,
  live,
  note,
  PHONE,
  pixels,
  said,
  say,
  startDemo,
  strokes,
  visit,
  withCuttable,
  withOne,
  withTwo,
  type Demo,
} from "./demo.js";

/** Gives the message "heart" the number of "fire": so one number arrives twice, and the other never. */
const repeatNumber = (): Sending => {
  let first: string | undefined;
  return (text, send) => {
    first ??= /"reaction":"fire","n":(\d+)/.exec(text)?.[1];
    send(text.replace(/("reaction":"heart","n":)\d+/, `$1${first}`));
  };
};

const visitRepeating: typeof visit = async (...args) => {
  const visitor = await visit(...args);
  await interceptSent(visitor.page, repeatNumber);
  await visitor.page.reload();
  await live(visitor.page);
  return visitor;
};

/** A change applied twice, or in another order, would look different. */
const ZIGZAG = Array.from({ length: 9 }, (_, i): [number, number] => [0.1 + i * 0.1, i % 2 === 0 ? 0.2 : 0.8]);
const UPHILL: [number, number][] = [
  [0.2, 0.9],
  [0.5, 0.5],
  [0.9, 0.1],
];
const ALL_STATES = ["Reconnecting", "Back", "Live"];

describe("a page whose network is cut", () => {
  it("shows what waits as waiting, counts it, and delivers it once and in order, the unfinished line too", () =>
    withCuttable(async (ada, demo) => {
      const bo = await demo.invite("Bo");
      await note(bo.page);
      await say(bo.page, "before");
      await ada.page.locator(".line", { hasText: "before" }).waitFor();
      const { x, y, width, height } = (await ada.page.locator("#canvas").boundingBox())!;
      const to = (at: [number, number]): Promise<void> =>
        ada.page.mouse.move(x + at[0] * width, y + at[1] * height, { steps: 6 });
      await to(ZIGZAG[0]!);
      await ada.page.mouse.down();
      for (const at of ZIGZAG.slice(1, 5)) await to(at);
      await strokes(bo.page, 1);
      await ada.cut();
      await bo.page.getByTitle("Ada is reconnecting").waitFor();
      for (const at of ZIGZAG.slice(5)) await to(at);
      await ada.page.mouse.up();
      await draw(ada.page, UPHILL);
      await strokes(ada.page, 2);
      const drawn = await waiting(ada.page);
      expect(drawn).toBeGreaterThan(0);
      await ada.page.getByRole("button", { name: "React with fire" }).click();
      await say(ada.page, "mine, one");
      await say(ada.page, "mine, two");
      expect(await ada.page.getByLabel("Message").inputValue()).toBe("");
      const pending = ada.page.locator(".line.pending .text");
      expect(await pending.allTextContents()).toEqual(["mine, one", "mine, two"]);
      const [grey, black] = [".line.pending .text", ".line:not(.pending) .text"];
      expect(await colorOf(ada.page, grey)).not.toBe(await colorOf(ada.page, black));
      expect(await waiting(ada.page)).toBe(drawn + 3);
      const dotted = await pixels(ada.page);
      await say(bo.page, "meanwhile");
      await draw(bo.page, [[0.5, 0.95]]);
      await strokes(bo.page, 2);
      await ada.mend();
      await ada.page.getByText(`Connected again: ${drawn + 3} delivered, 0 lost, 0 duplicated.`).waitFor();
      for (const { page } of [ada, bo]) await strokes(page, 3);
      await bo.page.getByTitle("Ada is reconnecting").waitFor({ state: "detached" });
      await expect.poll(() => pending.count()).toBe(0);
      for (const { page } of [ada, bo])
        await expect.poll(() => lines(page)).toEqual(["before", "meanwhile", "mine, one", "mine, two"]);
      expect(await pixels(ada.page)).not.toBe(dotted);
      await expect.poll(() => ada.page.locator("#waiting").textContent()).toBe("");
      await expect.poll(() => said(ada.page)).toEqual(ALL_STATES);
      expect(await said(bo.page)).toEqual([]);
      // The order of strokes may differ until the page is reloaded.
      await ada.page.reload();
      await strokes(ada.page, 3);
      await alike(ada.page, bo.page, await lateFor(demo));
    }));

  it("delivers drawings and lines once after its session expired, also when it is lost twice", () =>
    withCuttable(
      async (ada, demo) => {
        const bo = await demo.invite("Bo");
        await draw(ada.page, [[0.1, 0.9]]);
        await strokes(bo.page, 1);
        await ada.cut();
        await draw(ada.page, ZIGZAG);
        await say(ada.page, "sent on the next connection");
        await bo.page.getByText("1 here").waitFor();
        await draw(bo.page, [[0.9, 0.9]]);
        await ada.mend();
        await ada.page.getByText(/Connected again: \d+ delivered, 0 lost, 0 duplicated\./).waitFor();
        for (const { page } of [ada, bo]) await strokes(page, 3);
        await bo.page.getByText("2 here").waitFor();
        await expect.poll(() => lines(bo.page)).toEqual(["sent on the next connection"]);
        expect(await ada.page.locator(".line.pending").count()).toBe(0);
        await expect.poll(() => said(ada.page)).toEqual(ALL_STATES);
        // After a second loss, drawings delivered after the first one are not sent again.
        await ada.cut();
        await draw(ada.page, [[0.5, 0.05]]);
        await ada.mend();
        for (const { page } of [ada, bo]) await strokes(page, 4);
        await alike(ada.page, bo.page, await lateFor(demo));
      },
      { env: { SESSION_TTL_MS: "500" } },
    ));

  it("loads the board again if it was away for so long that broadcasts to it were dropped", () =>
    withCuttable(async ({ page, cut, mend }, demo) => {
      await using painter = await enter(demo.url, "Bo");
      await cut();
      const points = bytes(Uint16Array.from({ length: 1000 }, (_, i) => 60 * i));
      for (let stroke = 0; stroke < 800; stroke++) painter.notify("draw", { stroke, size: 0.01, points });
      await painter.request("undo");
      await mend();
      await page.getByText("Connected again").waitFor();
      const late = await demo.invite("Late");
      const count = Number(/\d+/.exec((await late.page.locator("#canvas").getAttribute("aria-label"))!)![0]);
      expect(count).toBeGreaterThan(50);
      await page.locator(".message[data-method=resync]").waitFor();
      await strokes(page, count);
    }));

  it.each([
    ["wide", { viewport: { width: 1280, height: 800 } }],
    ["on a phone", PHONE],
  ])("moves nothing if it is %s, and reports what was lost and what arrived twice", (_which, options) =>
    withCuttable(
      async ({ page, cut, mend }) => {
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
        await cut();
        expect(await places()).toEqual(before);
        await page.getByRole("button", { name: "React with fire" }).click();
        await page.getByRole("button", { name: "React with a heart" }).click();
        await mend();
        await page.getByText("Connected again: 1 delivered, 1 lost, 1 duplicated.").waitFor();
        expect(await places()).toEqual(before);
      },
      { options, open: visitRepeating },
    ),
  );
});

it("the page counts no person who answers no pings, and shows once a line that arrived twice", () =>
  withOne(async ({ page }, demo) => {
    await note(page, "#count");
    await using bo = await enter(demo.url, "Bo", { ping: () => new Promise(() => {}) });
    for (const text of ["once", "once", "then"]) await bo.request("say", { id: `Bo's ${text}`, text });
    await page.locator(".line", { hasText: "then" }).waitFor();
    expect(await lines(page)).toEqual(["once", "then"]);
    await page.getByTitle("Bo is reconnecting").waitFor();
    await page.locator("#count").getByText("1 here", { exact: true }).waitFor();
    expect(await said(page, "#count")).toContain("2 here");
    await bo.close();
  }));

describe("a page whose server is gone", () => {
  it("says so, counts down to the next attempt, and tries at once by its button", () =>
    withOne(
      async ({ page }, first) => {
        await page.clock.install();
        await page.reload();
        await page.getByText("Live", { exact: true }).waitFor();
        await first.kill("SIGTERM");
        // From here on, the clock of the page runs only by `runFor`. It cannot be set back, so it is set far ahead.
        await page.clock.pauseAt(Date.now() + 3_600_000);
        const cause = page.locator("#cause");
        const left = /^The server does not answer\. Next attempt in (\d+)\ss\.$/;
        const seconds = async (): Promise<number> => Number(left.exec((await cause.textContent())!)?.[1]);
        // The delays are random. One of the later ones is longer than 2 s.
        const later = async (): Promise<number> => (await page.clock.runFor(250), seconds());
        await expect.poll(later).toBeGreaterThan(2);
        const before = await seconds();
        expect(before).toBeLessThanOrEqual(5);
        await page.clock.runFor(1000);
        expect(await seconds()).toBe(before - 1);
        await using second = await startDemo({ PORT: new URL(first.url).port });
        expect(second.url).toBe(first.url);
        // The page's clock stands still, so nothing but the button connects it.
        await page.getByRole("button", { name: "Try now" }).click();
        await page.getByText("Back", { exact: true }).waitFor();
        await page.locator("#outage").waitFor({ state: "hidden" });
        await page.context().close();
      },
      { mayComplain: true },
    ));

  it("continues with a new server that has an empty board, with the new drawings and the unsent text", () =>
    withTwo(
      async (ada, bo, first) => {
        for (const { page } of [ada, bo]) await note(page);
        await draw(ada.page, ZIGZAG);
        await draw(bo.page, [[0.5, 0.5]]);
        for (const { page } of [ada, bo]) await strokes(page, 2);
        await ada.page.getByLabel("Message").fill("half a li");
        await first.kill("SIGKILL");
        for (const { page } of [ada, bo]) await page.getByText("Reconnecting", { exact: true }).waitFor();
        await draw(ada.page, UPHILL);
        await draw(bo.page, [[0.1, 0.1]]);
        for (const { page } of [ada, bo]) await strokes(page, 3);
        await using second = await startDemo({ PORT: new URL(first.url).port });
        // The state of the first server is lost.
        for (const { page } of [ada, bo]) await strokes(page, 2);
        await draw(bo.page, [[0.9, 0.9]]);
        for (const { page } of [ada, bo]) {
          await strokes(page, 3);
          await page.getByText("The server did not know this page any more").waitFor({ state: "attached" });
          await expect.poll(() => said(page)).toEqual(ALL_STATES);
          await expect.poll(() => page.locator(".person").count()).toBe(2);
        }
        await alike(ada.page, bo.page, await lateFor(second));
        expect(await ada.page.getByLabel("Message").inputValue()).toBe("half a li");
        await ada.page.getByRole("button", { name: "Undo" }).click();
        for (const { page } of [ada, bo]) await strokes(page, 2);
      },
      { mayComplain: true },
    ));

  it("has the board from before SIGKILL if the server keeps it in a file, and what was done meanwhile", async () => {
    const folder = await mkdtemp(join(tmpdir(), "reciproc-board-"));
    const env = { BOARD_FILE: join(folder, "board.jsonl") };
    await withTwo(
      async (ada, bo, first) => {
        await draw(ada.page, UPHILL);
        await draw(bo.page, [[0.5, 0.2]]);
        for (const { page } of [ada, bo]) await strokes(page, 2);
        await say(ada.page, "before");
        await bo.page.locator(".line", { hasText: "before" }).waitFor();
        await first.kill("SIGKILL");
        for (const { page } of [ada, bo]) await page.getByText("Reconnecting", { exact: true }).waitFor();
        await draw(ada.page, [[0.2, 0.8]]);
        await say(bo.page, "meanwhile");
        await using second = await startDemo({ ...env, PORT: new URL(first.url).port });
        const late = await visit(second.url, "Late");
        for (const { page } of [ada, bo, late]) {
          await strokes(page, 3);
          await expect.poll(() => lines(page)).toEqual(["before", "meanwhile"]);
        }
        await alike(ada.page, bo.page, late.page);
        await expect.poll(() => bo.page.locator(".line.pending").count()).toBe(0);
        // A person can undo what they drew before the restart, because the server knows their page again.
        for (let i = 0; i < 2; i++) await ada.page.getByRole("button", { name: "Undo" }).click();
        for (const { page } of [ada, bo, late]) await strokes(page, 1);
        await leave(late);
      },
      { env, mayComplain: true },
    );
    await rm(folder, { recursive: true });
  });
});

it("the board is in a file for each port, of which the server prints the name, and which other users cannot read", async () => {
  await using any = await startDemo();
  // The port is taken, so this server takes one of the next.
  await using named = await startDemo({ PORT: new URL(any.url).port, BOARD_FILE: undefined });
  await expect.poll(() => named.printed()).toContain("The board is kept in ");
  const [, file] = /^The board is kept in (.+)$/m.exec(named.printed())!;
  const { port } = new URL(named.url);
  expect(Number(port)).toBeGreaterThan(Number(new URL(any.url).port));
  expect((await fetch(named.url)).status).toBe(200);
  expect(basename(file!)).toBe(`board-${port}.jsonl`);
  expect((await stat(file!)).mode & 0o077).toBe(0);
  await rm(file!);
});

async function waiting(page: Page): Promise<number> {
  return Number(/^(\d+) messages? waits?\.$/.exec((await page.locator("#waiting").textContent())!)![1]);
}

function lines(page: Page): Promise<string[]> {
  return page.locator(".line:not(.pending) .text").allTextContents();
}

function colorOf(page: Page, selector: string): Promise<string> {
  return page
    .locator(selector)
    .first()
    .evaluate((element) => getComputedStyle(element).color);
}

async function alike(first: Page, ...others: Page[]): Promise<void> {
  for (const other of others) await expect.poll(async () => (await pixels(other)) === (await pixels(first))).toBe(true);
}

async function lateFor(demo: Pick<Demo, "url">): Promise<Page> {
  return (await visit(demo.url, "Late")).page;
}
