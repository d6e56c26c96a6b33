/** Runs examples/language-server: an editor in Chromium, with a restart of its server. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { EXAMPLES, ExampleServer, PATIENCE, Windows } from "./page.js";

const EXAMPLE = join(EXAMPLES, "language-server");
const server = new ExampleServer("language-server/server.js");
const windows = new Windows();
let page: Page;

const warnings = (): Promise<string[]> => page.locator(".cm-lintRange").allTextContents();

/** Writes a text into the editor, in place of the one that it has. */
async function write(text: string): Promise<void> {
  await page.getByRole("textbox", { name: "Stylesheet" }).focus();
  await page.keyboard.press("ControlOrMeta+a");
  await page.keyboard.insertText(text);
}

beforeAll(async () => {
  await ensurePackages(EXAMPLE);
  const build = join(EXAMPLE, "node_modules/vite/bin/vite.js");
  await promisify(execFile)(process.execPath, [build, "build"], { cwd: EXAMPLE });
  await server.start();
  ({ page } = await windows.open(server.url));
}, 600_000);
afterAll(async () => {
  await windows[Symbol.asyncDispose]();
  await server.stop();
});

describe("the example language-server", () => {
  it("shows what the language server finds, and no more when it is corrected", async () => {
    await page
      .getByRole("status")
      .and(page.getByText("connected", { exact: true }))
      .waitFor();
    await expect.poll(warnings, PATIENCE).toEqual(["colr"]);
    await write("body {\n  color: red;\n}\n");
    await expect.poll(warnings).toEqual([]);
  });

  it("sends several changes at once as one change of the text", async () => {
    await write("a { color: red }\nb { color: red }\n");
    // Two cursors, so that one update of the editor has two changes.
    await page.keyboard.press("ControlOrMeta+Home");
    await page.keyboard.press("ControlOrMeta+Alt+ArrowDown");
    for (let i = 0; i < 4; i++) await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Delete");
    const lines = ["a { ", "  olor: red }", "b { ", "  olor: red }", ""];
    await expect.poll(() => page.locator(".cm-line").allTextContents()).toEqual(lines);
    await expect.poll(warnings).toEqual(["olor", "olor"]);
    await page.keyboard.press("Escape");
  });

  it("completes a property, and explains it", async () => {
    await write("body {\n  \n}\n");
    await page.keyboard.press("ControlOrMeta+Home");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("End");
    await page.keyboard.type("background-c");
    await page.locator(".cm-tooltip-autocomplete", { hasText: "background-color" }).waitFor();
    await page.keyboard.press("Escape");
    await write("body {\n  color: red;\n}\n");
    await page
      .locator(".cm-line")
      .nth(1)
      .hover({ position: { x: 40, y: 8 } });
    await page.locator(".cm-tooltip-hover", { hasText: "Sets the color" }).waitFor();
  });

  it("sends the whole text to a new language server after a restart", async () => {
    expect(await server.stop()).toBe(0);
    await page.getByText("connecting again").waitFor();
    await write("body {\n  margn: 0;\n}\n");
    await server.start();
    await page
      .getByRole("status")
      .and(page.getByText("connected", { exact: true }))
      .waitFor(PATIENCE);
    await expect.poll(warnings, PATIENCE).toEqual(["margn"]);
  });

  it("reports no error, in the server and in the page", () => {
    expect(windows.errors).toEqual([]);
    expect(server.errors).toBe("");
  });
});
