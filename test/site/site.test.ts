/** Builds and serves the documentation site as `npm run docs -- --serve` does, follows every link inside it, and looks at it in Chromium. */
import { readdirSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { newPage } from "../browser/browser.js";
import { Running } from "../readme/examples.js";
import { freePort } from "../support/ports.js";

const ROOT = join(import.meta.dirname, "../..");
const DIST = join(ROOT, "site/.build/dist");

/** The paths in the site of the pages that are documents, without ".html". */
const DOCUMENTS = readdirSync(join(ROOT, "docs"), { recursive: true, encoding: "utf8" })
  .filter((name) => name.endsWith(".md"))
  .map((name) => name.replaceAll("\\", "/").replace(/\.md$/, ""))
  .concat("changelog", "contributing", "reporting");

const pages = new Map<string, string>();
let docs: Running;
let address: string;

beforeAll(async () => {
  await ensurePackages(import.meta.dirname);
  address = `http://localhost:${await freePort()}`;
  docs = new Running(join(ROOT, "scripts/docs.js"), ["--serve", "--port", new URL(address).port], {}, ROOT);
  await docs.line(new RegExp(address));
  const files = await readdir(DIST, { recursive: true });
  for (const file of files.filter((name) => name.endsWith(".html")))
    pages.set(file.replaceAll("\\", "/"), await readFile(join(DIST, file), "utf8"));
}, 900_000);
afterAll(() => docs.stop());

function attributes(html: string, name: string): string[] {
  const values = [...html.matchAll(new RegExp(`\\s${name}="([^"]*)"`, "g"))].map(([, value]) => value!);
  return values.map((value) => value.replaceAll("&amp;", "&").replaceAll("&#39;", "'"));
}

const idsOf = new Map<string, Set<string>>();
function hasAnchor(page: string, anchor: string): boolean {
  if (!idsOf.has(page)) idsOf.set(page, new Set(attributes(pages.get(page)!, "id")));
  return anchor === "" || idsOf.get(page)!.has(decodeURIComponent(anchor));
}

describe("the site", () => {
  it("is built without a warning", () => {
    // esbuild may print this when Vite has built everything and ends before it.
    const lines = [...docs.lines, ...docs.errors.split("\n")].filter(
      (line) => !line.startsWith("fatal error: too many writes on closed pipe"),
    );
    expect(lines.filter((line) => /warn|error|falling back|dead link/i.test(line))).toEqual([]);
    expect(pages.size).toBeGreaterThan(100);
  });

  it("has a page for each document, and each is in the sidebar", () => {
    expect(DOCUMENTS.length).toBeGreaterThan(30);
    const [, sidebar] = /<aside class="VPSidebar"([\s\S]*?)<\/aside>/.exec(pages.get("API.html")!)!;
    const linked = attributes(sidebar!, "href").map((href) => href.slice(1));
    expect(DOCUMENTS.filter((path) => !pages.has(`${path}.html`) || !linked.includes(`${path}.html`))).toEqual([]);
  });

  it("has no link or anchor inside it that leads nowhere", async () => {
    const files = new Set((await readdir(DIST, { recursive: true })).map((name) => name.replaceAll("\\", "/")));
    let count = 0;
    const broken: string[] = [];
    for (const [from, html] of pages) {
      for (const href of new Set(attributes(html, "href"))) {
        if (/^(https?|mailto|data):/.test(href)) continue;
        count++;
        const { pathname, hash } = new URL(href, `${address}/${from}`);
        const to = pathname.replace(/\/$/, "/index.html").slice(1);
        if (pages.has(to) ? !hasAnchor(to, hash.slice(1)) : !files.has(to)) broken.push(`${from}: ${href}`);
      }
    }
    expect(count).toBeGreaterThan(3_000);
    expect(broken).toEqual([]);
  });

  it.each(["README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md"])("has the anchors of %s", async (name) => {
    const text = await readFile(join(ROOT, name), "utf8");
    const links = [...text.matchAll(/\]\(docs\/([^)]+)\.md(?:#([^)]+))?\)/g)];
    expect(links.length).toBeGreaterThan(0);
    const targets = links.map(([, path, anchor = ""]) => [`${path}.html`, anchor] as const);
    expect(targets.filter(([page, anchor]) => !pages.has(page) || !hasAnchor(page, anchor))).toEqual([]);
  });

  it("has a list of its pages for language models, whose links lead to pages", async () => {
    const links = [...(await readFile(join(DIST, "llms.txt"), "utf8")).matchAll(/^- \[[^\]]+\]\(\/([^)]+)\)/gm)];
    expect(links.length).toBeGreaterThan(35);
    expect(links.map(([, path]) => path!).filter((path) => !pages.has(path))).toEqual([]);
  });

  it("loads nothing from other servers", () => {
    for (const html of pages.values()) {
      const links = [...html.matchAll(/<link[^>]*href="([^"]*)"/g)].map(([, href]) => href!);
      const loaded = [...attributes(html, "src"), ...links];
      expect(loaded.filter((href) => /^(https?:)?\/\//.test(href))).toEqual([]);
    }
  });

  it("has a page of types for each export of the package, with its doc comment", () => {
    const text = pages.get("types/node/functions/serve.html")!;
    expect(text).toContain("Resolves when the server");
    expect(text).toContain("reciproc/node");
    for (const name of ["connect", "open", "pair", "contract"])
      expect([...pages.keys()]).toContain(`types/index/functions/${name}.html`);
    expect([...pages.keys()]).toContain("types/index/variables/bytes.html");
  });
});

/** Goes to a page of the site and waits until its script runs: before, keys and clicks do nothing, and names are missing. */
async function visit(page: Page, path: string): Promise<void> {
  await page.goto(`${address}/${path}.html`);
  await page.waitForFunction(() => "__vue_app__" in document.querySelector("#app")!);
}

/** `isWhole`: looks at the contrast of all text too, and at what surrounds the document, which is the same on all pages. */
async function faultsOf(page: Page, isWhole = true): Promise<string[]> {
  await page.addScriptTag({ path: join(import.meta.dirname, "node_modules/axe-core/axe.min.js") });
  return page.evaluate(async (enabled) => {
    const options = { resultTypes: ["violations"], rules: { "color-contrast": { enabled } } };
    const { violations } = await (globalThis as any).axe.run(enabled ? document : "main", options);
    return violations.map(({ id, nodes }: any) => `${id}: ${nodes[0].html} (${nodes.length})`);
  }, isWhole);
}

function focused(page: Page): Promise<string> {
  return page.evaluate(() => {
    const { ariaLabel, textContent, title } = document.activeElement as HTMLElement;
    return (ariaLabel || textContent || title).trim();
  });
}

async function search(page: Page, words: string): Promise<void> {
  await page.keyboard.press("Control+k");
  await page.locator("#localsearch-input:focus").waitFor();
  await page.keyboard.type(words);
}

async function tabTo(page: Page, text: string): Promise<void> {
  for (let i = 0; i < 60 && (await focused(page)) !== text; i++) await page.keyboard.press("Tab");
  expect(await focused(page)).toBe(text);
}

const DESKTOP = { viewport: { width: 1440, height: 900 }, colorScheme: "light" } as const;
const DARK = { ...DESKTOP, colorScheme: "dark" } as const;
const PHONE = { ...DESKTOP, viewport: { width: 390, height: 844 } } as const;
const SERVE = "types/node/functions/serve";
const KINDS = [
  "index",
  "CLI",
  "guides/board",
  "guides/deployment",
  "guides/rooms",
  "guides/troubleshooting",
  "API",
  SERVE,
];
const ALL = [...new Set([...KINDS, ...DOCUMENTS])];

/** Runs a test on a page of the site, which must have no error: in a new browser page, or in one that is kept. */
async function onPage(path: string, on: BrowserContextOptions | Page, test: (page: Page) => Promise<void>) {
  const isKept = "goto" in on;
  const page = isKept ? on : await newPage(on);
  const errors: string[] = [];
  const note = (error: Error): void => void errors.push(error.message);
  page.on("pageerror", note);
  await visit(page, path);
  await test(page);
  expect(errors).toEqual([]);
  page.off("pageerror", note);
  if (!isKept) await page.context().close();
}

describe("the site in a browser", () => {
  describe.each([
    ["", DESKTOP, ALL],
    // All views have the same elements, so axe looks at colours, at menus, and in the dark, only on the pages with every kind of them.
    [", dark", DARK, KINDS],
  ] as const)("a document%s", (_which, view, paths) => {
    // One page, which loads what all documents have in common once.
    let page: Page;
    beforeAll(async () => void (page = await newPage(view)));
    afterAll(() => page.context().close());

    it.each(paths)("fits a screen and a phone, and has no fault that axe finds: %s", async (path) => {
      await page.setViewportSize(view.viewport);
      await onPage(path, page, async () => {
        const width = (): Promise<number> => page.evaluate(() => document.documentElement.scrollWidth);
        const background = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        const isDark = Number(/\d+/.exec(background)![0]) < 128;
        const wide = await width();
        const faults = await faultsOf(page, KINDS.includes(path));
        await page.setViewportSize(PHONE.viewport);
        expect({ isDark, faults, widths: [wide, await width()] }).toEqual({
          isDark: view === DARK,
          faults: [],
          widths: [view.viewport.width, PHONE.viewport.width],
        });
      });
    });
  });

  it("says that an address has no page", () =>
    onPage("guides/nothing", DESKTOP, async (page) => {
      await page.getByRole("heading", { name: "Page not found" }).waitFor();
      await page.getByRole("link", { name: "First page" }).click();
      await page.getByRole("heading", { name: "Both sides call" }).waitFor();
    }));

  it("finds by its search, and opens what is found by the keyboard", () =>
    onPage("index", DESKTOP, async (page) => {
      for (const [words, title] of [
        ["403", "The 403 that most users meet first"],
        ["missed", "Reload after missed"],
        ["cancel", "Cancel a call"],
        ["close code", "By close code"],
      ] as const) {
        await search(page, words);
        await page.getByRole("option").filter({ hasText: title }).first().waitFor();
        await page.keyboard.press("Escape");
      }
      await search(page, "session expired");
      const option = page.getByRole("option", { name: /session/i });
      await option.first().waitFor();
      await page.keyboard.press("Enter");
      await page.waitForURL(({ pathname }) => pathname.endsWith(".html") && pathname !== "/index.html");
    }));

  it("has no fault that axe finds in its menu on a phone, and in its search", () =>
    onPage("guides/rooms", { ...PHONE, colorScheme: "dark" }, async (page) => {
      await page.getByRole("button", { name: "Menu" }).click();
      await page.getByRole("link", { name: "Streams", exact: true }).waitFor();
      expect(await faultsOf(page)).toEqual([]);
      await page.keyboard.press("Escape");
      await search(page, "topic");
      await page.getByRole("option").first().waitFor();
      expect(await faultsOf(page)).toEqual([]);
    }));

  it("is used by the keyboard: skips to the content, shows where the focus is, and changes the scheme", () =>
    onPage("guides/rooms", DESKTOP, async (page) => {
      for (const name of ["API", "Streams"]) {
        await tabTo(page, name);
        expect(await page.evaluate(() => getComputedStyle(document.activeElement!).outlineStyle)).not.toBe("none");
      }
      await visit(page, "guides/rooms");
      await page.keyboard.press("Tab");
      expect(await focused(page)).toBe("Skip to content");
      await page.keyboard.press("Enter");
      await page.keyboard.press("Tab");
      expect(await page.evaluate(() => document.activeElement!.closest("#VPContent") !== null)).toBe(true);
      await visit(page, "index");
      const isDark = (): Promise<boolean> => page.evaluate(() => document.documentElement.classList.contains("dark"));
      await tabTo(page, "Switch to dark theme");
      await page.keyboard.press("Enter");
      await expect.poll(isDark).toBe(true);
    }));

  it("opens its pages by the menu of a phone, by the keyboard", () =>
    onPage("guides/rooms", PHONE, async (page) => {
      await tabTo(page, "Menu");
      await page.keyboard.press("Enter");
      await tabTo(page, "Streams");
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { level: 1, name: "Streams" }).waitFor();
    }));
});

it("ends with its server when it is stopped", async () => {
  expect((await fetch(address)).status).toBe(200);
  await docs.stop();
  // The server of VitePress is a process of its own. If it still ran, it would answer.
  await expect(fetch(address)).rejects.toThrow("fetch failed");
});
