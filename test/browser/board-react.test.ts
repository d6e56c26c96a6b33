/** Runs examples/board-react: its commands, and two windows of Chromium with a cut and a restart. */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { beforeAll, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { connect } from "../support/connect.js";
import { EXAMPLES, ExampleServer } from "../examples/server.js";
import { rejection } from "../support/turns.js";
import { enterText, status, withWindows, type Window } from "./windows.js";

const EXAMPLE = join(EXAMPLES, "board-react");

async function script(name: string): Promise<void> {
  await promisify(execFile)("npm", ["run", name], { cwd: EXAMPLE, shell: process.platform === "win32" });
}

const add = (page: Page, text: string): Promise<void> => enterText(page, "New card", text);
const cards = (page: Page): Promise<string[]> => page.getByLabel("Cards").locator("label").allTextContents();
const log = (page: Page): Promise<string | null> => page.getByLabel("Log").textContent();
const here = (page: Page): Promise<string | null> => page.getByLabel("Here").textContent();

/** Runs a test with two users who have logged in. The server has a folder of its own. */
async function withUsers(
  run: (ada: Window, bo: Page, server: ExampleServer, folder: string) => Promise<void>,
): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "reciproc-board-"));
  const server = new ExampleServer("board-react/build/server/main.js", [], { BOARD_FOLDER: folder }, EXAMPLE);
  await withWindows(server, async (open) => {
    const [ada, bo] = [await open(), await open()];
    for (const [name, { page }] of Object.entries({ Ada: ada, Bo: bo })) {
      await enterText(page, "Name", name);
      await status(page, "Live").waitFor();
    }
    for (const { page } of [ada, bo]) await expect.poll(() => here(page)).toMatch(/^(Ada, Bo|Bo, Ada)$/);
    await run(ada, bo.page, server, folder);
  });
  await rm(folder, { recursive: true });
}

beforeAll(async () => {
  await ensurePackages(EXAMPLE);
  await script("build");
});

it("the example board-react compiles", () => script("typecheck"));

it("the example board-react shows cards at once, over a cut and a restart, until a user logs out", () =>
  withUsers(async ({ page: ada, relay }, bo, server) => {
    const bothShow = async (...texts: string[]): Promise<void> => {
      for (const page of [ada, bo]) await expect.poll(() => cards(page)).toEqual(texts);
    };
    const failure = await rejection(connect(`${server.url.replace("http", "ws")}/rpc`));
    expect(failure).toMatchObject({ code: "CONNECT_FAILED", status: 401 });
    const forged = await fetch(`${server.url}/me`, { headers: { cookie: "user=Ada.forged" } });
    expect(await forged.json()).toEqual({ name: null });

    await expect.poll(() => log(ada)).toContain("Bo is here");
    await add(ada, "Buy milk");
    await bothShow("Buy milk");
    await bo.getByLabel("Buy milk", { exact: true }).click();
    await expect.poll(() => ada.getByLabel("Buy milk", { exact: true }).isChecked()).toBe(true);
    await expect.poll(() => log(bo)).toContain('Ada wrote "Buy milk"');

    await relay.close();
    await status(ada, "Reconnecting").waitFor();
    await add(ada, "Written without a network");
    await expect.poll(() => cards(ada)).toEqual(["Buy milk", "Written without a network"]);
    await add(bo, "Meanwhile");
    await expect.poll(() => cards(bo)).toEqual(["Buy milk", "Meanwhile"]);
    await relay.open();
    await status(ada, "Live").waitFor();
    await expect.poll(() => cards(bo)).toEqual(["Buy milk", "Meanwhile", "Written without a network"]);
    expect(new Set(await cards(ada))).toEqual(new Set(await cards(bo)));
    expect(await cards(ada)).toHaveLength(3);

    // A user is asked before another one removes their card.
    await bo.getByLabel("Remove Buy milk").click();
    await ada.getByText('May Bo remove "Buy milk"?').waitFor();
    await ada.getByRole("button", { name: "No" }).click();
    await bo.getByText("Ada said no").waitFor();
    expect(await cards(bo)).toContain("Buy milk");
    await bo.getByLabel("Remove Written without a network").click();
    await ada.getByRole("button", { name: "Yes" }).click();
    await bothShow("Buy milk", "Meanwhile");

    expect(await server.stop()).toBe(0);
    for (const page of [ada, bo]) await status(page, "Reconnecting").waitFor();
    await add(bo, "Written during the restart");
    await expect.poll(() => cards(bo)).toContain("Written during the restart");
    await server.start();
    for (const page of [ada, bo]) await status(page, "Live").waitFor();
    await bothShow("Buy milk", "Meanwhile", "Written during the restart");
    for (const page of [ada, bo]) await expect.poll(() => here(page)).toMatch(/^(Ada, Bo|Bo, Ada)$/);
    await add(ada, "After the restart");
    for (const page of [ada, bo]) await expect.poll(() => log(page)).toContain("After the restart");

    // A user who logs out does so in all windows.
    const second = await bo.context().newPage();
    await second.goto(bo.url());
    await status(second, "Live").waitFor();
    await bo.getByRole("button", { name: "Log out Bo" }).click();
    await bo.getByLabel("Name").waitFor();
    await status(second, "Logged out").waitFor();
    await expect.poll(() => here(ada)).toBe("Ada");
  }));

