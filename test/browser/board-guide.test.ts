/** Builds the application of docs/guides/board.md in its steps, as a reader does, and uses it in Chromium. */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Locator, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { filesOf, stepsOf } from "../../scripts/guide.js";
import { run as runCommand, type Ended } from "../cli/program.js";
import { clean, folder, Running, tsc } from "../readme/examples.js";
import { ensureServer } from "../support/debian.js";
import { freePort } from "../support/ports.js";
import { RedisServer } from "../support/redis.js";
import { Relay } from "../support/relay.js";
import { openPage } from "./browser.js";
import { enterText, status } from "./windows.js";

const ROOT = join(import.meta.dirname, "../..");
const VITE = join(ROOT, "node_modules/vite/bin/vite.js");
const GUIDE = await readFile(join(ROOT, "docs/guides/board.md"), "utf8");
const programs: Running[] = [];
/** The folder of a step, with its files as they are after it, and as they are compiled. */
const folderOf = (step: number): string => join(folder, `board-${step}`);

beforeAll(async () => {
  // As if it was installed: Vite does not serve what is outside of the folder of an application.
  for (const name of ["dist", "package.json"])
    await cp(join(ROOT, name), join(folder, "node_modules/reciproc", name), { recursive: true });
  for (const [i, { text }] of stepsOf(GUIDE).entries()) {
    const into = folderOf(i + 1);
    await mkdir(into);
    await writeFile(join(into, "package.json"), '{ "type": "module" }');
    for (const [name, code] of filesOf(text)) await writeFile(join(into, name), code);
    const mistakes = await tsc(["-p", into]);
    if (mistakes !== "") throw new Error(mistakes);
  }
});
afterAll(async () => {
  for (const program of programs) await program.stop("SIGKILL");
  await clean();
});

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

const card = (page: Page, text: string): Locator => page.getByLabel("Cards").getByText(text);
const here = (page: Page): Promise<string | null> => page.getByLabel("Here").textContent();

it("the commands of the second step print a card, and why one without a text is refused", async () => {
  const server = await start(folderOf(2), { PORT: "0" });
  const { host } = new URL(server.lines[0]!.split(" ").at(-1)!);
  const ended: Ended[] = [];
  for (const [, command] of GUIDE.matchAll(/^npx reciproc (call localhost:3000.*)$/gm)) {
    const words = command!.replace("localhost:3000", host).matchAll(/'([^']*)'|(\S+)/g);
    ended.push(await runCommand(Array.from(words, ([, quoted, plain]) => quoted ?? plain!)));
  }
  const outputs = ended.map(({ stdout, stderr }) => stdout + stderr);
  expect(outputs).toEqual([/^null$/m, /"text": ?"Tea"/, /error -32602/].map((text) => expect.stringMatching(text)));
});

it("the tests of the guide pass", async () => {
  const tests = run(join(folderOf(8), "build/board.test.js"), [], {}, folderOf(8));
  expect(await tests.exited).toEqual([0, null]);
  const [, ...each] = filesOf(GUIDE).get("board.test.ts")!.split("\ntest(");
  expect(tests.lines.join("\n")).toMatch(new RegExp(`pass ${each.length}$`, "m"));
});

async function logIn(page: Page, name: string): Promise<void> {
  await page.getByLabel("Name").fill(name);
  await enterText(page, "Password", "tea");
}

it.each([3, 4, 5, 6])("the pages of step %i show each other's cards, and one written in a restart", async (step) => {
  const into = folderOf(step);
  const [PORT, pagePort] = [String(await freePort()), String(await freePort())];
  const server = await start(into, { PORT, TOKEN_LIFE_MS: "3000" });
  const vite = run(VITE, ["--host", "127.0.0.1", "--port", pagePort], { PORT }, into);
  const [url] = /http:\S+/.exec(await vite.line(/Local/))!;
  const [ada, bob] = [await openPage(url, "Ada"), await openPage(url, "Bob")];
  // When one socket has sent a third token, its first one has expired.
  const renewed = new Promise<void>((resolve) => {
    bob.on("websocket", (socket) => {
      let tokens = 0;
      socket.on("framesent", ({ payload }) => String(payload).includes('"auth":"') && ++tokens === 3 && resolve());
    });
  });
  if (step > 5) await logIn(ada, "Ada");
  if (step > 5) await logIn(bob, "Bob");
  for (const page of [ada, bob]) await status(page, "open").waitFor();
  await enterText(ada, "New card", "Tea");
  for (const page of [ada, bob]) await card(page, "Tea").waitFor();
  if (step > 3) await expect.poll(() => here(ada)).toBe("You, Bob");
  if (step > 4) await ada.getByRole("button", { name: "▲ 0" }).click();
  if (step > 4) await bob.getByRole("button", { name: "▲ 1" }).waitFor();
  if (step > 5) await renewed;
  await server.stop();
  for (const page of [ada, bob]) await status(page, "suspended").waitFor();
  await enterText(bob, "New card", "Milk");
  if (step > 4) await ada.getByRole("button", { name: "▲ 1" }).click();
  if (step > 4) await ada.getByRole("button", { name: "▲ 2" }).waitFor();
  await start(into, { PORT });
  for (const page of [ada, bob]) await card(page, "Milk").waitFor();
  if (step > 4) await ada.getByText("there is no such card").waitFor();
  for (const page of [ada, bob]) await page.context().close();
});

