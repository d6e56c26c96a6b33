/** Proves that the unchanged code of docs/guides/react.md compiles and works, in two windows of Chromium. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { clean, extract, folder, Running, tsc } from "../readme/examples.js";
import { newPage } from "./browser.js";
import { bundle, startPage, type ReactVersion } from "./bundle.js";
import { enterText, status } from "./windows.js";

const TYPES = join(import.meta.dirname, "node_modules/@types/react-18");

let names: string[];

beforeAll(async () => {
  names = (await extract("docs/guides/react.md")).filter((name) => /\.tsx?$/.test(name));
});
afterAll(clean);

async function start(): Promise<Running> {
  const entryPoints = [join(folder, "notes-server.ts")];
  const { code } = await bundle({ entryPoints, platform: "node", alias: {}, external: ["reciproc"] });
  await writeFile(join(folder, "notes-server.js"), code);
  const server = new Running("notes-server.js");
  await server.line(/listening/);
  return server;
}

it("the examples of the React guide are valid TypeScript with the types of React 18", async () => {
  const checks = { strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, skipLibCheck: true };
  const [, ofPage] = /^```json\n([\s\S]*?)^```$/m.exec(await readFile("docs/guides/react.md", "utf8"))!;
  const compilerOptions = {
    ...(JSON.parse(ofPage!) as { compilerOptions: object }).compilerOptions,
    ...checks,
    noEmit: true,
    lib: ["es2022", "dom", "dom.iterable"],
    types: ["node"],
    paths: { react: [`${TYPES}/index.d.ts`], "react/jsx-runtime": [`${TYPES}/jsx-runtime.d.ts`] },
  };
  const config = join(folder, "tsconfig.json");
  await writeFile(config, JSON.stringify({ compilerOptions, files: names }));
  const output = await tsc(["-p", config, "--listFiles"]);
  expect(output.split("\n").filter((line) => line.includes("error TS"))).toEqual([]);
  for (const path of [`${TYPES}/index.d.ts`, "/dist/react/index.d.ts", ...names]) expect(output).toContain(path);
});

const notes = (page: Page): Promise<string[]> => page.getByLabel("Notes").getByRole("listitem").allTextContents();
const add = (page: Page, text: string): Promise<void> => enterText(page, "Note", text);

it.each([18, 19] as ReactVersion[])("the page of the React guide works with React %i", async (version) => {
  let server = await start();
  const contents = await readFile(join(folder, "app.tsx"), "utf8");
  // Not an import of the file: the bundler drops it, because the package says that its files have no side effects.
  const site = await startPage(await bundle({ stdin: { contents, resolveDir: folder, loader: "tsx" } }, version));
  const open = async (): Promise<Page> => {
    const page = await newPage();
    await page.goto(site.url.replace("127.0.0.1", "localhost"));
    await status(page, "open").waitFor();
    return page;
  };
  const ada = await open();
  await ada.getByText("You", { exact: true }).waitFor();
  const bo = await open();
  for (const page of [ada, bo]) {
    await page.getByText(page === ada ? "You, guest 2" : "You, guest 1").waitFor();
    await page.getByText("log of level info").waitFor();
  }

  await add(ada, "milk");
  await add(bo, "bread");
  for (const page of [ada, bo]) await expect.poll(() => notes(page)).toEqual(["milk", "bread"]);
  await ada.getByRole("button", { name: "Clear" }).click();
  await bo.getByText("Clear all notes?").waitFor();
  await bo.getByRole("button", { name: "No" }).click();
  await bo.getByText("Clear all notes?").waitFor({ state: "detached" });
  expect(await notes(ada)).toEqual(["milk", "bread"]);
  await ada.getByRole("button", { name: "Clear" }).click();
  await bo.getByRole("button", { name: "Yes" }).click();
  for (const page of [ada, bo]) await expect.poll(() => notes(page)).toEqual([]);

  await add(ada, "eggs");
  await expect.poll(() => notes(bo)).toEqual(["eggs"]);
  await server.stop("SIGKILL");
  for (const page of [ada, bo]) await status(page, "suspended").waitFor();
  await add(bo, "tea");
  await expect.poll(() => notes(bo)).toEqual(["eggs", "tea ..."]);
  server = await start();
  for (const page of [ada, bo]) {
    await status(page, "open").waitFor();
    await expect.poll(() => notes(page)).toEqual(["tea"]);
  }
  await expect.poll(() => ada.getByLabel("Here").textContent()).toMatch(/^You, guest \d$/);
  await ada.getByRole("button", { name: "The log was interrupted: read again" }).click();
  await ada.getByText("log of level info").waitFor();
  await Promise.all([ada.context().close(), bo.context().close(), server.stop()]);
  site.close();
});
