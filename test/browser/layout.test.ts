/** Proves that a page with ten people fits into windows of many sizes: every clipped element can be scrolled into view. */
import type { Frame, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import type { AnyPeer } from "../../src/node.js";
import { browser } from "./browser.js";
import { enter, live, LONG_VOTE, startDemo, type Demo } from "./demo.js";

/** The last is the longest that the demo accepts. */
const NAMES = [...Array.from({ length: 7 }, (_, i) => `Brave Badger ${i}`), "Maximiliane Mustermann", "W".repeat(24)];

let demo: Demo;
const people: AnyPeer[] = [];
/** A page for each kind of device. Only one is open at a time, because each open page counts as a person. */
const pages = new Map<boolean, Page>();

beforeAll(async () => {
  // A page that was left without a close counts as a person until its session expires.
  demo = await startDemo({ SESSION_TTL_MS: "500", ...LONG_VOTE.env });
  for (const name of NAMES) people.push(await enter(demo.url, name));
  for (const peer of people)
    await peer.request("say", { id: peer.id, text: "a line that may need more than one row of the chat" });
});
afterEach(() => Promise.all([...pages.values()].map((page) => page.goto(new URL("/icon.svg", demo.url).href))));
afterAll(async () => {
  await Promise.all(people.map((peer) => peer.close()));
  await demo[Symbol.asyncDispose]();
});

/** Opens the page of the demo in a window of this size. */
async function open(width: number, height: number, isTouched: boolean): Promise<Page> {
  const page = pages.get(isTouched) ?? (await (await browser()).newPage({ hasTouch: isTouched, isMobile: isTouched }));
  pages.set(isTouched, page);
  await page.emulateMedia({ reducedMotion: "reduce" });
  await page.setViewportSize({ width, height });
  await page.goto(demo.url);
  await live(page);
  await expect.poll(() => page.locator(".person").count()).toBe(NAMES.length + 1);
  return page;
}

it.each([
  [1440, 900, { isTouched: false, scrolls: false }],
  [1280, 800, { isTouched: false, scrolls: false }],
  [1024, 768, { isTouched: false, scrolls: false }],
  [1024, 600, { isTouched: false, scrolls: false }],
  [844, 390, { isTouched: true, scrolls: false }],
  [667, 375, { isTouched: true, scrolls: false }],
  [768, 1024, { isTouched: true, scrolls: true }],
  [390, 844, { isTouched: true, scrolls: true }],
])("the page with ten people fits at %i x %i, with a vote and in the split view", async (width, height, device) => {
  const { isTouched, scrolls } = device;
  const page = await open(width, height, isTouched);
  for (const room of ["Board", "Editor"]) {
    await page.getByRole("tab", { name: room }).click();
    if (room === "Editor") await page.locator(".file:visible .cm-content").waitFor();
    for (const tab of ["Try this", "Code", "Chat", "Traffic", "People"]) {
      const button = page.getByRole("button", { name: tab, exact: true });
      if (await button.isVisible()) await button.click();
      const [pageWidth, pageHeight] = await page.evaluate(() => {
        const { scrollWidth, scrollHeight } = document.documentElement;
        return [scrollWidth, scrollHeight] as const;
      });
      expect(pageWidth).toBe(width);
      if (!scrolls) expect(pageHeight).toBe(height);
      expect(await unreachable(page, "button, a, input, canvas, .person, .line, .cm-scroller")).toEqual([]);
    }
  }
  // Now the panel with the people is shown at each size. None of them needs to be scrolled to within the list.
  expect(await page.locator("#people").evaluate((list) => list.scrollHeight - list.clientHeight)).toBe(0);
  const isWide = width > 920;
  expect(await page.locator("#split").isVisible()).toBe(isWide);
  // On a phone, a second window cannot be beside the first.
  expect(await page.locator("#second").isVisible()).toBe(isWide);
  expect((await page.locator("h1 span").boundingBox())!.width).toBeGreaterThan(50);
  expect((await page.getByText("Cut the network").first().boundingBox())!.width).toBeGreaterThan(100);
  const chat = page.getByRole("button", { name: "Chat", exact: true });
  if (await chat.isVisible()) await chat.click();
  // Three rows of text.
  expect((await page.locator("#lines").boundingBox())!.height).toBeGreaterThan(60);

  await page.getByRole("tab", { name: "Board" }).click();
  // At a pointer and at a reaction, the longest name is inside the board.
  const wide = people[8]!;
  wide.notify("move", { x: 0.98, y: 0.5 });
  for (let i = 0; i < 8; i++) wide.notify("react", { reaction: "fire" });
  for (const part of [".cursor .name", ".balloon .name"]) {
    // In one step, because a balloon disappears soon.
    const found = await page.waitForFunction((selector) => {
      const board = document.querySelector(".board")!.getBoundingClientRect();
      const names = [...document.querySelectorAll(selector)].map((each) => each.getBoundingClientRect());
      const fits = (name: DOMRect): boolean =>
        name.left > board.left - 1 && name.right < board.right + 1 && name.width < board.width / 2;
      return names.length > 0 && { areInside: names.every(fits) };
    }, part);
    expect([part, await found.jsonValue()]).toEqual([part, { areInside: true }]);
  }
  const verdict = wide.request("clear");
  await page.getByRole("alertdialog").waitFor();
  expect(await unreachable(page, "#vote, #question, #left, #refuse, #agree")).toEqual([]);
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(width);
  await page.getByRole("button", { name: "Keep it" }).click();
  await verdict;

  if (!isWide || height < 768) return;
  await page.goto(`${demo.url}/split`);
  for (const frame of page.frames().slice(1)) {
    await frame.getByText("Live", { exact: true }).waitFor();
    const below = await frame.evaluate(() =>
      ["#canvas", ".tools", "#tabs"].filter(
        (part) => document.querySelector(part)!.getBoundingClientRect().bottom > innerHeight,
      ),
    );
    expect(below).toEqual([]);
    expect(await frame.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBeLessThanOrEqual(0);
    expect(await unreachable(frame, "button, a, input, canvas, .line")).toEqual([]);
  }
});

/** Returns the visible elements that are clipped, wholly or in part, and cannot be scrolled into view. */
function unreachable(page: Page | Frame, selector: string): Promise<string[]> {
  return page.evaluate((elements) => {
    type Side = { from: number; to: number };
    const fits = (inner: Side, outer: Side): boolean => inner.from >= outer.from - 1 && inner.to <= outer.to + 1;
    /** Follows an element outwards along one axis. If an ancestor can scroll, the ancestor's own place counts from there on. */
    const isCutOff = (element: Element, axis: "X" | "Y"): boolean => {
      const sideOf = (each: Element): Side => {
        const { left, right, top, bottom } = each.getBoundingClientRect();
        return axis === "X" ? { from: left, to: right } : { from: top, to: bottom };
      };
      let side = sideOf(element);
      for (let each = element.parentElement; each !== document.body; each = each!.parentElement) {
        const overflow = getComputedStyle(each!)[`overflow${axis}`];
        if (overflow === "visible") continue;
        if (overflow === "auto" || overflow === "scroll") side = sideOf(each!);
        else if (!fits(side, sideOf(each!))) return true;
      }
      const { scrollWidth, scrollHeight } = document.documentElement;
      const [scrolled, size] = axis === "X" ? [scrollX, scrollWidth] : [scrollY, scrollHeight];
      return !fits({ from: side.from + scrolled, to: side.to + scrolled }, { from: 0, to: size });
    };
    return [...document.querySelectorAll(elements)]
      .filter((element) => element.checkVisibility() && (isCutOff(element, "X") || isCutOff(element, "Y")))
      .map((element) => element.outerHTML.slice(0, 120));
  }, selector);
}
