/** Runs the unchanged examples of the documents that need a page, in Chromium. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { createInterface } from "node:readline";
import type { Page } from "playwright-core";
import { createServer as createVite, type ViteDevServer } from "vite";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { browser } from "./browser.js";
import { clean, compile, extract, folder, linkPackages, Running } from "../readme/examples.js";
import { bundle, startPage } from "./bundle.js";
import { startSite } from "./site.js";
import { rejection } from "../support/turns.js";

const ROOT = join(import.meta.dirname, "../..");
const RECIPROC = join(ROOT, "dist/index.js");

const DOCUMENTS = [
  "README.md",
  "docs/guides/getting-started.md",
  "docs/guides/files.md",
  "docs/guides/language-servers.md",
];

beforeAll(async () => {
  await linkPackages(import.meta.dirname);
  for (const document of DOCUMENTS) await extract(document);
});
afterAll(clean);

/** Opens a page in a context of its own. A `prompt` is answered with `name`. */
async function openPage(url: string, name = ""): Promise<Page> {
  const page = await (await (await browser()).newContext()).newPage();
  page.on("dialog", (dialog) => void dialog.accept(name));
  await page.goto(url, { waitUntil: "commit" });
  return page;
}

function lines(page: Page): Promise<string[]> {
  return page.getByRole("listitem").allTextContents();
}

async function say(page: Page, text: string): Promise<void> {
  await page.getByRole("textbox").fill(text);
  await page.getByRole("textbox").press("Enter");
}

it("the page of README.md and its server call each other", async () => {
  const server = new Running("server.js");
  await server.line(/listening/);
  const site = await startSite();
  const page = await (await (await browser()).newContext()).newPage();
  try {
    const asked: string[] = [];
    page.on("dialog", (dialog) => {
      asked.push(dialog.message());
      void dialog.accept();
    });
    await page.goto(`http://localhost:${site.port}/`);
    await page.addScriptTag({ type: "module", content: await readFile(join(folder, "browser.js"), "utf8") });
    await page.waitForFunction('document.title.startsWith("the room")');
    expect(asked).toEqual(['Call the room "Kitchen"?']);
    expect(await page.title()).toBe('the room is "Kitchen"');
  } finally {
    await page.context().close();
    site.http.close();
    await server.stop();
  }
});

describe("the chat of Getting started", () => {
  let server: Running;
  let vite: ViteDevServer;
  const pages: Page[] = [];
  let compiled: string;

  async function start(): Promise<void> {
    server = new Running("server.js");
    await server.line(/listening/);
  }

  beforeAll(async () => {
    compiled = await compile("server.ts");
    await start();
    vite = await createVite({
      root: folder,
      configFile: false,
      cacheDir: join(folder, ".vite"),
      logLevel: "error",
      resolve: { alias: { reciproc: RECIPROC } },
      server: { port: 0, host: "localhost" },
    });
    await vite.listen();
  });
  afterAll(async () => {
    await Promise.all(pages.map((page) => page.context().close()));
    await vite.close();
    await server.stop();
  });

  it("asks each page for its name, and shows a line of one page in both", async () => {
    expect(compiled).toBe("");
    const url = vite.resolvedUrls!.local[0]!;
    // The names are in the order in which the pages joined, so the second page opens when the first one has joined.
    for (const [name, here] of [
      ["Ada", "here: Ada"],
      ["Bob", "here: Ada, Bob"],
    ] as const) {
      const page = await openPage(url, name);
      pages.push(page);
      await page.getByText(here, { exact: true }).waitFor();
    }
    await say(pages[0]!, "hello");
    for (const page of pages) await expect.poll(() => lines(page)).toEqual(["Ada: hello"]);
  });

  it("refuses a line of a shell that has not joined", async () => {
    const args = [join(ROOT, "dist/cli/main.js"), "call", "localhost:3000", "say", '{"text": "hi"}'];
    const failure = await rejection(promisify(execFile)(process.execPath, args));
    expect(failure).toMatchObject({ code: 1, stderr: "error 1: join first\n" });
  });

  it("continues after a restart of the server, with the line that was written meanwhile", async () => {
    const [, bob] = pages as [Page, Page];
    await server.stop();
    for (const page of pages) await page.getByText("offline").waitFor();
    await say(bob, "written while the server was away");
    await start();
    for (const page of pages) await page.getByText("online").waitFor();
    // The other page may be connected after the line was sent.
    await expect.poll(() => lines(bob)).toContain("Bob: written while the server was away");
  });
});

describe("the page of Files and bytes", () => {
  it("stores a file of the greatest length, and loads it again", async () => {
    const server = new Running("bytes-server.js");
    await server.line(/listening/);
    const site = await startPage(
      await bundle({ entryPoints: [join(folder, "bytes-page.js")] }),
      '<input type="file" /><p></p>',
    );
    const page = await openPage(site.url);
    try {
      const upload = { name: "cat.png", mimeType: "image/png", buffer: Buffer.alloc(1_000_000, 7) };
      // Again until the page listens to the input, which it does when it is connected.
      await expect
        .poll(async () => {
          await page.setInputFiles("input", []);
          await page.setInputFiles("input", upload);
          return page.locator("p").textContent();
        })
        .toBe("cat.png: 1000000 and 1000000 bytes");
    } finally {
      await page.context().close();
      site.close();
      await server.stop();
    }
  });
});

describe("the editors of Language servers", () => {
  let bridge: ChildProcess;

  async function startBridge(): Promise<void> {
    const command = join(
      import.meta.dirname,
      "node_modules/vscode-langservers-extracted/bin/vscode-css-language-server",
    );
    const args = ["bridge", "--port", "4381", "--path", "/css", "--", process.execPath, command, "--stdio"];
    bridge = spawn(process.execPath, [join(ROOT, "dist/cli/main.js"), ...args], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(createInterface(bridge.stdout!), "line");
  }
  async function stopBridge(): Promise<void> {
    bridge.kill("SIGINT");
    await once(bridge, "exit");
  }
  beforeAll(startBridge);
  afterAll(stopBridge);

  it("are CodeMirror with diagnostics and completions, also after a restart", async () => {
    const site = await startPage(await bundle({ entryPoints: [join(folder, "css-codemirror.js")] }));
    const page = await openPage(site.url);
    try {
      await page.locator(".cm-lintRange-warning", { hasText: "colr" }).waitFor();
      await stopBridge();
      await page.locator(".cm-content").click();
      await page.keyboard.press("Control+Home");
      await page.keyboard.press("End");
      await page.keyboard.press("Enter");
      await startBridge();
      await page.keyboard.type("background-c");
      await page.locator(".cm-tooltip-autocomplete", { hasText: "background-color" }).waitFor();
    } finally {
      await page.context().close();
      site.close();
    }
  });

  it("are Monaco with diagnostics and completions", async () => {
    const site = await startPage(await bundle({ entryPoints: [join(folder, "css-monaco.js")] }));
    const page = await openPage(site.url);
    try {
      await page.locator(".squiggly-warning").first().waitFor();
      await page.keyboard.press("Control+Home");
      await page.keyboard.press("End");
      await page.keyboard.press("Enter");
      await page.keyboard.type("background-c");
      await page.keyboard.press("Control+Space");
      await page.locator(".suggest-widget", { hasText: "background-color" }).waitFor();
    } finally {
      await page.context().close();
      site.close();
    }
  });
});

it("the language servers page names the bridge as it runs here", async () => {
  const text = await readFile(join(ROOT, "docs/guides/language-servers.md"), "utf8");
  expect(text).toContain("npx reciproc bridge --port 4381 --path /css -- npx vscode-css-language-server --stdio");
});
