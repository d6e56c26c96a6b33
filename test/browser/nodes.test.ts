/** The demo on three nodes: a page kills its node, connects to another one, and recovers the board from the log. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { ensureRedis, eventually } from "../support/redis.js";
import { draw, enter, leave, picture, strokes, visit, type Visitor } from "./demo.js";

const PROGRAM = join(import.meta.dirname, "../../demo/.build/main.js");
/** The time for a restart of a node, and for the lease of a dead one. */
const PATIENCE_MS = 30_000;

const nodeOf = async (page: Page): Promise<string> => (await page.locator("#node-name").textContent())!;
const chatOf = (page: Page): Promise<string[]> => page.locator(".line:not(.pending) .text").allTextContents();
const say = async (page: Page, text: string): Promise<void> => {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.getByLabel("Message", { exact: true }).press("Enter");
};

describe("the demo on three nodes", () => {
  let demo: ChildProcess;
  let url: string;
  const lines: string[] = [];
  let visitors: Visitor[] = [];

  beforeAll(async () => {
    const env = { ...process.env, PORT: "0", REDIS_SERVER_PATH: await ensureRedis() };
    demo = spawn(process.execPath, [PROGRAM, "--nodes", "3"], { env, stdio: ["ignore", "pipe", "inherit"] });
    createInterface(demo.stdout!).on("line", (line) => lines.push(line));
    const output = await eventually(
      () => lines.join("\n"),
      (text) => text.includes("on 3 nodes: http"),
      PATIENCE_MS,
    );
    url = /http:\S+/.exec(output)![0];
  }, 120_000);
  afterEach(async () => {
    await leave(...visitors);
    visitors = [];
  });
  afterAll(async () => {
    demo.kill("SIGTERM");
    await once(demo, "exit");
  });

  async function invite(name: string): Promise<Page> {
    const visitor = await visit(url, name);
    visitors.push(visitor);
    await visitor.page.getByRole("button", { name: "Kill this node" }).waitFor();
    return visitor.page;
  }
  /** Invites somebody to another node than these. */
  async function inviteElsewhere(name: string, ...homes: string[]): Promise<Page> {
    for (;;) {
      const page = await invite(name);
      if (!homes.includes(await nodeOf(page))) return page;
      await visitors.pop()!.page.context().close();
    }
  }
  it("recovers what was drawn and said while the page had no node, and starts the node again", async () => {
    const ada = await invite("Ada");
    const home = await nodeOf(ada);
    const bo = await inviteElsewhere("Bo", home);
    const away = await nodeOf(bo);
    await draw(ada, [
      [0.2, 0.2],
      [0.8, 0.2],
    ]);
    await strokes(bo, 1);
    await say(bo, "good morning");
    await expect.poll(() => chatOf(ada)).toEqual(["good morning"]);

    // The node holds new connections of this page, so that there is something to recover.
    await ada.getByRole("button", { name: "Cut the network" }).last().click();
    await ada.getByText("Reconnecting", { exact: true }).waitFor();
    await draw(bo, [
      [0.2, 0.5],
      [0.8, 0.5],
    ]);
    await say(bo, "are you there?");
    await expect.poll(() => chatOf(bo)).toEqual(["good morning", "are you there?"]);
    await draw(ada, [
      [0.2, 0.8],
      [0.8, 0.8],
    ]);
    await say(ada, "where am I?");
    await using killer = await enter(url, "Kay", { arrived: () => {} }, `a-page&node=${home}`);
    killer.notify("kill");
    await expect.poll(() => lines, { timeout: PATIENCE_MS }).toContain(`${home} is gone; it starts again in 2 s`);
    const report = ada.locator("#recovered", { hasText: "is gone" });
    await report.waitFor();
    expect(await report.textContent()).toMatch(
      new RegExp(
        `^${home} is gone\\. n\\d had the log: [1-9]\\d* pieces? of lines and 1 line of the chat came from there, and nothing is missing\\.$`,
      ),
    );
    expect(await nodeOf(ada)).not.toBe(home);
    for (const page of [ada, bo]) {
      await strokes(page, 3);
      await expect.poll(() => chatOf(page)).toEqual(["good morning", "are you there?", "where am I?"]);
    }
    await expect.poll(async () => (await picture(ada)) === (await picture(bo))).toBe(true);
    await expect
      .poll(() => lines.filter((line) => line.startsWith(`${home} is process`)), { timeout: PATIENCE_MS })
      .toHaveLength(2);
    // Ada is listed once, also while the lease of the dead node runs.
    expect(await bo.locator(".person .given").allTextContents()).toEqual(expect.arrayContaining(["Ada", "Bo"]));
    await expect.poll(() => bo.locator(".person").count(), { timeout: PATIENCE_MS }).toBe(2);

    // A page that comes later loads all of it, on the node that was started again too.
    const late = await inviteElsewhere("Cy", away, await nodeOf(ada));
    expect(await nodeOf(late)).toBe(home);
    await strokes(late, 3);
    expect(await chatOf(late)).toEqual(["good morning", "are you there?", "where am I?"]);
    expect(visitors.flatMap(({ complaints }) => complaints).filter((text) => !/WebSocket/.test(text))).toEqual([]);
  }, 120_000);

  it("kills the node to which the page is connected, by a button, and shows the next one", async () => {
    const ada = await invite("Ada");
    const home = await nodeOf(ada);
    const count = lines.length;
    await ada.getByRole("button", { name: "Kill this node" }).click();
    await ada.locator("#recovered", { hasText: `${home} is gone.` }).waitFor();
    expect(await nodeOf(ada)).not.toBe(home);
    await expect
      .poll(() => lines.slice(count).some((line) => line.startsWith(`${home} is process`)), { timeout: PATIENCE_MS })
      .toBe(true);
  });

  it("asks the people on all nodes whether the board may be cleared, and clears it on all", async () => {
    const ada = await invite("Ada");
    const bo = await inviteElsewhere("Bo", await nodeOf(ada));
    await draw(ada, [
      [0.1, 0.1],
      [0.3, 0.3],
    ]);
    await expect.poll(async () => (await picture(bo)) === (await picture(ada))).toBe(true);
    await bo.getByRole("button", { name: "Clear", exact: true }).click();
    await ada.getByText("Bo would like to clear the board.").waitFor();
    await ada.getByRole("button", { name: "Agree" }).click();
    for (const page of [ada, bo]) await strokes(page, 0);
  }, 60_000);

  it("undoes the newest line of a page that was drawn on another node", async () => {
    const page = "the-name-of-a-page";
    const drawn: string[] = [];
    const erased: string[][] = [];
    const methods = {
      drew: ({ id }: { id: string }) => void drawn.push(id),
      erased: ({ strokes: ids }: { strokes: string[] }) => void erased.push(ids),
      arrived: () => {},
    };
    await using first = await enter(url, "Dee", methods, `${page}&node=n1`);
    first.notify("draw", { stroke: 1, size: 0.01, points: Buffer.from([1, 0, 1, 0]).toString("base64"), n: 1 });
    await expect.poll(() => drawn).toHaveLength(1);
    await using second = await enter(url, "Dee", methods, `${page}&node=n2`);
    second.notify("undo");
    await expect.poll(() => erased).toContainEqual([drawn[0]]);
  });

  it("refuses the editor, whose documents are in one process", async () => {
    await using peer = await enter(url, "Eve", { arrived: () => {} });
    await expect(peer.request("open", { document: "welcome.css" })).rejects.toMatchObject({ code: 501 });
  });

  it("shows the code of a node", async () => {
    await using peer = await enter(url, "Flo", { arrived: () => {} });
    const code = (await peer.request("code")) as Record<string, { file: string }[]>;
    expect(code["draw"]!.map(({ file }) => file)).toEqual(["page/main.ts", "nodes/node.ts"]);
    expect(code["edit"]).toBeUndefined();
  });
});

it.each(["0", "10", "three"])("the demo refuses %s nodes in one line", async (count) => {
  const demo = spawn(process.execPath, [PROGRAM, "--nodes", count], { stdio: ["ignore", "ignore", "pipe"] });
  const output: string[] = [];
  createInterface(demo.stderr).on("line", (line) => output.push(line));
  expect(await once(demo, "close")).toEqual([1, null]);
  expect(output).toEqual(["Expected --nodes to be a number from 1 to 9"]);
});
