import { execFileSync } from "node:child_process";
import type { Locator, Page } from "playwright-core";
import { vi } from "vitest";
import { visit, withTwo, type Demo, type Visitor } from "./demo.js";

/** As `withTwo`, with both in the editor. */
export function withTwoEditors(...[run, how]: Parameters<typeof withTwo>): Promise<void> {
  return withTwo(run, { ...how, open: visitEditor });
}

/** Opens the page, goes to the editor, and waits until the language server is ready. */
export async function visitEditor(url: string, name: string, options?: object): Promise<Visitor> {
  const visitor = await visit(url, name, options);
  await openEditor(visitor.page);
  return visitor;
}

async function openEditor(page: Page): Promise<void> {
  await page.getByRole("tab", { name: "Editor" }).click();
  await ready(page, "css");
}

export async function reloadEditor(page: Page): Promise<void> {
  await page.reload();
  await openEditor(page);
}

/** Waits until the language server of the file that is shown is ready. */
export function ready(page: Page, language: "css" | "json"): Promise<void> {
  return page.getByText(`${language} language server: ready`, { exact: true }).waitFor();
}

/** Returns the text of the shown file, without the carets of others. The editor renders only a part of a long file. */
export function textOf(page: Page): Promise<string> {
  return page.locator(".file:visible .cm-content").evaluate((content) => {
    const lines = [...content.querySelectorAll(".cm-line")].map((each) => {
      const copy = each.cloneNode(true) as Element;
      for (const caret of copy.querySelectorAll(".caret")) caret.remove();
      return copy.textContent;
    });
    return lines.join("\n");
  });
}

export const same = async (one: Page, other: Page): Promise<boolean> => (await textOf(one)) === (await textOf(other));

/** Returns the line that contains this text. The name at a caret is part of its line. */
export function line(page: Page, text: string): Locator {
  return page.locator(".file:visible .cm-line", { hasText: text });
}

export async function goTo(page: Page, text: string): Promise<void> {
  await line(page, text).click();
  await page.keyboard.press("End");
}

export function squiggles(page: Page): Promise<string[]> {
  return page.locator(".file:visible .cm-lintRange").allTextContents();
}

export async function pointAt(page: Page, lineText: string, word: string): Promise<Locator> {
  const tooltip = page.locator(".cm-tooltip-hover");
  // That of an earlier place may come late, and cover the word.
  await vi.waitFor(async () => {
    await page.mouse.move(0, 0);
    await tooltip.waitFor({ state: "detached", timeout: 10_000 });
    await line(page, lineText).getByText(word, { exact: true }).first().hover({ timeout: 10_000 });
  });
  const documentation = tooltip.locator(".documentation");
  await documentation.waitFor();
  return documentation;
}

export function languageServers({ pid }: Demo, language: "css" | "json"): number[] {
  const rows = execFileSync("ps", ["-A", "-o", "pid=,ppid=,args="]).toString().trim().split("\n");
  return rows.flatMap((row) => {
    const [, own, parent, args] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(row)!;
    return Number(parent) === pid && args!.includes(`language-server.js ${language} `) ? [Number(own)] : [];
  });
}
