/** How the page explains itself: its line and its steps, its code, its traffic, the split view, and what a new clone shows. */
import { execFileSync } from "node:child_process";
import { chmod, cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import type { Frame, Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import type { Excerpt } from "../../demo/api.js";
import {
  draw,
  enter,
  leave,
  noticed,
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
      await expect.poll(() => done(page)).toEqual(["draw", "cut"]);
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
      await say(ada.page, "hello");
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
      await say(second, "still here");
      await second.locator(".line:not(.pending)", { hasText: "still here" }).waitFor();
      expect(await first.locator(".line").count()).toBe(0);
      await first.locator(".line", { hasText: "still here" }).waitFor();
      await page.getByRole("link", { name: "One person" }).click();
      await page.getByText("Live", { exact: true }).waitFor();
      expect(await page.getByLabel("You are").inputValue()).toBe("Ada");
    }));

  it("has an editor for each person, and is not offered inside itself, also if there is room for the link", () =>
    withDemo(async (demo) => {
      const { page } = await demo.invite("Ada", { viewport: { width: 2000, height: 1000 } });
      expect(await page.locator("#split").isVisible()).toBe(true);
      await page.goto(`${demo.url}/split`);
      for (const number of [1, 2] as const) {
        const frame = await seat(page, number);
        expect(await frame.locator("#code-toggle").isVisible()).toBe(true);
        expect(await frame.locator("#split").isVisible()).toBe(false);
      }
      const second = await seat(page, 2);
      await second.getByRole("tab", { name: "Editor" }).click();
      await ready(second as unknown as Page, "css");
      expect(await (await seat(page, 1)).getByRole("tabpanel", { name: "Board" }).isVisible()).toBe(true);
      // A document replaces the whole view.
      await (await seat(page, 1)).getByRole("link", { name: "Protocol" }).click();
      await page.waitForURL(`${demo.url}/about/docs/PROTOCOL.md`);
    }));
});

describe("a row of the traffic list", () => {
  it("opens to show the whole message and its answer, and closes", () =>
    withTwo(async (ada, bo) => {
      const long = "a long line ".repeat(20).trim();
      await say(ada.page, long);
      const row = ada.page.locator(".message.outgoing[data-method=say]");
      await expect.poll(() => row.locator(".duration").textContent()).toMatch(/ms$/);
      expect(await row.locator(".whole").count()).toBe(0);
      await row.locator("summary").click();
      await row.locator(".whole").nth(1).waitFor();
      const [call, answer] = (await row.locator(".whole").allTextContents()).map((text) => JSON.parse(text) as object);
      expect(call).toMatchObject({ jsonrpc: "2.0", id: expect.any(Number), method: "say", params: { text: long } });
      expect(answer).toEqual({ jsonrpc: "2.0", id: (call as { id: number }).id, result: null });
      await row.locator("summary").press("Enter");
      expect(await row.locator(".whole").first().isVisible()).toBe(false);
      // A notification has no answer.
      const said = bo.page.locator(".message.incoming[data-method=said]");
      await said.locator("summary").click();
      await said.locator(".whole").first().waitFor();
      expect(await said.locator(".whole").count()).toBe(1);
    }));

  it("shows bytes as base64, and the newest message of a group", () =>
    withTwo(async (ada, bo) => {
      await draw(ada.page, [[0.5, 0.5]]);
      const row = bo.page.locator(".message[data-method=drew]");
      await row.locator("summary").click();
      const { params } = JSON.parse((await row.locator(".whole").textContent())!) as {
        params: { id: string; points: string };
      };
      const numbers = new Uint16Array(Uint8Array.from(Buffer.from(params.points, "base64")).buffer);
      for (const number of numbers) expect(number / 65_535).toBeCloseTo(0.5, 1);
      await draw(ada.page, [[0.1, 0.1]]);
      await expect.poll(() => row.locator(".whole").textContent()).not.toContain(params.id);
    }));

  it("shows the beginning of a message that is longer than 20,000 characters", () =>
    withOne(async (_ada, demo) => {
      await using talker = await enter(demo.url, "Bo");
      for (let i = 0; i < 80; i++) await talker.request("say", { id: `line ${i}`, text: "x".repeat(300) });
      const { page } = await demo.invite("Late");
      const row = page.locator(".message[data-method=welcome]");
      await row.locator("summary").click();
      const text = (await row.locator(".whole").textContent())!;
      const [, more] = /\n\.\.\. (\d+) characters more$/.exec(text)!;
      expect(Number(more)).toBeGreaterThan(4000);
      expect(text).toHaveLength(20_000 + `\n... ${more} characters more`.length);
    }));

  it("shows the error of a call that failed", () =>
    withOne(async ({ page }) => {
      await page.getByLabel("Message").evaluate((input: HTMLInputElement) => (input.value = "x".repeat(301)));
      await page.getByLabel("Message").press("Enter");
      const row = page.locator(".message.failed[data-method=say]");
      await row.locator("summary").click();
      const answer = JSON.parse((await row.locator(".whole").last().textContent())!) as object;
      expect(answer).toMatchObject({ error: { code: -32602, message: expect.stringContaining("Invalid params") } });
      // The visitor gets words instead.
      expect(await page.locator("#notice").textContent()).toBe(
        "The server did not accept that: it is too long, or not complete.",
      );
    }));
});

