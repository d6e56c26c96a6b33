/** How the page explains itself: its line and its steps, its code, its traffic, the split view, and what a new clone shows. */
import { execFileSync } from "node:child_process";
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import type { Frame, Locator, Page } from "playwright-core";
import { expect, it } from "vitest";
import type { Excerpt } from "../../demo/api.js";
import {
  draw,
  enter,
  leave,
  LONG_VOTE,
  note,
  noticed,
  said,
  say,
  startDemo,
  strokes,
  visit,
  withDemo,
  withOne,
  withTwo,
  type Visitor,
} from "./demo.js";
import { goTo, ready, squiggles, textOf } from "./editor.js";

const ROOT = join(import.meta.dirname, "../..");
const LINE: [number, number][] = [
  [0.2, 0.2],
  [0.6, 0.7],
];
const SHORT_CUT = { env: { CUT_MS: "1000" } };

it("the demo serves its documents and the code of each topic, with links that work", () =>
  withOne(async ({ page }, demo) => {
    const links = await page
      .locator(".guide .about a")
      .evaluateAll((all) => all.map((each) => (each as HTMLAnchorElement).href));
    expect(links.length).toBeGreaterThan(2);
    for (const link of links) {
      const response = await fetch(link);
      expect([link, response.headers.get("content-type")]).toEqual([link, "text/html; charset=utf-8"]);
      expect(await response.text()).toMatch(/<h1[^>]*>/);
    }
    const textAt = async (path: string): Promise<string> => (await fetch(`${demo.url}${path}`)).text();
    const api = await textAt("/about/docs/API.md");
    for (const [, id] of api.matchAll(/href="#([^"]+)"/g)) expect(api).toContain(`id="${id}"`);
    const readme = await textAt("/about/README.md");
    expect(readme).not.toContain("measured: begin");
    for (const [, source] of readme.matchAll(/<img src="([^"]+)"/g))
      expect((await fetch(new URL(source!, `${demo.url}/about/README.md`))).status).toBe(200);

    await using peer = await enter(demo.url, "Bo");
    const topics = Object.entries((await peer.request("code")) as Record<string, Excerpt[]>);
    expect(topics.length).toBeGreaterThan(8);
    for (const [topic, places] of topics) {
      const count = places.flatMap(({ code }) => code.split("\n")).length;
      expect([topic, count > 3 && count <= 10]).toEqual([topic, true]);
      for (const { file, line, code } of places) {
        const source = await readFile(join(ROOT, "demo", file), "utf8");
        expect(source.split("\n")[line - 1]!.trim()).toBe(code.split("\n")[0]);
      }
    }
    const sections = [...(await textAt("/page/code.js")).matchAll(/read: "([^"#]+)#([^"]+)"/g)];
    expect(sections.length).toBeGreaterThan(8);
    for (const [, file, id] of sections) expect(await textAt(`/about/docs/${file}`)).toContain(`id="${id}"`);
  }));

const stepsDone = (page: Page): Promise<unknown[]> =>
  page.locator("#steps [data-done]").evaluateAll((items) => items.map((item) => (item as HTMLElement).dataset["step"]));

it("the four steps of the page act, and are ticked off as they happen", async () => {
  await withOne(async ({ page }) => {
    const done = (): Promise<unknown[]> => stepsDone(page);
    expect(await done()).toEqual([]);
    await page.getByRole("button", { name: "Draw", exact: true }).click();
    await noticed(page, "Draw on the board");
    for (const key of ["Space", "ArrowRight", "Space"]) await page.keyboard.press(key);
    await strokes(page, 1);
    expect(await done()).toEqual(["draw"]);
    const popup = page.waitForEvent("popup");
    await page.getByRole("link", { name: "Open a second window" }).click();
    const second = await popup;
    await expect.poll(done).toEqual(["draw", "window"]);
    await page.locator("#steps").getByRole("button", { name: "Clear the board" }).click();
    await second.getByRole("button", { name: "Agree" }).click();
    await noticed(page, "Everybody agreed");
    await expect.poll(done).toEqual(["draw", "window", "clear"]);
    for (const text of await page.locator("#steps [data-done]").allTextContents()) expect(text).toContain("(done)");
    await second.close();
  }, LONG_VOTE);
  await withOne(async ({ page }) => {
    await page.locator("#steps").getByRole("button", { name: "Cut the network" }).click();
    await expect.poll(() => stepsDone(page)).toEqual(["cut"]);
  }, SHORT_CUT);
});

it("the drawer shows the code behind what others do, until the person does something, with a link", () =>
  withTwo(async ({ page }, bo, demo) => {
    /** Waits until the drawer shows a topic with these pieces of code, which arrive after the title. */
    const shows = async (title: string, ...code: string[]): Promise<void> => {
      await page.locator("#code-title", { hasText: title }).waitFor();
      for (const piece of code) await expect.poll(() => page.locator("#code-body").textContent()).toContain(piece);
    };
    const code = page.getByRole("button", { name: "Code", exact: true });
    expect(await page.locator(".message[data-method=code]").count()).toBe(0);
    await code.click();
    await shows("The page joined", "onOpen:");
    await draw(bo.page, LINE);
    await shows("A line was drawn", 'peer.notify("draw", params)', 'board.notify("drew", drew, { except: peer })');
    await say(page, "hello");
    await shows("A chat line", 'retry: "not-sent"', 'board.notify("said", line)');
    await page.locator("#cut").click();
    await shows("The connection was cut", 'peer.on("suspend"');
    // It stays, whatever the page does by itself and other people do.
    await page.getByText("Connected again: No message waited.").waitFor();
    // The call that cut the network was pending, and is answered later.
    expect(await page.locator(".message[data-method=cut] .duration").textContent()).toMatch(/ ms$/);
    await draw(bo.page, LINE);
    await strokes(page, 2);
    const pings = (): Promise<string | null> => page.locator("#periodic-count").textContent();
    const before = await pings();
    await expect.poll(pings).not.toBe(before);
    await page.mouse.move(300, 300);
    await page.locator("#traffic [data-method=move]").first().waitFor();
    await shows("The connection was cut", 'peer.on("resume"');
    const address = await page.getByRole("link", { name: "Read more" }).getAttribute("href");
    const [path, id] = address!.split("#");
    expect(await (await fetch(`${demo.url}${path}`)).text()).toContain(`id="${id}"`);
    await code.click();
    expect(await page.locator("#code-body").isVisible()).toBe(false);
  }, SHORT_CUT));

it("the split view shows two people in one page, with names, networks and editors of their own", () =>
  withDemo(async (demo) => {
    const { page } = await demo.invite("Ada");
    await page.getByRole("link", { name: "Split view" }).click();
    const [first, second] = [await seat(page, 1), await seat(page, 2)];
    expect(await first.getByLabel("You are").inputValue()).toBe("Ada");
    await expect.poll(() => first.locator(".person").count()).toBe(2);
    expect(await second.getByLabel("You are").inputValue()).not.toBe("Ada");
    // An empty chat does not take the place of the traffic.
    await first.locator("#traffic [data-method=join]").waitFor();
    await note(first);
    await first.locator("#cut").click();
    await expect.poll(() => said(first)).toContain("Reconnecting");
    expect(await second.locator("#status").textContent()).toBe("Live");
    for (const each of [first, second]) await each.getByRole("button", { name: "Chat", exact: true }).click();
    await say(second, "still here");
    await first.locator(".line", { hasText: "still here" }).waitFor();
    await second.getByRole("tab", { name: "Editor" }).click();
    await ready(second as unknown as Page, "css");
    expect(await first.getByRole("tabpanel", { name: "Board" }).isVisible()).toBe(true);
    // In a wide window, each person has room for the link to the split view.
    await page.setViewportSize({ width: 2000, height: 1000 });
    for (const frame of [first, second]) {
      await frame.locator("#code-toggle").waitFor();
      expect(await frame.locator("#split").isVisible()).toBe(false);
    }
    // A document replaces the whole view.
    await first.getByRole("link", { name: "Protocol" }).click();
    await page.waitForURL(`${demo.url}/about/docs/PROTOCOL.md`);
    await page.goBack();
    await page.getByRole("link", { name: "One person" }).click();
    await page.getByText("Live", { exact: true }).waitFor();
    expect(await page.getByLabel("You are").inputValue()).toBe("Ada");
    expect(await page.locator("#split").isVisible()).toBe(true);
  }));

const rowOf = ({ page }: Visitor, method: string): Locator => page.locator(`.message[data-method=${method}]`);
const open = (row: Locator): Promise<void> => row.locator("summary").click();
const wholeOf = async (row: Locator, at = 0): Promise<{ id: number; params: { id: string; points: string } }> =>
  JSON.parse((await row.locator(".whole").nth(at).textContent())!) as never;

it("the list of the traffic groups its messages, and a row shows the whole message and its answer", () =>
  withTwo(async (ada, bo, demo) => {
    const long = "a long line ".repeat(20).trim();
    await say(ada.page, long);
    const asked = rowOf(ada, "say");
    await expect.poll(() => asked.locator(".duration").textContent()).toMatch(/^\d+(\.\d)? ms$/);
    expect(await asked.getByRole("img", { name: "outgoing" }).textContent()).toBe("→");
    expect(await asked.locator(".id").textContent()).toMatch(/^#\d+$/);
    expect(await asked.locator(".whole").count()).toBe(0);
    await open(asked);
    const call = await wholeOf(asked);
    expect(call).toMatchObject({ jsonrpc: "2.0", id: expect.any(Number), method: "say", params: { text: long } });
    expect(await wholeOf(asked, 1)).toEqual({ jsonrpc: "2.0", id: call.id, result: null });
    await asked.locator("summary").press("Enter");
    expect(await asked.locator(".whole").first().isVisible()).toBe(false);
    // A notification has no answer.
    const line = rowOf(bo, "said");
    await open(line);
    await line.locator(".whole").first().waitFor();
    expect(await line.locator(".whole").count()).toBe(1);
    expect(await line.getByRole("img", { name: "incoming" }).textContent()).toBe("←");

    // Bytes are shown as base64, and a group shows its newest message.
    await draw(ada.page, [[0.5, 0.5]]);
    const drew = rowOf(bo, "drew");
    await open(drew);
    const { id, points } = (await wholeOf(drew)).params;
    for (const number of new Uint16Array(Uint8Array.from(Buffer.from(points, "base64")).buffer))
      expect(number / 65_535).toBeCloseTo(0.5, 1);
    await draw(ada.page, LINE);
    await expect.poll(() => drew.locator(".whole").textContent()).not.toContain(id);
    await drew.locator(".times").filter({ hasText: /×\d+/ }).waitFor();
    expect(await drew.count()).toBe(1);

    // A call that failed shows its error, and the visitor gets words.
    await ada.page.getByLabel("Message").evaluate((input: HTMLInputElement) => (input.value = "x".repeat(301)));
    await ada.page.getByLabel("Message").press("Enter");
    const failed = ada.page.locator(".message.failed[data-method=say]");
    await open(failed);
    expect(await wholeOf(failed, 1)).toMatchObject({ error: { code: -32602 } });
    expect(await ada.page.locator("#notice").textContent()).toMatch(/^The server did not accept that: it is too long/);

    // The messages of every second are in a group below the others.
    await expect.poll(() => ada.page.locator("#periodic-count").textContent()).toMatch(/^×\d+$/);
    expect(await ada.page.locator("#traffic .message:is([data-method=ping], [data-method=stats])").count()).toBe(0);
    expect(await ada.page.locator("#periodic .message").first().isVisible()).toBe(false);
    await ada.page.getByText("Every second").click();
    await expect.poll(() => ada.page.locator("#periodic .message").count()).toBe(2);
    await open(ada.page.locator("#periodic [data-method=stats]"));
    expect(await ada.page.locator("#periodic .whole").textContent()).toContain('"perSecond"');

    // A paused list does not change, and the list keeps no more than its newest rows.
    const fire = ada.page.getByRole("button", { name: "React with fire" });
    await bo.page.getByRole("button", { name: "Pause" }).click();
    const seen = bo.page.waitForSelector(".balloon");
    await fire.click();
    await seen;
    expect(await rowOf(bo, "reacted").count()).toBe(0);
    await bo.page.getByRole("button", { name: /^Resume \(\d+ missed\)$/ }).click();
    await fire.evaluate((button: HTMLButtonElement) => {
      for (let i = 0; i < 120; i++) button.click();
    });
    await expect.poll(() => bo.page.locator("#traffic .message").count()).toBe(80);
    expect(await rowOf(bo, "join").count()).toBe(0);

    // Of a message that is longer than 20,000 characters, the beginning is shown.
    await using talker = await enter(demo.url, "Cy");
    for (let i = 0; i < 80; i++) await talker.request("say", { id: `line ${i}`, text: "x".repeat(300) });
    const late = await demo.invite("Late");
    // The page shows the newest line, beside a list of four people.
    const below = (): Promise<number> =>
      late.page.locator("#lines").evaluate((list) => list.scrollHeight - list.scrollTop - list.clientHeight);
    await expect.poll(below).toBeLessThan(5);
    const welcome = rowOf(late, "welcome");
    await open(welcome);
    const text = (await welcome.locator(".whole").textContent())!;
    const [end, more] = /\n\.\.\. (\d+) characters more$/.exec(text)!;
    expect(Number(more)).toBeGreaterThan(4000);
    expect(text).toHaveLength(20_000 + end.length);
  }));

async function seat(page: Page, number: 1 | 2): Promise<Frame> {
  const handle = await page.locator(`iframe[src$="seat=${number}"]`).elementHandle();
  const frame = (await handle?.contentFrame())!;
  await frame.getByText("Live", { exact: true }).waitFor();
  return frame;
}

it("the demo serves its page before it installs the language servers, and the editor says that they are prepared", async () => {
  // A copy of the demo without these packages, and an `npm` that waits at a gate.
  const folder = await mkdtemp(join(tmpdir(), "reciproc-clone-"));
  const packages = "demo/language-servers";
  for (const path of ["package.json", "scripts", "demo/.build", "demo/page", `${packages}/package-lock.json`])
    await cp(join(ROOT, path), join(folder, path), { recursive: true });
  for (const path of ["dist", "node_modules"]) await symlink(join(ROOT, path), join(folder, path));
  const [npm, gate] = [join(folder, "npm"), join(folder, "gate")];
  execFileSync("mkfifo", [gate]);
  const link = `ln -s "${join(ROOT, packages, "node_modules")}" node_modules`;
  await writeFile(npm, `#!/bin/sh\nread how < "${gate}"\n[ "$how" = installed ] && ${link}\n`, { mode: 0o755 });
  const path = `${folder}${delimiter}${process.env["PATH"]}`;
  await using demo = await startDemo({ PATH: path }, join(folder, "demo/.build/server.js"));
  await expect.poll(() => demo.printed()).toContain("Installing the language servers of the editor, once ...");
  const ada = await visit(demo.url, "Ada");
  const { page } = ada;
  await page.getByRole("tab", { name: "Editor" }).click();
  const state = (text: string): Promise<void> =>
    page.getByText(`css language server: ${text}`, { exact: true }).waitFor();
  await state("being prepared");
  // The text needs no language server.
  await goTo(page, "place-items");
  await page.keyboard.insertText("\n  wdith: 1px;");
  expect(await textOf(page)).toContain("wdith");
  await writeFile(gate, "failed\n");
  await state("stopped (The language servers could not be installed.)");
  await page.getByRole("button", { name: "Restart" }).click();
  await state("being prepared");
  await writeFile(gate, "installed\n");
  await ready(page, "css");
  await expect.poll(() => squiggles(page)).toEqual(["colr", "wdith"]);
  expect(demo.printed()).toContain("The language servers of the editor are installed.");
  expect(ada.complaints).toEqual([]);
  await leave(ada);
  await rm(folder, { recursive: true });
});
