/** Runs examples/nextjs in Chromium: its build, and its development server, whose StrictMode runs each effect twice. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, it, vi } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { EXAMPLES, ExampleServer } from "../examples/server.js";
import { examplesOf } from "../readme/examples.js";
import { withWindows } from "./windows.js";

const EXAMPLE = join(EXAMPLES, "nextjs");
const textOf = (path: string): Promise<string> => readFile(join(EXAMPLE, path), "utf8");

beforeAll(async () => {
  await ensurePackages(EXAMPLE);
  vi.stubEnv("NODE_ENV", "production");
  await promisify(execFile)("npm", ["run", "build"], { cwd: EXAMPLE, shell: process.platform === "win32" });
});

it("the documents show files of the example nextjs, and name the version of Next that runs it", async () => {
  const { dependencies } = JSON.parse(await textOf("package.json"));
  expect(await textOf("../../docs/INTEROP.md")).toContain(`next ${dependencies.next} `);
  const shown = await examplesOf("docs/guides/nextjs.md");
  expect(shown).toHaveLength(3);
  for (const { name, code } of shown) expect(await textOf(name.endsWith("x") ? `app/${name}` : name)).toBe(code);
});

it.each(["production", "development"])("the example nextjs, for %s, counts in all pages", async (mode) => {
  vi.stubEnv("NODE_ENV", mode);
  const server = new ExampleServer("nextjs/server.js");
  await withWindows(server, async (open) => {
    expect(await (await fetch(server.url)).text()).toContain('<p role="status">connecting</p>');
    const pages = [(await open()).page, (await open()).page] as const;
    const showAll = async (likes: number): Promise<void> => {
      for (const page of pages) await page.getByRole("button", { name: `Like (${likes})` }).waitFor();
    };
    const opened: string[] = [];
    pages[0].on("websocket", (socket) => opened.push(socket.url()));
    await pages[0].reload();
    await showAll(0);
    for (const [likes, page] of pages.entries()) {
      await page.getByRole("button", { name: "Like" }).click();
      await showAll(likes + 1);
    }
    expect(opened.filter((url) => url.endsWith("/rpc"))).toHaveLength(1);
    for (const page of pages) await page.close();
    expect(await server.stop()).toBe(0);
  });
});