it("groups the messages of every second below the others", () =>
  withOne(async ({ page }) => {
    await expect.poll(() => page.locator("#periodic-count").textContent()).toMatch(/^×\d+$/);
    expect(await page.locator("#traffic .message:is([data-method=ping], [data-method=stats])").count()).toBe(0);
    expect(await page.locator("#periodic .message").first().isVisible()).toBe(false);
    await page.getByText("Every second").click();
    await expect.poll(() => page.locator("#periodic .message").count()).toBe(2);
    await page.locator("#periodic [data-method=stats] summary").click();
    expect(await page.locator("#periodic .whole").textContent()).toContain('"perSecond"');
  }));

describe("the traffic panel", () => {
  it("groups frequent messages in one row and does not change while paused", () =>
    withTwo(async (ada, bo) => {
      await draw(ada.page, LINE);
      await bo.page.locator(".message.incoming[data-method=drew] .times").filter({ hasText: /×\d+/ }).waitFor();
      expect(await bo.page.locator(".message[data-method=drew]").count()).toBe(1);
      await expectRow(bo, "join", "outgoing", /^\d+(\.\d)? ms$/);
      await bo.page.getByRole("button", { name: "Pause" }).click();
      await ada.page.getByRole("button", { name: "React with fire" }).click();
      await bo.page.locator(".balloon").waitFor();
      expect(await bo.page.locator(".message[data-method=reacted]").count()).toBe(0);
      await bo.page.getByRole("button", { name: /^Resume \(\d+ missed\)$/ }).click();
      await ada.page.getByRole("button", { name: "React with fire" }).click();
      await bo.page.locator(".message[data-method=reacted]").waitFor();
    }));

  it("keeps no more than its newest rows", () =>
    withTwo(async (ada, bo) => {
      const fire = ada.page.getByRole("button", { name: "React with fire" });
      await fire.evaluate((button: HTMLButtonElement) => {
        for (let i = 0; i < 120; i++) button.click();
      });
      await expect.poll(() => bo.page.locator("#traffic .message").count()).toBe(80);
      expect(await bo.page.locator(".message[data-method=join]").count()).toBe(0);
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

async function expectRow({ page }: Visitor, method: string, direction: string, duration: RegExp): Promise<void> {
  const row = page.locator(`.message.${direction}[data-method=${method}]`);
  await expect.poll(() => row.locator(".duration").textContent()).toMatch(duration);
  expect(await row.getByRole("img", { name: direction }).textContent()).toBe(direction === "incoming" ? "←" : "→");
  expect(await row.locator(".id").textContent()).toMatch(/^#\d+$/);
}

/** A copy of the demo without these packages, and an `npm` that waits. */
interface Clone extends AsyncDisposable {
  readonly server: string;
  readonly env: Record<string, string>;
  /** Lets the `npm` that waits, or the next one, end. */
  end(how: "failed" | "installed"): Promise<void>;
}

async function clone(): Promise<Clone> {
  const folder = await mkdtemp(join(tmpdir(), "reciproc-clone-"));
  const packages = "demo/language-servers";
  for (const path of ["package.json", "scripts", "demo/.build", "demo/page", `${packages}/package-lock.json`])
    await cp(join(ROOT, path), join(folder, path), { recursive: true });
  for (const path of ["dist", "node_modules"]) await symlink(join(ROOT, path), join(folder, path));
  const gate = join(folder, "gate");
  execFileSync("mkfifo", [gate]);
  await mkdir(join(folder, "bin"));
  const npm = join(folder, "bin/npm");
  const installed = join(ROOT, packages, "node_modules");
  await writeFile(
    npm,
    `#!/bin/sh\nread how < "${gate}"\n[ "$how" = installed ] && ln -s "${installed}" node_modules\n`,
  );
  await chmod(npm, 0o755);
  return {
    server: join(folder, "demo/.build/server.js"),
    env: { PATH: `${join(folder, "bin")}${delimiter}${process.env["PATH"]}` },
    end: (how) => writeFile(gate, `${how}\n`),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  };
}

it("the demo serves its page before it installs the language servers, and the editor says that they are prepared", async () => {
  await using copy = await clone();
  await using demo = await startDemo(copy.env, copy.server);
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
  await copy.end("failed");
  await state("stopped (The language servers could not be installed.)");
  await page.getByRole("button", { name: "Restart" }).click();
  await state("being prepared");
  await copy.end("installed");
  await ready(page, "css");
  await expect.poll(() => squiggles(page)).toEqual(["colr", "wdith"]);
  expect(demo.printed()).toContain("The language servers of the editor are installed.");
  expect(ada.complaints).toEqual([]);
  await leave(ada);
});
