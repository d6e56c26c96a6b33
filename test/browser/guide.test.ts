/** How the page explains itself: the line about it, the four steps, the code, and the split view. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Frame, Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import type { Excerpt } from "../../demo/api.js";
import { draw, enter, noticed, strokes, withDemo, withOne, withTwo } from "./demo.js";
import { ready } from "./editor.js";

const LINE: [number, number][] = [
  [0.2, 0.2],
  [0.6, 0.7],
];
const SHORT_CUT = { env: { CUT_MS: "1000" } };

describe("the line about the page", () => {
  it("links to the documents, which the demo serves, with working links of their own", () =>
    withOne(async ({ page }, demo) => {
      const links = await page
        .locator(".guide .about a")
        .evaluateAll((all) => all.map((each) => (each as HTMLAnchorElement).href));
      expect(links.length).toBeGreaterThan(2);
      for (const link of links) {
        const response = await fetch(link);
        expect([link, response.status, response.headers.get("content-type")]).toEqual([
          link,
          200,
          "text/html; charset=utf-8",
        ]);
        expect(await response.text()).toMatch(/<h1[^>]*>/);
      }
      const api = await (await fetch(`${demo.url}/about/docs/API.md`)).text();
      for (const [, id] of api.matchAll(/href="#([^"]+)"/g)) expect(api).toContain(`id="${id}"`);
      const readme = await (await fetch(`${demo.url}/about/README.md`)).text();
      expect(readme).not.toContain("measured: begin");
      for (const [, source] of readme.matchAll(/<img src="([^"]+)"/g))
        expect((await fetch(new URL(source!, `${demo.url}/about/README.md`))).status).toBe(200);
    }));

  it("serves documents only, and no other file of the repository", () =>
    withDemo(async ({ url }) => {
      const outside = [
        "package.json",
        "docs/../package.json",
        "docs/..%2fpackage.json",
        "src/index.ts",
        "docs/soak.json",
        "docs/none.md",
      ];
      for (const path of outside) expect((await fetch(`${url}/about/${path}`)).status).toBe(404);
    }));
});

describe("the four steps", () => {
  it("act, and are ticked off as they happen", () =>
    withDemo(async (demo) => {
      const { page } = await demo.invite("Ada");
      expect(await done(page)).toEqual([]);
      await page.getByRole("button", { name: "Draw", exact: true }).click();
      await noticed(page, "Draw on the board");
      await page.keyboard.press("Space");
      await page.keyboard.press("ArrowRight");
      await page.keyboard.press("Space");
      await strokes(page, 1);
      expect(await done(page)).toEqual(["draw"]);
      await page.locator("#steps").getByRole("button", { name: "Cut the network" }).click();
      await expect.poll(() => done(page), { timeout: 20_000 }).toEqual(["draw", "cut"]);
      const popup = page.waitForEvent("popup");
      await page.getByRole("link", { name: "Open a second window" }).click();
      const second = await popup;
      await expect.poll(() => done(page)).toEqual(["draw", "cut", "window"]);
      await page.locator("#steps").getByRole("button", { name: "Clear the board" }).click();
      await second.getByRole("button", { name: "Agree" }).click();
      await noticed(page, "Everybody agreed");
      await expect.poll(() => done(page)).toEqual(["draw", "cut", "window", "clear"]);
      expect(await page.locator("#steps li").allTextContents()).toEqual([
        "Draw (done)",
        "Cut the network (done)",
        expect.stringContaining("Open a second window (done)"),
        "Clear the board (done)",
      ]);
      await second.close();
    }, SHORT_CUT));
});

describe("the drawer with the code", () => {
  it("has at most ten lines for each topic, which are in the source", () =>
    withDemo(async ({ url }) => {
      await using peer = await enter(url, "Bo");
      const topics = Object.entries((await peer.request("code")) as Record<string, Excerpt[]>);
      expect(topics.length).toBeGreaterThan(8);
      for (const [topic, places] of topics) {
        const lines = places.flatMap(({ code }) => code.split("\n"));
        expect([topic, lines.length]).toEqual([topic, Math.min(lines.length, 10)]);
        expect(lines.length).toBeGreaterThan(3);
        for (const { file, line, code } of places) {
          const source = await readFile(join(import.meta.dirname, "../../demo", file), "utf8");
          const [first] = code.split("\n");
          expect(source.split("\n")[line - 1]!.trim()).toBe(first);
        }
      }
    }));

  it("shows the code behind what just happened, with a link to its explanation", () =>
    withTwo(async (ada, bo, demo) => {
      const code = ada.page.getByRole("button", { name: "Code", exact: true });
      expect(await ada.page.locator(".message[data-method=code]").count()).toBe(0);
      await code.click();
      await draw(ada.page, LINE);
      await shows(
        ada.page,
        "A line was drawn",
        'peer.notify("draw", params)',
        'board.notify("drew", drew, { except: peer })',
      );
      await ada.page.getByLabel("Message").fill("hello");
      await ada.page.getByLabel("Message").press("Enter");
      await shows(ada.page, "A chat line", 'retry: "not-sent"', 'board.notify("said", line)');
      await ada.page.locator("#cut").click();
      await shows(ada.page, "The connection was cut", 'peer.on("suspend"');
      // It stays, whatever the page does by itself and other people do.
      await ada.page.getByText("Connected again").waitFor();
      await draw(bo.page, LINE);
      await strokes(ada.page, 2);
      const pings = (): Promise<string | null> => ada.page.locator("#periodic-count").textContent();
      const before = await pings();
      await expect.poll(pings).not.toBe(before);
      await ada.page.mouse.move(300, 300);
      await ada.page.locator("#traffic [data-method=move]").first().waitFor();
      await shows(ada.page, "The connection was cut", 'peer.on("resume"');
      const address = await ada.page.getByRole("link", { name: "Read more" }).getAttribute("href");
      const [path, id] = address!.split("#");
      expect(await (await fetch(`${demo.url}${path}`)).text()).toContain(`id="${id}"`);
      await code.click();
      expect(await ada.page.locator("#code-body").isVisible()).toBe(false);
    }, SHORT_CUT));

  it("shows what others do until the person does something", () =>
    withTwo(async (ada, bo) => {
      await ada.page.getByRole("button", { name: "Code", exact: true }).click();
      await shows(ada.page, "The page joined", "onOpen:");
      await draw(bo.page, LINE);
      await shows(ada.page, "A line was drawn");
    }));

  it("links to sections that exist", () =>
    withDemo(async ({ url }) => {
      const script = await (await fetch(`${url}/page/code.js`)).text();
      const sections = [...script.matchAll(/read: "([^"#]+)#([^"]+)"/g)];
      expect(sections.length).toBeGreaterThan(8);
      for (const [, file, id] of sections)
        expect(await (await fetch(`${url}/about/docs/${file}`)).text()).toContain(`id="${id}"`);
    }));
});

describe("the split view", () => {
  it("shows two people in one page, with names and networks of their own", () =>
    withDemo(async (demo) => {
      const { page } = await demo.invite("Ada");
      await page.getByRole("link", { name: "Split view" }).click();
      const [first, second] = [await seat(page, 1), await seat(page, 2)];
      expect(await first.getByLabel("You are").inputValue()).toBe("Ada");
      await expect.poll(() => first.locator(".person").count()).toBe(2);
      expect(await second.getByLabel("You are").inputValue()).not.toBe("Ada");
      // An empty chat does not take the place of the traffic.
      await first.locator("#traffic [data-method=join]").waitFor();
      await first.getByRole("button", { name: "Cut the network" }).click();
      await first.getByText("Reconnecting", { exact: true }).waitFor();
      expect(await second.locator("#status").textContent()).toBe("Live");
      for (const each of [first, second]) await each.getByRole("button", { name: "Chat", exact: true }).click();
      await second.getByLabel("Message").fill("still here");
      await second.getByLabel("Message").press("Enter");
      await second.locator(".line:not(.pending)", { hasText: "still here" }).waitFor();
      expect(await first.locator(".line").count()).toBe(0);
      await first.locator(".line", { hasText: "still here" }).waitFor();
      await page.getByRole("link", { name: "One person" }).click();
      await page.getByText("Live", { exact: true }).waitFor();
      expect(await page.getByLabel("You are").inputValue()).toBe("Ada");
    }));

  it("is not offered inside itself, also if there is room for the link", () =>
    withDemo(async (demo) => {
      const { page } = await demo.invite("Ada", { viewport: { width: 2000, height: 1000 } });
      expect(await page.locator("#split").isVisible()).toBe(true);
      await page.goto(`${demo.url}/split`);
      for (const number of [1, 2] as const) {
        const frame = await seat(page, number);
        expect(await frame.locator("#code-toggle").isVisible()).toBe(true);
        expect(await frame.locator("#split").isVisible()).toBe(false);
      }
      // A document replaces the whole view.
      await (await seat(page, 1)).getByRole("link", { name: "Protocol" }).click();
      await page.waitForURL(`${demo.url}/about/docs/PROTOCOL.md`);
    }));

  it("has an editor for each person", () =>
    withDemo(async (demo) => {
      const { page } = await demo.invite("Ada");
      await page.goto(`${demo.url}/split`);
      const second = await seat(page, 2);
      await second.getByRole("tab", { name: "Editor" }).click();
      await ready(second as unknown as Page, "css");
      expect(await (await seat(page, 1)).getByRole("tabpanel", { name: "Board" }).isVisible()).toBe(true);
    }));
});

/** Returns the page of a person in the split view, when it has joined. */
async function seat(page: Page, number: 1 | 2): Promise<Frame> {
  const handle = await page.locator(`iframe[src$="seat=${number}"]`).elementHandle();
  const frame = (await handle?.contentFrame())!;
  await frame.getByText("Live", { exact: true }).waitFor();
  return frame;
}

function done(page: Page): Promise<(string | undefined)[]> {
  return page
    .locator("#steps [data-done]")
    .evaluateAll((items) => items.map((item) => (item as HTMLElement).dataset["step"]));
}

/** Waits until the drawer shows a topic with these pieces of code. */
async function shows(page: Page, title: string, ...code: string[]): Promise<void> {
  await page.locator("#code-title", { hasText: title }).waitFor();
  // The code arrives after the title.
  for (const piece of code) await expect.poll(() => page.locator("#code-body").textContent()).toContain(piece);
}
