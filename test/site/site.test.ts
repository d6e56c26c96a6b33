/** Builds and serves the documentation site as `npm run docs -- --serve` does, follows every link inside it, and looks at it in Chromium. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, readFile } from "node:fs/promises";
import { join, posix } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { browser } from "../browser/browser.js";
import { freePort } from "../support/ports.js";

const ROOT = join(import.meta.dirname, "../..");
const DIST = join(ROOT, "site/.build/dist");
const SHOTS = join(ROOT, "test-output/site");

/** What the test uses of a fault that axe found. */
interface Violation {
  id: string;
  nodes: { html: string }[];
}

/** The HTML of each page, by its path in the site. */
const pages = new Map<string, string>();
let printed = "";
let docs: ChildProcess;
let address: string;

beforeAll(async () => {
  await ensurePackages(import.meta.dirname);
  address = `http://localhost:${await freePort()}`;
  const args = ["scripts/docs.js", "--serve", "--port", new URL(address).port];
  docs = spawn(process.execPath, args, { cwd: ROOT, stdio: ["ignore", "pipe", "pipe"] });
  const isServed = new Promise<void>((resolve, reject) => {
    const take = (text: Buffer): void => {
      printed += text.toString();
      if (printed.includes(address)) resolve();
    };
    docs.stdout!.on("data", take);
    docs.stderr!.on("data", take);
    docs.once("exit", (code) => reject(new Error(`docs.js ended with ${code}:\n${printed}`)));
  });
  await isServed;
  const files = await readdir(DIST, { recursive: true });
  for (const file of files.filter((name) => name.endsWith(".html")))
    pages.set(file.replaceAll("\\", "/"), await readFile(join(DIST, file), "utf8"));
}, 900_000);
afterAll(stop);

/** Stops the server of the site. */
async function stop(): Promise<void> {
  if (docs.exitCode !== null) return;
  docs.kill("SIGTERM");
  await once(docs, "exit");
}

/** Returns the attributes of that name in a page. */
function attributes(html: string, name: string): string[] {
  const values = [...html.matchAll(new RegExp(`\\s${name}="([^"]*)"`, "g"))].map(([, value]) => value!);
  return values.map((value) => value.replaceAll("&amp;", "&").replaceAll("&#39;", "'"));
}

const idsOf = new Map<string, Set<string>>();
function hasAnchor(page: string, anchor: string): boolean {
  if (!idsOf.has(page)) idsOf.set(page, new Set(attributes(pages.get(page)!, "id")));
  return anchor === "" || idsOf.get(page)!.has(decodeURIComponent(anchor));
}

/** Returns the links of the pages of the site, each with the page and the anchor that it leads to. */
function internalLinks(): { from: string; href: string; to: string; anchor: string }[] {
  return [...pages].flatMap(([from, html]) =>
    [...new Set(attributes(html, "href"))]
      .filter((href) => !/^(https?|mailto|data):/.test(href))
      .map((href) => {
        const [path = "", anchor = ""] = href.split("#");
        const absolute = path === "" ? from : posix.join("/", posix.dirname(from), path).slice(1);
        const to = path.startsWith("/") ? path.slice(1) : absolute;
        return { from, href, to: to === "" || to.endsWith("/") ? `${to}index.html` : to, anchor };
      }),
  );
}

