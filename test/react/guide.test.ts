/** Proves that the unchanged code of docs/guides/react.md compiles and works, in two windows of Chromium. */
import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { browser, PATIENCE } from "../browser/browser.js";
import { build } from "../package/bundlers.js";
import { clean, extract, folder, linkPackages, Running } from "../readme/examples.js";
import { bundle, PACKAGES, type ReactVersion } from "./bundle.js";
import { startSite, type Site } from "./site.js";

const TSC = join(import.meta.dirname, "../../node_modules/typescript/bin/tsc");

let names: string[];

beforeAll(async () => {
  await ensurePackages(import.meta.dirname);
  await linkPackages(import.meta.dirname);
  names = (await extract("docs/guides/react.md")).filter((name) => /\.tsx?$/.test(name));
}, 600_000);
afterAll(clean);

/** Compiles and starts the guide's server. */
async function start(): Promise<Running> {
  const outfile = join(folder, "notes-server.js");
  await build({
    entryPoints: [join(folder, "notes-server.ts")],
    outfile,
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node20",
    external: ["reciproc"],
    logLevel: "error",
  });
  const server = new Running("notes-server.js");
  await server.line(/listening/);
  return server;
}

describe("the examples of the React guide", () => {
  it.each([18, 19])(
    "are valid TypeScript with the types of React %i",
    async (version) => {
      const types = join(PACKAGES, "@types", version === 18 ? "react-18" : "react");
      const checks = {
        strict: true,
        exactOptionalPropertyTypes: true,
        noUncheckedIndexedAccess: true,
        skipLibCheck: true,
      };
      const [, ofPage] = /^```json\n([\s\S]*?)^```$/m.exec(await readFile("docs/guides/react.md", "utf8"))!;
      const compilerOptions = {
        ...(JSON.parse(ofPage!) as { compilerOptions: object }).compilerOptions,
        ...checks,
        noEmit: true,
        lib: ["es2022", "dom", "dom.iterable"],
        types: ["node"],
        typeRoots: [join(PACKAGES, "../../../node_modules/@types")],
        paths: { react: [`${types}/index.d.ts`], "react/jsx-runtime": [`${types}/jsx-runtime.d.ts`] },
      };
      const config = join(folder, `tsconfig-${version}.json`);
      await writeFile(config, JSON.stringify({ compilerOptions, files: names }));
      const compiling = promisify(execFile)(process.execPath, [TSC, "-p", config, "--listFiles"]);
      // The compiler reports errors in its output.
      const { stdout } = await compiling.catch((error: unknown) => error as { stdout: string });
      expect(stdout.split("\n").filter((line) => line.includes("error TS"))).toEqual([]);
      expect(stdout).toContain(`${types}/index.d.ts`);
      expect(stdout).toContain("/dist/react/index.d.ts");
      for (const name of names) expect(stdout).toContain(`/${name}`);
    },
    60_000,
  );
});

/** Waits until the page shows this status. */
function status(page: Page, text: string): Promise<void> {
  return page
    .getByRole("status")
    .and(page.getByText(text, { exact: true }))
    .waitFor();
}

const notes = (page: Page): Promise<string[]> => page.getByLabel("Notes").getByRole("listitem").allTextContents();
async function add(page: Page, text: string): Promise<void> {
  await page.getByLabel("Note", { exact: true }).fill(text);
  await page.getByLabel("Note", { exact: true }).press("Enter");
}

describe.each([18, 19] as ReactVersion[])("the page of the guide, with React %i", (version) => {
  let server: Running;
  let site: Site;
  let ada: Page;
  let bo: Page;

  async function open(): Promise<Page> {
    const page = await (await (await browser()).newContext()).newPage();
    page.setDefaultTimeout(PATIENCE.timeout);
    await page.goto(site.url.replace("127.0.0.1", "localhost"));
    await status(page, "open");
    return page;
  }

  beforeAll(async () => {
    server = await start();
    // Not an import of the file: the bundler drops it, because the package says that its files have no side effects.
    site = await startSite(await bundle(await readFile(join(folder, "app.tsx"), "utf8"), folder, version));
    ada = await open();
    await ada.getByText("guest 1", { exact: true }).waitFor();
    bo = await open();
  }, 60_000);
  afterAll(async () => {
    await Promise.all([ada.context().close(), bo.context().close(), server.stop()]);
    site.close();
  });

  it("shows who is here, and the log", async () => {
    for (const page of [ada, bo]) {
      await page.getByText("guest 1, guest 2").waitFor();
      await page.getByText("log of level info").waitFor();
    }
  });

  it("shows a note of one page in both", async () => {
    await add(ada, "milk");
    await add(bo, "bread");
    for (const page of [ada, bo]) await expect.poll(() => notes(page)).toEqual(["milk", "bread"]);
  });

  it("asks the other user before it clears the notes", async () => {
    await ada.getByRole("button", { name: "Clear" }).click();
    await bo.getByText("Clear all notes?").waitFor();
    await bo.getByRole("button", { name: "No" }).click();
    await bo.getByText("Clear all notes?").waitFor({ state: "detached" });
    expect(await notes(ada)).toEqual(["milk", "bread"]);
    await ada.getByRole("button", { name: "Clear" }).click();
    await bo.getByRole("button", { name: "Yes" }).click();
    for (const page of [ada, bo]) await expect.poll(() => notes(page)).toEqual([]);
  });

  it("shows the state of a server that was restarted, and a note that was written meanwhile", async () => {
    await add(ada, "eggs");
    await expect.poll(() => notes(bo)).toEqual(["eggs"]);
    await server.stop("SIGKILL");
    for (const page of [ada, bo]) await status(page, "suspended");
    await add(bo, "tea");
    await expect.poll(() => notes(bo)).toEqual(["eggs", "tea ..."]);
    server = await start();
    for (const page of [ada, bo]) {
      await status(page, "open");
      await expect.poll(() => notes(page), PATIENCE).toEqual(["tea"]);
    }
    await expect.poll(() => ada.getByLabel("Here").textContent()).toMatch(/^guest \d, guest \d$/);
    await ada.getByRole("button", { name: "The log was interrupted: read again" }).click();
    await ada.getByText("log of level info").waitFor();
  });
});
