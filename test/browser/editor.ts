/** The demo's editor, as people use it. */
import { execFileSync } from "node:child_process";
import type { Browser, Locator, Page } from "playwright-core";
import { expect } from "vitest";
import { leave, startDemo, visit, type Demo, type Visitor } from "./demo.js";

/** Opens the editor of a new demo in two pages, closes them at the end, and asserts that they had no errors. */
export async function withTwo(
  browser: Browser,
  run: (ada: Visitor, bo: Visitor, demo: Demo) => Promise<void>,
): Promise<void> {
  await using demo = await startDemo();
  const [ada, bo] = await Promise.all([visitEditor(browser, demo.url, "Ada"), visitEditor(browser, demo.url, "Bo")]);
  try {
    await run(ada, bo, demo);
    for (const { complaints } of [ada, bo]) expect(complaints).toEqual([]);
  } finally {
    await leave(ada, bo);
  }
}

/** Opens the page, goes to the editor, and waits until the language server is ready. */
export async function visitEditor(browser: Browser, url: string, name: string, options?: object): Promise<Visitor> {
  const visitor = await visit(browser, url, name, options);
  await visitor.page.getByRole("tab", { name: "Editor" }).click();
  await ready(visitor.page, "css");
  return visitor;
}

/** Waits until the language server of the file that is shown is ready. */
export function ready(page: Page, language: "css" | "json"): Promise<void> {
  return page.getByText(`${language} language server: ready`, { exact: true }).waitFor();
}

/** The text of the file that is shown, without the others' carets. All of it, as long as it is short. */
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

/** Waits until both have the same text. */
export async function same(one: Page, other: Page): Promise<boolean> {
  return (await textOf(one)) === (await textOf(other));
}

/** The line that holds this text. The name at a caret is part of its line, too. */
export function line(page: Page, text: string): Locator {
  return page.locator(".file:visible .cm-line", { hasText: text });
}

/** Puts the caret at the end of a line. */
export async function goTo(page: Page, text: string): Promise<void> {
  await line(page, text).click();
  await page.keyboard.press("End");
}

/** The text underlined as an error. */
export function squiggles(page: Page): Promise<string[]> {
  return page.locator(".file:visible .cm-lintRange").allTextContents();
}

/** Points at a word in a line, and waits for its tooltip. */
export async function pointAt(page: Page, lineText: string, word: string): Promise<Locator> {
  await line(page, lineText).getByText(word, { exact: true }).first().hover();
  const documentation = page.locator(".cm-tooltip-hover .documentation");
  await documentation.waitFor();
  return documentation;
}

/** The numbers of the language servers that a demo has started. */
export function languageServers({ pid }: Demo, language: "css" | "json"): number[] {
  const rows = execFileSync("ps", ["-A", "-o", "pid=,ppid=,args="]).toString().trim().split("\n");
  return rows.flatMap((row) => {
    const [, own, parent, args] = /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(row)!;
    return Number(parent) === pid && args!.includes(`language-server.js ${language} `) ? [Number(own)] : [];
  });
}
