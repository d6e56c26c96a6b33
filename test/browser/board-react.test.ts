/** Runs examples/board-react: its commands, and two windows of Chromium with a cut and a restart. */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { connect } from "../../src/node.js";
import { EXAMPLES, ExampleServer } from "../examples/server.js";
import type { Relay } from "../support/relay.js";
import { status, Windows } from "./windows.js";

const EXAMPLE = join(EXAMPLES, "board-react");

const windows = new Windows();
let folder: string;
let server: ExampleServer;
let relay: Relay;
let ada: Page;
let bo: Page;

/** Runs an npm script of the example. */
async function script(name: string): Promise<void> {
  await promisify(execFile)("npm", ["run", name], { cwd: EXAMPLE, shell: process.platform === "win32" });
}

/** Opens the page as a user who logs in. */
async function logIn(name: string): Promise<{ page: Page; relay: Relay }> {
  const opened = await windows.open(server.url);
  await opened.page.getByLabel("Name").fill(name);
  await opened.page.getByLabel("Name").press("Enter");
  await status(opened.page, "Live").waitFor();
  return opened;
}

async function add(page: Page, text: string): Promise<void> {
  await page.getByLabel("New card").fill(text);
  await page.getByLabel("New card").press("Enter");
}

const cards = (page: Page): Promise<string[]> => page.getByLabel("Cards").locator("label").allTextContents();
const log = (page: Page): Promise<string | null> => page.getByLabel("Log").textContent();

const here = (page: Page): Promise<string | null> => page.getByLabel("Here").textContent();

async function bothShow(...texts: string[]): Promise<void> {
  for (const page of [ada, bo]) await expect.poll(() => cards(page)).toEqual(texts);
}

async function importLines(...lines: string[]): Promise<void> {
  const form = ada.getByLabel("Import", { exact: true });
  await form.getByLabel("Lines").fill(lines.join("\n"));
  await form.getByRole("button", { name: "Import" }).click();
}

beforeAll(async () => {
  await ensurePackages(EXAMPLE);
  await script("build");
  folder = await mkdtemp(join(tmpdir(), "reciproc-board-"));
  server = new ExampleServer("board-react/build/server/main.js", [], { BOARD_FOLDER: folder }, EXAMPLE);
  await server.start();
  ({ page: ada, relay } = await logIn("Ada"));
  ({ page: bo } = await logIn("Bo"));
});
afterAll(async () => {
  await windows[Symbol.asyncDispose]();
  await server.stop();
  await rm(folder, { recursive: true });
});

