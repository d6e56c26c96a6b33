/** The demo on three nodes: a page kills its node, connects to another one, and recovers the board from the log. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { Running } from "../readme/examples.js";
import { upgrade } from "../support/network.js";
import { ensureRedis, eventually } from "../support/redis.js";
import { Relay } from "../support/relay.js";
import { end } from "./browser.js";
import { draw, enter, leave, live, LONG_VOTE, picture, say, strokes, visit, type Visitor } from "./demo.js";

const PROGRAM = join(import.meta.dirname, "../../demo/.build/main.js");
const NAMES = ["n1", "n2", "n3"];
const DOT = { stroke: 1, size: 0.01, points: Buffer.from([1, 0, 1, 0]).toString("base64") };

const nodeOf = async (page: Page): Promise<string> => (await page.locator("#node-name").textContent())!;
const chatOf = (page: Page): Promise<string[]> => page.locator(".line:not(.pending) .text").allTextContents();
/** The names of the people whom the page lists, and who of them are away. */
const peopleOn = async (page: Page): Promise<string[]> => {
  const present = await page.locator(".person:not(.away) .given").allTextContents();
  const away = await page.locator(".person.away .given").allTextContents();
  const all = [...present, ...away.map((name) => `${name}, away`)];
  all.sort();
  return all;
};

async function startNodes(count: number) {
  const folder = await mkdtemp(join(tmpdir(), "reciproc-nodes-"));
  const redis = await ensureRedis();
  const env = { ...process.env, PORT: "0", REDIS_SERVER_PATH: redis, TMPDIR: folder, ...LONG_VOTE.env };
  // In a process group, as if a terminal had started it.
  const child = spawn(process.execPath, [PROGRAM, "--nodes", String(count)], { env, detached: true });
  // Its nodes and its Redis print to the same pipes, which are closed when the last of them has ended.
  const closed = once(child, "close");
  const lines: string[] = [];
  for (const stream of [child.stdout, child.stderr]) createInterface(stream).on("line", (line) => lines.push(line));
  const output = await eventually(
    () => lines.join("\n"),
    (text) => text.includes(`on ${count} nodes: http`),
  );
  return {
    url: /http:\S+/.exec(output)![0],
    lines,
    /** Sends a signal to the process group, as a terminal does. Returns the files that are left when all processes have ended. */
    async end(signal: NodeJS.Signals): Promise<string[]> {
      process.kill(-child.pid!, signal);
      await closed;
      const left = await readdir(folder);
      await rm(folder, { recursive: true });
      return left;
    },
  };
}

