/** Builds the application of docs/guides/board.md in its steps, as a reader does, and uses it in Chromium. */
import { spawn } from "node:child_process";
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { filesOf, stepsOf } from "../../scripts/guide.js";
import { clean, folder, Running, tsc } from "../readme/examples.js";
import { aptInstall, onPath } from "../support/debian.js";
import { freePort } from "../support/ports.js";
import { RedisServer } from "../support/redis.js";
import { newPage } from "./browser.js";
import { enterText, status } from "./windows.js";

const ROOT = join(import.meta.dirname, "../..");
const [CLI, VITE] = [join(ROOT, "dist/cli/main.js"), join(ROOT, "node_modules/vite/bin/vite.js")];
const GUIDE = await readFile(join(ROOT, "docs/guides/board.md"), "utf8");
const steps = stepsOf(GUIDE);
const folders = new Map<number, Promise<string>>();
const programs: Running[] = [];

// As if it was installed: Vite does not serve what is outside of the folder of an application.
beforeAll(async () => {
  for (const name of ["dist", "package.json"])
    await cp(join(ROOT, name), join(folder, "node_modules/reciproc", name), { recursive: true });
});
afterAll(async () => {
  for (const program of programs) await program.stop("SIGKILL");
  await clean();
});

/** Returns the folder of a step, in which its files are compiled. */
function folderOf(step: number): Promise<string> {
  const write = async (): Promise<string> => {
    const into = join(folder, `board-${step}`);
    await mkdir(into, { recursive: true });
    await writeFile(join(into, "package.json"), '{ "type": "module" }');
    for (const [name, code] of filesOf(steps[step - 1]!.text)) await writeFile(join(into, name), code);
    expect(await tsc(["-p", into])).toBe("");
    return into;
  };
  const promise = folders.get(step) ?? write();
  folders.set(step, promise);
  return promise;
}

/** Runs a program until the end of the file. */
function run(path: string, args: string[], env: NodeJS.ProcessEnv, cwd: string): Running {
  const program = new Running(path, args, { NO_COLOR: "1", NODE_ENV: "", ...env }, cwd);
  programs.push(program);
  return program;
}

async function start(into: string, env: NodeJS.ProcessEnv): Promise<Running> {
  const server = run(join(into, "build/server.js"), [], env, into);
  await server.line(/^listening/);
  return server;
}

/** Opens a page in a context of its own. A dialog is answered with `name`. */
async function visit(url: string, name = ""): Promise<Page> {
  const page = await newPage();
  page.on("dialog", (dialog) => void dialog.accept(name));
  await page.goto(url);
  return page;
}
const card = (page: Page, text: string): Locator => page.getByLabel("Cards").getByText(text);
const here = (page: Page): Promise<string | null> => page.getByLabel("Here").textContent();

it.each(steps.map(({ title }, i) => [title, i + 1] as const))("each step compiles: %s", async (_title, step) => {
  await folderOf(step);
});

it("the commands of the second step print a card, and why one without a text is refused", async () => {
  const into = await folderOf(2);
  const server = await start(into, { PORT: "0" });
  const { host } = new URL(server.lines[0]!.split(" ").at(-1)!);
  const ended: Running[] = [];
  for (const [, command] of GUIDE.matchAll(/^npx reciproc (call localhost:3000.*)$/gm)) {
    const words = [...command!.replace("localhost:3000", host).matchAll(/'([^']*)'|(\S+)/g)];
    const args = words.map(([, quoted, plain]) => quoted ?? plain!);
    const call = run(CLI, args, {}, into);
    await call.exited;
    ended.push(call);
  }
  const [, opened, refused, ...others] = ended;
  expect(JSON.parse(opened!.lines.join())).toMatchObject({ value: [{ id: "1", text: "Tea", by: "ada", votes: 0 }] });
  expect(refused!.errors).toContain("error -32602");
  expect(others).toEqual([]);
});

