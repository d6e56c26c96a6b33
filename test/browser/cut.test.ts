/** What a page shows while its network is cut, and what it shows afterwards. */
import type { Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { bytes } from "../../src/node.js";
import { draw, enter, pixels, startDemo, strokes, withOne, withTwo } from "./demo.js";
import { Relay } from "../support/relay.js";

/** Long enough to act in, on a loaded machine. */
const LONG_CUT = { env: { CUT_MS: "6000" } };
const SHORT_CUT_MS = "1500";
const ZIGZAG = Array.from({ length: 6 }, (_, i): [number, number] => [0.1 + i * 0.15, i % 2 === 0 ? 0.2 : 0.8]);

describe("the count of messages", () => {
  it("shows how many wait while the network is cut, and then that each was delivered once", () =>
    withTwo(async (ada, bo) => {
      await cut(ada.page);
      expect(await waiting(ada.page)).toBe(0);
      await draw(ada.page, ZIGZAG);
      const drawn = await waiting(ada.page);
      expect(drawn).toBeGreaterThan(0);
      await ada.page.getByRole("button", { name: "React with fire" }).click();
      await say(ada.page, "from the dark");
      expect(await waiting(ada.page)).toBe(drawn + 2);
      expect(await bo.page.locator(".line").count()).toBe(0);
      const result = ada.page.getByText(`Connected again: ${drawn + 2} delivered, 0 lost, 0 duplicated.`);
      await result.waitFor();
      await strokes(bo.page, 1);
      expect(await bo.page.locator(".line .text").allTextContents()).toEqual(["from the dark"]);
      expect(await ada.page.locator("#waiting").textContent()).toBe("");
    }, LONG_CUT));

  it("says so if no message waited", () =>
    withOne(
      async ({ page }) => {
        await cut(page);
        await page.getByText("Connected again: No message waited.").waitFor();
      },
      { env: { CUT_MS: SHORT_CUT_MS } },
    ));

  it("counts what the session lost as delivered if the page sent it again", () =>
    withTwo(
      async (ada, bo) => {
        await cut(ada.page);
        await draw(ada.page, ZIGZAG);
        await say(ada.page, "sent on the next connection");
        await ada.page.getByText(/Connected again: \d+ delivered, 0 lost, 0 duplicated\./).waitFor();
        await strokes(bo.page, 1);
        expect(await bo.page.locator(".line .text").allTextContents()).toEqual(["sent on the next connection"]);
        expect(await ada.page.locator(".line.pending").count()).toBe(0);
      },
      { env: { SESSION_TTL_MS: "300", CUT_MS: "4000" } },
    ));

  it("reports a message that did not arrive as lost, and one that arrived twice as duplicated", () =>
    withOne(async ({ page }) => {
      // Gives the second message the number of the first: so one number arrives twice, and the other never.
      await page.evaluate(() => {
        const { send } = WebSocket.prototype;
        WebSocket.prototype.send = function (data) {
          const text = data as string;
          const first = /"reaction":"fire","n":(\d+)/.exec(text)?.[1];
          send.call(this, text.replace(/("reaction":"heart","n":)\d+/, `$1${first}`));
        };
      });
      await cut(page);
      await page.getByRole("button", { name: "React with fire" }).click();
      await page.getByRole("button", { name: "React with a heart" }).click();
      await page.getByText("Connected again: 1 delivered, 1 lost, 1 duplicated.").waitFor();
    }, LONG_CUT));
});

it("a line that is drawn while the network is cut is dotted until it is sent", () =>
  withTwo(async (ada, bo) => {
    await cut(ada.page);
    await draw(ada.page, ZIGZAG);
    const dotted = await pixels(ada.page);
    await strokes(bo.page, 1);
    await expect.poll(async () => (await pixels(ada.page)) === (await pixels(bo.page))).toBe(true);
    expect(await pixels(ada.page)).not.toBe(dotted);
  }, LONG_CUT));

describe("the number of people", () => {
  it("counts no page that has lost its connection, or that answers no pings", () =>
    withOne(async ({ page }, demo) => {
      await using relay = await Relay.to(demo.url);
      await using bo = await enter(relay.url.slice(0, -1), "Bo");
      const count = page.locator("#count");
      await count.getByText("2 here", { exact: true }).waitFor();
      await relay.close();
      await count.getByText("1 here", { exact: true }).waitFor();
      await page.getByTitle("Bo is reconnecting").waitFor();
      await relay.open();
      await count.getByText("2 here", { exact: true }).waitFor();
      await using cy = await enter(demo.url, "Cy", { ping: () => new Promise(() => {}) });
      await count.getByText("3 here", { exact: true }).waitFor();
      await page.getByTitle("Cy is reconnecting").waitFor();
      await count.getByText("2 here", { exact: true }).waitFor();
      await Promise.all([bo.close(), cy.close()]);
    }));
});

describe("a page whose server is gone", () => {
  it("says so, counts down to the next attempt, and tries at once by its button", () =>
    withOne(
      async ({ page }, first) => {
        await page.clock.install();
        await page.reload();
        await page.getByText("Live", { exact: true }).waitFor();
        await first.kill("SIGTERM");
        const cause = page.locator("#cause");
        const left = /^The server does not answer\. Next attempt in (\d+)\ss\.$/;
        const seconds = async (): Promise<number> => Number(left.exec((await cause.textContent())!)?.[1]);
        // The delays are random. One of the later ones is longer than 2 s.
        await expect.poll(seconds).toBeGreaterThan(2);
        await page.clock.pauseAt(await page.evaluate(() => Date.now() + 100));
        const before = await seconds();
        await page.clock.runFor(1000);
        expect(await seconds()).toBe(before - 1);
        expect(before).toBeLessThanOrEqual(5);
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
});

describe("a page that was away for so long that broadcasts to it were dropped", () => {
  it("loads the board again", () =>
    withOne(
      async ({ page }, demo) => {
        await using painter = await enter(demo.url, "Bo");
        await cut(page);
        const points = bytes(Uint16Array.from({ length: 1000 }, (_, i) => 60 * i));
        for (let stroke = 0; stroke < 800; stroke++) painter.notify("draw", { stroke, size: 0.01, points });
        await painter.request("undo");
        await page.getByText("Connected again").waitFor();
        const late = await demo.invite("Late");
        const count = Number(/\d+/.exec((await late.page.locator("#canvas").getAttribute("aria-label"))!)![0]);
        expect(count).toBeGreaterThan(50);
        await page.locator(".message[data-method=resync]").waitFor();
        await strokes(page, count);
      },
      { env: { CUT_MS: "8000" } },
    ));
});

describe("a chat line that is sent while the network is cut", () => {
  it("appears at once, in grey and in its place, and is confirmed there", () =>
    withTwo(async (ada, bo) => {
      await say(bo.page, "before");
      await ada.page.locator(".line", { hasText: "before" }).waitFor();
      await cut(ada.page);
      await say(ada.page, "mine, one");
      await say(ada.page, "mine, two");
      const pending = ada.page.locator(".line.pending .text");
      expect(await pending.allTextContents()).toEqual(["mine, one", "mine, two"]);
      expect(await colorOf(ada.page, ".line.pending .text")).not.toBe(
        await colorOf(ada.page, ".line:not(.pending) .text"),
      );
      expect(await ada.page.getByLabel("Message").inputValue()).toBe("");
      await say(bo.page, "meanwhile");
      await expect.poll(() => pending.count(), { timeout: 20_000 }).toBe(0);
      for (const { page } of [ada, bo])
        expect(await page.locator(".line .text").allTextContents()).toEqual([
          "before",
          "meanwhile",
          "mine, one",
          "mine, two",
        ]);
    }, LONG_CUT));
});

it("a chat line that a page sends twice is shown once", () =>
  withOne(async ({ page }, demo) => {
    await using bo = await enter(demo.url, "Bo");
    for (const text of ["once", "once", "then"]) await bo.request("say", { id: `Bo's ${text}`, text });
    await page.locator(".line", { hasText: "then" }).waitFor();
    expect(await page.locator(".line .text").allTextContents()).toEqual(["once", "then"]);
  }));

/** Cuts the network by the switch, and waits until the page has seen it. */
async function cut(page: Page): Promise<void> {
  await page.locator("#cut").evaluate((button: HTMLButtonElement) => button.click());
  await page.locator("#cause", { hasText: "You cut the network." }).waitFor();
}

/** Returns the number of messages that wait. */
async function waiting(page: Page): Promise<number> {
  const text = (await page.locator("#waiting").textContent())!;
  if (text === "Draw on: it arrives later, once.") return 0;
  return Number(/^(\d+) messages? waits?\.$/.exec(text)![1]);
}

async function say(page: Page, text: string): Promise<void> {
  await page.getByLabel("Message").fill(text);
  await page.getByLabel("Message").press("Enter");
}

function colorOf(page: Page, selector: string): Promise<string> {
  return page
    .locator(selector)
    .first()
    .evaluate((element) => getComputedStyle(element).color);
}
