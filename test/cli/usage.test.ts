import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { MAIN, run } from "./program.js";

describe("reciproc", () => {
  it("begins with the shebang line", async () => {
    expect(await readFile(MAIN, "utf8")).toMatch(/^#!\/usr\/bin\/env node\n/);
  });

  it("prints the version of the package", async () => {
    const { version } = JSON.parse(await readFile(new URL("../../package.json", import.meta.url), "utf8")) as {
      version: string;
    };
    expect(await run(["--version"])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  });

  it("lists its commands for --help, and as an error without arguments", async () => {
    const asked = await run(["--help"]);
    expect(asked).toMatchObject({ code: 0, stderr: "" });
    for (const name of ["serve", "call", "notify", "listen", "bridge"])
      expect(asked.stdout).toContain(`reciproc ${name} `);
    expect(await run([])).toEqual({ code: 64, stdout: "", stderr: asked.stdout });
  });

  it.each(["serve", "call", "notify", "listen", "bridge"])("explains %s", async (name) => {
    const { code, stdout, stderr } = await run([name, "--help"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(new RegExp(`^Usage: reciproc ${name} `));
    expect(stdout).toContain("Exit codes: 0 ");
    for (const line of stdout.split("\n")) expect(line.length).toBeLessThanOrEqual(120);
  });

  it.each([
    [["fly"], 'reciproc: unknown command "fly"; see `reciproc --help`\n'],
    [["--fly"], 'reciproc: unknown option "--fly"; options must follow the command; see `reciproc --help`\n'],
    [["call", "--fly"], 'reciproc call: unknown option "--fly"; see `reciproc call --help`\n'],
    [["bridge", "--", ""], "reciproc bridge: COMMAND is empty; see `reciproc bridge --help`\n"],
  ])("prints one line for %j and exits 64", async (argv, stderr: unknown) => {
    expect(await run(argv)).toEqual({ code: 64, stdout: "", stderr });
  });
});