describe("the site", () => {
  it("is built without a warning", () => {
    // esbuild may print this when Vite has built everything and ends before it.
    const lines = printed.split("\n").filter((line) => !line.startsWith("fatal error: too many writes on closed pipe"));
    expect(lines.filter((line) => /warn|error|falling back|dead link/i.test(line))).toEqual([]);
    expect(pages.size).toBeGreaterThan(100);
  });

  it("has a page for each document, and each is in the sidebar", async () => {
    const documents = (await readdir(join(ROOT, "docs"), { recursive: true }))
      .filter((name) => name.endsWith(".md"))
      .map((name) => name.replaceAll("\\", "/").replace(/\.md$/, ".html"));
    expect(documents.length).toBeGreaterThan(30);
    documents.push("changelog.html", "contributing.html", "reporting.html");
    const [, sidebar] = /<aside class="VPSidebar"([\s\S]*?)<\/aside>/.exec(pages.get("API.html")!)!;
    const linked = attributes(sidebar!, "href").map((href) => href.slice(1));
    expect(documents.filter((document) => !pages.has(document) || !linked.includes(document))).toEqual([]);
  });

  it("has no link or anchor inside it that leads nowhere", async () => {
    const links = internalLinks();
    expect(links.length).toBeGreaterThan(3_000);
    const files = new Set((await readdir(DIST, { recursive: true })).map((name) => name.replaceAll("\\", "/")));
    const broken = links.filter(({ to, anchor }) => (pages.has(to) ? !hasAnchor(to, anchor) : !files.has(to)));
    expect(broken.map(({ from, href }) => `${from}: ${href}`)).toEqual([]);
  });

  it("has the anchors to which README and the security policy link", async () => {
    for (const document of ["README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md"]) {
      const links = [
        ...(await readFile(join(ROOT, document), "utf8")).matchAll(/\]\(docs\/([^)]+)\.md(?:#([^)]+))?\)/g),
      ];
      expect(links.length).toBeGreaterThan(0);
      const broken = links.filter(
        ([, page, anchor]) => !pages.has(`${page}.html`) || !hasAnchor(`${page}.html`, anchor ?? ""),
      );
      expect(broken.map(([link]) => `${document}: ${link}`)).toEqual([]);
    }
  });

  it("has a list of its pages for language models, whose links lead to pages", async () => {
    const links = [...(await readFile(join(DIST, "llms.txt"), "utf8")).matchAll(/^- \[[^\]]+\]\(\/([^)]+)\)/gm)];
    expect(links.length).toBeGreaterThan(35);
    expect(links.map(([, path]) => path!).filter((path) => !pages.has(path))).toEqual([]);
  });

  it("loads nothing from other servers", () => {
    const loaded = [...pages].flatMap(([from, html]) =>
      [...attributes(html, "src"), ...[...html.matchAll(/<link[^>]*href="([^"]*)"/g)].map(([, href]) => href!)]
        .filter((href) => /^(https?:)?\/\//.test(href))
        .map((href) => `${from}: ${href}`),
    );
    expect(loaded).toEqual([]);
  });

  it("has a page of types for each export of the package, with its doc comment", () => {
    const text = pages.get("types/node/functions/serve.html")!;
    expect(text).toContain("Resolves when the server");
    expect(text).toContain("reciproc/node");
    for (const name of ["connect", "open", "pair", "contract", "bytes"])
      expect([...pages.keys()]).toContain(
        `types/index/functions/${name}.html`.replace("functions/bytes", "variables/bytes"),
      );
  });
});

/** Goes to a page of the site and waits until its script runs: before, keys and clicks do nothing, and names are missing. */
async function visit(page: Page, path: string): Promise<void> {
  await page.goto(`${address}/${path}.html`);
  await page.waitForFunction(() => "__vue_app__" in document.querySelector("#app")!);
}

/** Returns what axe finds in a page. */
async function faultsOf(page: Page): Promise<string[]> {
  await page.addScriptTag({ path: join(import.meta.dirname, "node_modules/axe-core/axe.min.js") });
  return page.evaluate(async () => {
    const { axe } = globalThis as unknown as { axe: { run(): Promise<{ violations: Violation[] }> } };
    return (await axe.run()).violations.map(({ id, nodes }) => `${id}: ${nodes[0]!.html} (${nodes.length})`);
  });
}

/** Returns the label, the text or the title of the element that has the focus. */
function focused(page: Page): Promise<string> {
  return page.evaluate(() => {
    const { ariaLabel, textContent, title } = document.activeElement as HTMLElement;
    return (ariaLabel || textContent || title).trim();
  });
}

/** Opens the search by its key, and types words. */
async function search(page: Page, words: string): Promise<void> {
  await page.keyboard.press("Control+k");
  await page.locator("#localsearch-input:focus").waitFor();
  await page.keyboard.type(words);
}

/** Presses Tab until an element of that text has the focus. */
async function tabTo(page: Page, text: string): Promise<void> {
  for (let i = 0; i < 60 && (await focused(page)) !== text; i++) await page.keyboard.press("Tab");
  expect(await focused(page)).toBe(text);
}

/** Returns the paths of all documents, and of one page of generated types. */
function documentPaths(): string[] {
  const paths = [...pages.keys()].filter((path) => !path.startsWith("types/")).map((path) => path.slice(0, -5));
  expect(paths.length).toBeGreaterThan(40);
  return [...paths, "types/node/functions/serve"];
}

describe("the site in a browser", () => {
  const NAMES = ["index", "guides/getting-started", "guides/rooms", "guides/troubleshooting", "API"];
  const VIEWS = [
    { scheme: "light", kind: "desktop", viewport: { width: 1440, height: 900 } },
    { scheme: "dark", kind: "desktop", viewport: { width: 1440, height: 900 } },
    { scheme: "light", kind: "phone", viewport: { width: 390, height: 844 } },
    { scheme: "dark", kind: "phone", viewport: { width: 390, height: 844 } },
  ] as const;
  beforeAll(async () => void (await mkdir(SHOTS, { recursive: true })));

  const errors: string[] = [];

  async function open(path: string, { scheme, viewport }: (typeof VIEWS)[number]): Promise<Page> {
    const page = await (await (await browser()).newContext({ viewport, colorScheme: scheme })).newPage();
    page.on("pageerror", (error) => errors.push(error.message));
    await visit(page, path);
    return page;
  }

  it.each(VIEWS)("fits the screen, without an error, on a $kind, $scheme", async (view) => {
    const page = await open("index", view);
    for (const name of NAMES) {
      await visit(page, name);
      const { width, background } = await page.evaluate(() => ({
        width: document.documentElement.scrollWidth,
        background: getComputedStyle(document.body).backgroundColor,
      }));
      await page.screenshot({ path: join(SHOTS, `${name.replace("/", "-")}-${view.scheme}-${view.kind}.png`) });
      expect([name, width]).toEqual([name, view.viewport.width]);
      const [red] = /\d+/.exec(background)!;
      expect(Number(red) < 128).toBe(view.scheme === "dark");
    }
    expect(errors).toEqual([]);
    await page.context().close();
  });

  it("fits the screen of a phone with every document", async () => {
    const page = await open("index", VIEWS[2]);
    const widths: Record<string, number> = {};
    for (const path of documentPaths()) {
      await visit(page, path);
      widths[path] = await page.evaluate(() => document.documentElement.scrollWidth);
    }
    const wide = Object.entries(widths).filter(([, width]) => width !== VIEWS[2].viewport.width);
    expect(wide).toEqual([]);
    await page.context().close();
  });

  it("says that an address has no page", async () => {
    const page = await open("guides/nothing", VIEWS[0]);
    await page.getByRole("heading", { name: "Page not found" }).waitFor();
    await page.getByRole("link", { name: "First page" }).click();
    await page.getByRole("heading", { name: "Both sides call" }).waitFor();
    await page.context().close();
  });

  it.each([
    ["403", "The 403 that most users meet first"],
    ["missed", "Reload after missed"],
    ["cancel", "Cancel a call"],
    ["close code", "By close code"],
  ])("finds by its search: %s", async (words, title) => {
    const page = await open("index", VIEWS[0]);
    await search(page, words);
    await page.getByRole("option").filter({ hasText: title }).first().waitFor();
    await page.context().close();
  });

  // Both schemes have the same elements. In the dark one, axe looks at the pages with every kind of them.
  it.each([
    ["any document, light", VIEWS[0], documentPaths],
    ["a page of each kind, dark", VIEWS[1], () => [...NAMES, "types/node/functions/serve"]],
  ])("has no fault that axe finds in %s", async (_which, view, paths) => {
    const page = await open("index", view);
    const found: Record<string, string[]> = {};
    for (const path of paths()) {
      await visit(page, path);
      const faults = await faultsOf(page);
      if (faults.length > 0) found[path] = faults;
    }
    expect(found).toEqual({});
    await page.context().close();
  });

  it("has no fault that axe finds in its menu on a phone, and in its search", async () => {
    const page = await open("guides/rooms", VIEWS[3]);
    await page.getByRole("button", { name: "Menu" }).click();
    await page.getByRole("link", { name: "Streams", exact: true }).waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.keyboard.press("Escape");
    await search(page, "topic");
    await page.getByRole("option").first().waitFor();
    expect(await faultsOf(page)).toEqual([]);
    await page.context().close();
  });

  describe("by the keyboard only", () => {
    it("skips to the content", async () => {
      const page = await open("guides/rooms", VIEWS[0]);
      await page.keyboard.press("Tab");
      expect(await focused(page)).toBe("Skip to content");
      await page.keyboard.press("Enter");
      await page.keyboard.press("Tab");
      const isInContent = await page.evaluate(() => document.activeElement!.closest("#VPContent") !== null);
      expect(isInContent).toBe(true);
      await page.context().close();
    });

    it("shows where the focus is", async () => {
      const page = await open("guides/rooms", VIEWS[0]);
      for (const name of ["API", "Streams"]) {
        await tabTo(page, name);
        expect(await page.evaluate(() => getComputedStyle(document.activeElement!).outlineStyle)).not.toBe("none");
      }
      await page.context().close();
    });

    it("finds a page by its search", async () => {
      const page = await open("index", VIEWS[0]);
      await search(page, "session expired");
      await page
        .getByRole("option", { name: /session/i })
        .first()
        .waitFor();
      await page.keyboard.press("Enter");
      await page.waitForURL(({ pathname }) => pathname.endsWith(".html") && pathname !== "/index.html");
      await page.context().close();
    });

    it("changes the scheme", async () => {
      const page = await open("index", VIEWS[0]);
      const isDark = (): Promise<boolean> => page.evaluate(() => document.documentElement.classList.contains("dark"));
      await tabTo(page, "Switch to dark theme");
      await page.keyboard.press("Enter");
      await expect.poll(isDark).toBe(true);
      await page.context().close();
    });

    it("opens its pages by the menu of a phone", async () => {
      const page = await open("guides/rooms", VIEWS[2]);
      await tabTo(page, "Menu");
      await page.keyboard.press("Enter");
      await tabTo(page, "Streams");
      await page.keyboard.press("Enter");
      await page.getByRole("heading", { level: 1, name: "Streams" }).waitFor();
      await page.context().close();
    });
  });
});

it("ends with its server when it is stopped", async () => {
  expect((await fetch(address)).status).toBe(200);
  await stop();
  // The server of VitePress is a process of its own. If it still ran, it would answer.
  await expect(fetch(address)).rejects.toThrow("fetch failed");
});