it("two nodes behind nginx serve the board, also when one of them is killed", async () => {
  const into = folderOf(10);
  await using redis = await RedisServer.create();
  const ports = [await freePort(), await freePort(), await freePort()].map(String);
  const env = { REDIS_URL: redis.url, TOKEN_KEY: "secret", HOSTS: "localhost", PASSWORD: "tea" };
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
  const nginx = spawn(await ensureServer("NGINX_PATH", "nginx 1", "nginx"), settings, { stdio: "ignore" });
  onTestFinished(() => void nginx.kill());
  const url = `http://localhost:${ports[2]}`;
  await expect.poll(async () => (await fetch(url).catch(() => undefined))?.ok).toBe(true);

  await using relay = await Relay.to(url);
  const [ada, bob] = [await openPage(url), await openPage(url.replace(ports[2]!, String(relay.port)))];
  const pages = [ada, bob];
  for (const [name, page] of Object.entries({ Ada: ada, Bob: bob })) {
    await page.getByLabel("Name").fill(name);
    await enterText(page, "Password", "coffee");
    await page.getByText("wrong password").waitFor();
    await expect.poll(() => page.getByLabel("Name").inputValue()).toBe(""); // React empties a form that was sent
    await logIn(page, name);
    await status(page, "open").waitFor();
  }
  await enterText(ada, "New card", "Tea");
  for (const page of pages) await card(page, "Tea").waitFor();
  await ada.mouse.move(100, 300);
  await bob.getByText("➤ Ada").waitFor();

  // Each picture is in the same file, as one that is chosen again.
  const upload = async (bytes: Buffer): Promise<void> => {
    await writeFile(join(into, "dot.gif"), bytes);
    const [chooser] = await Promise.all([bob.waitForEvent("filechooser"), bob.getByLabel("Picture").click()]);
    await chooser.setFiles(join(into, "dot.gif"));
  };
  await upload(Buffer.alloc(500_001));
  await bob.getByText("the stream has more than 500000 bytes").waitFor();
  // A picture of one dot, and more bytes. It stops after the first of its messages, and continues after the network was lost.
  const dot = Buffer.from("R0lGODlhAQABAIAAAP///wAAACH5BAAAAAAALAAAAAABAAEAAAICRAEAOw==", "base64");
  const picture = Buffer.concat([dot, randomBytes(400_000)]);
  let sent = 0;
  relay.pass = (bytes, to, line) => {
    if (to === "server" && (sent += bytes.length) > 300_000) line.pause("client");
    return bytes;
  };
  await upload(picture);
  await bob.getByText(/^\d+ %$/).waitFor();
  relay.pass = (bytes) => bytes;
  relay.cut();
  for (const page of pages)
    await expect.poll(() => page.locator("img").evaluate((img: HTMLImageElement) => img.naturalWidth)).toBe(1);
  const [stored] = await readdir(join(into, "pictures"));
  expect((await readFile(join(into, "pictures", stored!))).equals(picture)).toBe(true);

  // One of the two pages loses its session, and its vote counts once.
  await first.stop("SIGKILL");
  for (const page of pages) await page.getByRole("button", { name: /▲/ }).click();
  for (const page of pages) await page.locator('[style="opacity: 1;"]', { hasText: "▲ 2" }).waitFor();
  expect([await here(ada), await here(bob)]).toEqual(["You, Bob", "You, Ada"]);
  expect(await second.stop()).toBe(0);
  env.PASSWORD = "coffee";
  await startNode(0);
  for (const page of pages) await page.getByLabel("Password").waitFor();
});
