/** What `npm run demo` starts in a new clone, in which the packages of the language servers are not installed. */
import { execFileSync } from "node:child_process";
import { chmod, cp, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { expect, it } from "vitest";
import { leave, startDemo, visit } from "./demo.js";
import { goTo, ready, squiggles, textOf } from "./editor.js";

const ROOT = join(import.meta.dirname, "../..");

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