it("the tests of the guide pass", async () => {
  const into = await folderOf(8);
  const tests = run(join(into, "build/board.test.js"), [], {}, into);
  expect(await tests.exited).toEqual([0, null]);
  const code = filesOf(GUIDE).get("board.test.ts")!;
  const count = code.match(/^test\(/gm)!.length;
  expect(tests.lines.filter((line) => line.endsWith(`pass ${count}`))).toHaveLength(1);
});

it.each([3, 4, 5])(
  "the pages of step %i show each other's cards, and one that is written during a restart",
  async (step) => {
    const into = await folderOf(step);
    const [PORT, pagePort] = [String(await freePort()), String(await freePort())];
    const server = await start(into, { PORT });
    const vite = run(VITE, ["--host", "127.0.0.1", "--port", pagePort], { PORT }, into);
    const [url] = /http:\S+/.exec(await vite.line(/Local/))!;
    const [ada, bob] = [await visit(url, "Ada"), await visit(url, "Bob")];
    for (const page of [ada, bob]) await status(page, "open").waitFor();
    await enterText(ada, "New card", "Tea");
    for (const page of [ada, bob]) await card(page, "Tea").waitFor();
    if (step > 3) await expect.poll(() => here(ada)).toBe("You, Bob");
    if (step > 4) await ada.getByRole("button", { name: "▲ 0" }).click();
    if (step > 4) await bob.getByRole("button", { name: "▲ 1" }).waitFor();
    await server.stop();
    for (const page of [ada, bob]) await status(page, "suspended").waitFor();
    await enterText(bob, "New card", "Milk");
    await start(into, { PORT });
    for (const page of [ada, bob]) await card(page, "Milk").waitFor();
    for (const page of [ada, bob]) await page.context().close();
  },
);

it("two nodes behind nginx serve the board, also when one of them is killed", async () => {
  const into = await folderOf(10);
  if (onPath("nginx").length === 0) await aptInstall("nginx");
  await using redis = await RedisServer.create();
  const ports = [await freePort(), await freePort(), await freePort()].map(String);
  const env = { REDIS_URL: redis.url, TOKEN_KEY: "secret", HOSTS: "localhost" };
  const startNode = (i: number): Promise<Running> => start(into, { ...env, NODE_NAME: `n${i + 1}`, PORT: ports[i] });
  const [first, second] = [await startNode(0), await startNode(1)];
  await run(VITE, ["build"], { NODE_ENV: "production" }, into).exited;

  // The main file of nginx, as every installation has one. The ports and paths are those of this test.
  const file = await readFile(join(into, "board.conf"), "utf8");
  const placed = file.replace(/3001|3002|8080/g, (port) => ports[["3001", "3002", "8080"].indexOf(port)]!);
  await writeFile(join(into, "board.conf"), placed.replace("/srv/board", join(into, "dist")));
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((kind) => `${kind}_temp_path ${kind};`);
  const main = `include /etc/nginx/mime.types; ${temporary.join(" ")} access_log off; include board.conf;`;
  await writeFile(join(into, "nginx.conf"), `user root; events {} http { ${main} }`);
  const settings = ["-p", `${into}/`, "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off; pid nginx.pid;"];
  const nginx = spawn(onPath("nginx")[0] ?? "/usr/sbin/nginx", settings, { stdio: "ignore" });
  onTestFinished(() => void nginx.kill());
  const url = `http://localhost:${ports[2]}`;
  await expect.poll(async () => (await fetch(url).catch(() => undefined))?.ok).toBe(true);

  const [ada, bob] = [await visit(url), await visit(url)];
  const pages = [ada, bob];
  for (const [name, page] of Object.entries({ Ada: ada, Bob: bob })) {
    await page.getByLabel("Name").fill(name);
    await enterText(page, "Password", "coffee");
    await page.getByText("wrong password").waitFor();
    // React empties the form after an attempt.
    await expect.poll(() => page.getByLabel("Name").inputValue()).toBe("");
    await page.getByLabel("Name").fill(name);
    await enterText(page, "Password", "tea");
    await status(page, "open").waitFor();
  }
  await enterText(ada, "New card", "Tea");
  for (const page of pages) await card(page, "Tea").waitFor();
  await ada.mouse.move(100, 300);
  await bob.getByText("➤ Ada").waitFor();

  const upload = (buffer: Buffer): Promise<void> =>
    bob.getByLabel("Picture").setInputFiles({ name: "dot.gif", mimeType: "image/gif", buffer });
  await upload(Buffer.alloc(500_001));
  await bob.getByText("a picture has at most 500000 bytes").waitFor();
  await upload(Buffer.from("R0lGODlhAQABAIAAAP///wAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==", "base64"));
  for (const page of pages)
    await expect.poll(() => page.locator("img").evaluate((img: HTMLImageElement) => img.naturalWidth)).toBe(1);

  // One of the two pages loses its session, and its vote counts once.
  await first.stop("SIGKILL");
  for (const page of pages) await page.getByRole("button", { name: /▲/ }).click();
  for (const page of pages) await page.getByRole("button", { name: "▲ 2" }).waitFor();
  expect([await here(ada), await here(bob)]).toEqual(["You, Bob", "You, Ada"]);
  expect(await second.stop()).toBe(0);
});