describe("the demo on three nodes", () => {
  let demo: Awaited<ReturnType<typeof startNodes>>;
  let url: string;
  let lines: string[];
  let visitors: Visitor[] = [];

  beforeAll(async () => {
    demo = await startNodes(3);
    ({ url, lines } = demo);
  });
  afterEach(async () => {
    await leave(...visitors);
    visitors = [];
  });
  afterAll(async () => {
    await demo.end("SIGHUP");
  });

  async function invite(name: string, at = url): Promise<Page> {
    const visitor = await visit(at, name);
    visitors.push(visitor);
    await visitor.page.getByRole("button", { name: "Kill this node" }).waitFor();
    return visitor.page;
  }
  async function inviteElsewhere(name: string, ...homes: string[]): Promise<Page> {
    for (;;) {
      const page = await invite(name);
      if (!homes.includes(await nodeOf(page))) return page;
      await end(visitors.pop()!.page);
    }
  }

  it("brings each window to another node, recovers what a page without a node missed, and starts the node again", async () => {
    const [ada, bo, dan] = [await invite("Ada"), await invite("Bo"), await invite("Dan")];
    const home = await nodeOf(ada);
    expect(new Set([home, await nodeOf(bo), await nodeOf(dan)])).toEqual(new Set(NAMES));
    await end(dan);
    await draw(ada, [[0.2, 0.2]]);
    await strokes(bo, 1);
    await say(bo, "good morning");
    await expect.poll(() => chatOf(ada)).toEqual(["good morning"]);

    await using killer = await enter(url, "Kay", { arrived: () => {} }, `a-page&node=${home}`);
    // The node holds new connections of this page, so that there is something to recover.
    await ada.locator("#cut").click();
    await ada.getByText("Reconnecting", { exact: true }).waitFor();
    await draw(bo, [[0.2, 0.5]]);
    await say(bo, "are you there?");
    await expect.poll(() => chatOf(bo)).toEqual(["good morning", "are you there?"]);
    await draw(ada, [[0.2, 0.8]]);
    await say(ada, "where am I?");
    killer.notify("kill");
    await expect.poll(() => lines).toContain(`${home} is gone; it starts again in 2 s`);
    const report = ada.locator("#recovered", { hasText: "is gone" });
    await report.waitFor();
    expect(await report.textContent()).toMatch(
      new RegExp(
        `^${home} is gone\\. This window is now on ${await nodeOf(ada)}\\. From the log it got [1-9]\\d* pieces? of lines and 1 line of the chat\\. Nothing is missing\\.$`,
      ),
    );
    expect(await nodeOf(ada)).not.toBe(home);
    for (const page of [ada, bo]) {
      await strokes(page, 3);
      await expect.poll(() => chatOf(page)).toEqual(["good morning", "are you there?", "where am I?"]);
    }
    await expect.poll(async () => (await picture(ada)) === (await picture(bo))).toBe(true);
    await expect.poll(() => lines.filter((line) => line.startsWith(`${home} is process`))).toHaveLength(2);
    // Ada is listed once, also while the lease of the dead node runs.
    expect(await peopleOn(bo)).toEqual(expect.arrayContaining(["Ada", "Bo"]));
    await expect.poll(() => peopleOn(bo)).toEqual(["Ada", "Bo"]);

    // A page that comes later loads all of it, on the node that was started again too.
    const late = await inviteElsewhere("Cy", ...NAMES.filter((name) => name !== home));
    await strokes(late, 3);
    expect(await chatOf(late)).toEqual(["good morning", "are you there?", "where am I?"]);
    expect(visitors.flatMap(({ complaints }) => complaints).filter((text) => !/WebSocket/.test(text))).toEqual([]);
  });

  it("resumes the session of a page that was cut off, asks all nodes in a vote, and kills a node by its button", async () => {
    await using relay = await Relay.to(url);
    const ada = await invite("Ada", relay.url.replace("ws:", "http:"));
    const home = await nodeOf(ada);
    const bo = await inviteElsewhere("Bo", home);
    relay.target = () => undefined;
    relay.cut();
    await ada.getByText("Reconnecting", { exact: true }).waitFor();
    // Each node knows who has lost a connection to another one.
    await bo.getByTitle("Ada is reconnecting").waitFor();
    await say(bo, "are you back?");
    relay.target = url;
    await live(ada);
    await bo.getByTitle("Ada is reconnecting").waitFor({ state: "detached" });
    await expect.poll(async () => (await chatOf(ada)).at(-1)).toBe("are you back?");
    expect(await nodeOf(ada)).toBe(home);
    expect(await ada.locator("#recovered").textContent()).toBe("");

    await draw(ada, [[0.1, 0.1]]);
    await expect.poll(async () => (await picture(bo)) === (await picture(ada))).toBe(true);
    // A page that was left and is still listed would be asked too.
    await expect.poll(() => peopleOn(bo)).toEqual(["Ada", "Bo"]);
    await bo.getByRole("button", { name: "Clear", exact: true }).click();
    await ada.getByText("Bo would like to clear the board.").waitFor();
    await ada.getByRole("button", { name: "Agree" }).click();
    for (const page of [ada, bo]) await strokes(page, 0);

    const count = lines.length;
    const kill = ada.getByRole("button", { name: "Kill this node" });
    // A second press would kill the next node. The button is disabled for some milliseconds only.
    await kill.evaluate((button: HTMLElement) => {
      new MutationObserver((_changes, observer) => {
        if (button.ariaDisabled !== "true") return;
        observer.disconnect();
        button.click();
        button.dataset["pressed"] = "twice";
      }).observe(button, { attributes: true });
    });
    await kill.click();
    await kill.and(ada.locator("[data-pressed=twice]")).waitFor();
    const report = ada.locator("#recovered", { hasText: `${home} is gone.` });
    await report.waitFor();
    expect(await nodeOf(ada)).not.toBe(home);
    expect(await report.textContent()).toBe(
      `${home} is gone. This window is now on ${await nodeOf(ada)}. The log had nothing new. Nothing is missing.`,
    );
    await ada.locator("#notice", { hasText: "is gone." }).waitFor();
    await ada.locator("#outage").waitFor({ state: "hidden" });
    await expect.poll(() => lines.slice(count).some((line) => line.startsWith(`${home} is process`))).toBe(true);
  });

  it("undoes what a page drew on another node, shows its own code, has no editor, and checks the host", async () => {
    const page = "the-name-of-a-page";
    const drawn: string[] = [];
    const erased: string[][] = [];
    const methods = {
      drew: ({ id }: { id: string }) => void drawn.push(id),
      erased: ({ strokes: ids }: { strokes: string[] }) => void erased.push(ids),
      arrived: () => {},
    };
    await using first = await enter(url, "Dee", methods, `${page}&node=n1`);
    first.notify("draw", { ...DOT, n: 1 });
    await expect.poll(() => drawn).toHaveLength(1);
    await using second = await enter(url, "Dee", methods, `${page}&node=n2`);
    second.notify("undo");
    await expect.poll(() => erased).toContainEqual([drawn[0]]);
    const code = (await second.request("code")) as Record<string, { file: string }[]>;
    expect(code["draw"]!.map(({ file }) => file)).toEqual(["page/main.ts", "nodes/node.ts"]);
    expect(code["edit"]).toBeUndefined();
    await expect(second.request("open", { document: "welcome.css" })).rejects.toMatchObject({ code: 501 });

    // A page may name this machine by any address.
    const { port } = new URL(url);
    const statusOf = async (host: string): Promise<number> =>
      (await upgrade(url.replace("http", "ws") + "/rpc", { Host: `${host}:${port}` })).status;
    for (const { address } of Object.values(networkInterfaces()).flatMap((all = []) => all))
      expect([address, await statusOf(address.includes(":") ? `[${address}]` : address)]).toEqual([address, 101]);
    expect(await statusOf("evil.example")).toBe(403);
  });
});