describe("the example board-react", () => {
  it("compiles", () => script("typecheck"));

  it("refuses a client that has not logged in", async () => {
    const error: unknown = await connect(`${server.url.replace("http", "ws")}/rpc`).catch(
      (failure: unknown) => failure,
    );
    expect(error).toMatchObject({ code: "CONNECT_FAILED", status: 401 });
    expect(await (await fetch(`${server.url}/me`, { headers: { cookie: "user=Ada.forged" } })).json()).toEqual({
      name: null,
    });
  });

  it("shows who is here, and what the server logs", async () => {
    for (const page of [ada, bo]) {
      await expect.poll(() => here(page)).toMatch(/^(Ada, Bo|Bo, Ada)$/);
    }
    await expect.poll(() => log(ada)).toContain("Bo is here");
  });

  it("shows a card of one window in both", async () => {
    await add(ada, "Buy milk");
    await bothShow("Buy milk");
    await bo.getByLabel("Buy milk", { exact: true }).click();
    await expect.poll(() => ada.getByLabel("Buy milk", { exact: true }).isChecked()).toBe(true);
    await expect.poll(() => log(bo)).toContain('Ada wrote "Buy milk"');
  });

  it("shows a card at once while the network is cut, and sends it once afterwards", async () => {
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
  });

  it("asks the owner before another user removes a card", async () => {
    await bo.getByLabel("Remove Buy milk").click();
    await ada.getByText('May Bo remove "Buy milk"?').waitFor();
    await ada.getByRole("button", { name: "No" }).click();
    await bo.getByText("Ada said no").waitFor();
    expect(await cards(bo)).toContain("Buy milk");
    await bo.getByLabel("Remove Written without a network").click();
    await ada.getByRole("button", { name: "Yes" }).click();
    await bothShow("Buy milk", "Meanwhile");
  });

  it("imports with progress, and stops on the server when the user cancels", async () => {
    const form = ada.getByLabel("Import", { exact: true });
    await form.getByLabel("Lines").fill(Array.from({ length: 200 }, (_, i) => `Import ${i}`).join("\n"));
    await form.getByRole("button", { name: "Import" }).click();
    await form.getByText(/^\d+ of 200$/).waitFor();
    await form.getByRole("button", { name: "Cancel" }).click();
    await form.getByText(/^Cancelled after \d+ cards$/).waitFor();
    // A call that follows the cancelling: the server imports no card after it.
    await add(ada, "After the import");
    await expect.poll(async () => (await cards(bo)).at(-1)).toBe("After the import");
    const { length } = await cards(bo);
    expect(length).toBeGreaterThan(3);
    expect(length).toBeLessThan(150);
    await importLines("Last");
    await form.getByText("Imported 1 cards").waitFor();
    await expect.poll(() => cards(bo)).toHaveLength(length + 1);
  });

  it("uploads 20 MB unchanged, while the network is cut", async () => {
    const content = randomBytes(20_000_000);
    const path = join(folder, "big.bin");
    await writeFile(path, content);
    const form = ada.getByLabel("Upload");
    const output = form.locator("output");
    await form.getByLabel("File").setInputFiles(path);
    await expect.poll(() => output.textContent(), { interval: 5 }).toMatch(/%|bytes/);
    expect(await output.textContent()).toMatch(/^big\.bin: [1-9]?\d %$/);
    relay.cut();
    await expect.poll(() => output.textContent()).toBe("big.bin: 20,000,000 bytes stored");
    await status(ada, "Live").waitFor();
    const uploads = await readdir(join(folder, "uploads"));
    expect(uploads).toHaveLength(1);
    expect((await readFile(join(folder, "uploads", uploads[0]!))).equals(content)).toBe(true);
    await expect.poll(() => log(bo)).toContain("Ada uploaded big.bin");
  });

  it("ends an import before its server ends", async () => {
    const before = await cards(bo);
    await importLines("One", "Two", "Three", "Four", "Five");
    const progress = ada.getByLabel("Import", { exact: true }).locator("output");
    // It is shown for less than half a second.
    await expect.poll(() => progress.textContent(), { interval: 20 }).toMatch(/^[1-4] of 5$/);
    expect(await server.stop()).toBe(0);
    await ada.getByLabel("Import", { exact: true }).getByText("Imported 5 cards").waitFor();
    await server.start();
    await bothShow(...before, "One", "Two", "Three", "Four", "Five");
    for (const page of [ada, bo]) await status(page, "Live").waitFor();
  });

  it("keeps its users and cards over a restart, and sends what was written meanwhile", async () => {
    const before = await cards(ada);
    expect(await server.stop()).toBe(0);
    for (const page of [ada, bo]) await status(page, "Reconnecting").waitFor();
    await add(bo, "Written during the restart");
    await expect.poll(() => cards(bo)).toContain("Written during the restart");
    await server.start();
    for (const page of [ada, bo]) await status(page, "Live").waitFor();
    for (const page of [ada, bo]) {
      await expect.poll(() => cards(page)).toEqual([...before, "Written during the restart"]);
      await expect.poll(() => here(page)).toMatch(/^(Ada, Bo|Bo, Ada)$/);
    }
    await add(ada, "After the restart");
    for (const page of [ada, bo]) await expect.poll(() => log(page)).toContain("After the restart");
  });

  it("closes all windows of a user who logs out", async () => {
    const second = await bo.context().newPage();
    await second.goto(bo.url());
    await status(second, "Live").waitFor();
    await bo.getByRole("button", { name: "Log out Bo" }).click();
    await bo.getByLabel("Name").waitFor();
    await status(second, "Logged out").waitFor();
    await expect.poll(() => here(ada)).toBe("Ada");
  });

  it("reports no error, in the server and in the pages", () => {
    expect(windows.errors).toEqual([]);
    expect(server.errors).toBe("");
  });
});