it("the example board-react imports with progress, until it is cancelled, and before its server ends", () =>
  withUsers(async ({ page: ada }, bo, server) => {
    const form = ada.getByLabel("Import", { exact: true });
    const importLines = async (...lines: string[]): Promise<void> => {
      await form.getByLabel("Lines").fill(lines.join("\n"));
      await form.getByRole("button", { name: "Import" }).click();
    };
    await importLines(...Array.from({ length: 1_000 }, (_, i) => `Import ${i}`));
    await form.getByText(/^\d+ of 1000$/).waitFor();
    await form.getByRole("button", { name: "Cancel" }).click();
    await form.getByText(/^Cancelled after \d+ cards$/).waitFor();
    // A call that follows the cancelling: the server imports no card after it.
    await add(ada, "After the import");
    await expect.poll(async () => (await cards(bo)).at(-1)).toBe("After the import");
    const { length } = await cards(bo);
    expect(length).toBeGreaterThan(1);
    expect(length).toBeLessThan(1_000);

    await importLines(..."abcdefghij");
    await expect.poll(async () => (await cards(bo)).length).toBeGreaterThan(length);
    expect(await server.stop()).toBe(0);
    await form.getByText("Imported 10 cards").waitFor();
    await server.start();
    await expect.poll(() => cards(bo)).toHaveLength(length + 10);
    for (const page of [ada, bo]) await status(page, "Live").waitFor();
  }));

it("the example board-react uploads 20 MB unchanged, while the network is cut", () =>
  withUsers(async ({ page: ada, relay }, bo, _server, folder) => {
    const content = randomBytes(20_000_000);
    const path = join(folder, "big.bin");
    await writeFile(path, content);
    let passed = 0;
    relay.pass = (bytes) => {
      passed += bytes.length;
      if (passed <= 5_000_000) return bytes;
      relay.pass = (later) => later;
      relay.cut();
      return undefined;
    };
    const form = ada.getByLabel("Upload");
    await form.getByLabel("File").setInputFiles(path);
    await form.getByText("big.bin: 20,000,000 bytes stored").waitFor();
    await status(ada, "Live").waitFor();
    const uploads = await readdir(join(folder, "uploads"));
    expect(uploads).toHaveLength(1);
    expect((await readFile(join(folder, "uploads", uploads[0]!))).equals(content)).toBe(true);
    await expect.poll(() => log(bo)).toContain("Ada uploaded big.bin");
  }));