it("the demo on nodes brings a window that joined an empty board its first line, and ends with its files", async () => {
  const demo = await startNodes(2);
  const ada = await visit(demo.url, "Ada");
  const { page } = ada;
  const report = page.locator("#recovered");
  await page.getByRole("button", { name: "Kill this node" }).click();
  await report.filter({ hasText: "The log had nothing new. Nothing is missing." }).waitFor();
  await strokes(page, 0);

  const home = await nodeOf(page);
  const other = home === "n1" ? "n2" : "n1";
  await expect.poll(() => demo.lines.filter((line) => line.startsWith(`${other} is process`))).toHaveLength(2);
  await using killer = await enter(demo.url, "Kay", { arrived: () => {} }, `a-page&node=${home}`);
  const drawn: string[] = [];
  const methods = { arrived: () => {}, drew: ({ id }: { id: string }) => void drawn.push(id) };
  await using drawer = await enter(demo.url, "Lou", methods, `another-page&node=${other}`);
  // The node holds new connections of this page, so that the first line ever is drawn while it has none.
  await page.locator("#cut").click();
  await page.getByText("Reconnecting", { exact: true }).waitFor();
  drawer.notify("draw", { ...DOT, n: 1 });
  await expect.poll(() => drawn).toHaveLength(1);
  killer.notify("kill");
  await report
    .filter({
      hasText: `${home} is gone. This window is now on ${other}. From the log it got 1 piece of lines. Nothing is missing.`,
    })
    .waitFor();
  await strokes(page, 1);
  await leave(ada);
  const count = demo.lines.length;
  expect(await demo.end("SIGINT")).toEqual([]);
  expect(demo.lines.slice(count)).toEqual([]);
});

/** Runs the demo, which cannot start. Returns its exit code and what it printed. */
async function refused(count: string, env: NodeJS.ProcessEnv = {}): Promise<[code: unknown, output: string[]]> {
  const demo = new Running(PROGRAM, ["--nodes", count], env);
  const [code] = await demo.exited;
  return [code, demo.errors.trimEnd().split("\n")];
}

it("the demo says in one line that its number of nodes is wrong, or that there is no Redis, and leaves no files", async () => {
  for (const count of ["0", "10", "three"])
    expect(await refused(count)).toEqual([1, ["Expected --nodes to be a number from 1 to 9"]]);
  const folder = await mkdtemp(join(tmpdir(), "reciproc-nodes-"));
  const without = { PATH: folder, TMPDIR: folder };
  const [code, output] = await refused("3", { ...without, REDIS_SERVER_PATH: "" });
  expect([code, output]).toEqual([1, [expect.stringMatching(/^No redis-server was found\. .*REDIS_SERVER_PATH/)]]);
  const path = join(folder, "none");
  expect(await refused("3", { ...without, REDIS_SERVER_PATH: path })).toEqual([1, [`spawn ${path} ENOENT`]]);
  expect(await readdir(folder)).toEqual([]);
  await rm(folder, { recursive: true });
});
