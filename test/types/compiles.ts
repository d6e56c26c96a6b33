/** What the types of the package promise, for each version of the compiler. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, it } from "vitest";
import { tsc } from "../readme/examples.js";

/** Each project with the files that it must compile, and those that it must not need. */
const projects: [rule: string, project: string, compiled: string[], unneeded: RegExp][] = [
  [
    "compiles every use that must compile, and none that must not",
    "tsconfig.json",
    ["app", "use", "contract", "jsonify", "bytes"].map((name) => `test/types/${name}.ts`),
    /$^/,
  ],
  [
    "needs neither types of Node or React nor a library newer than ES2020 for the entry of every runtime",
    "tsconfig.everywhere.json",
    ["dist/index.d.ts"],
    /@types\/(node|react)|lib\.es2022\.error\.d\.ts/,
  ],
  [
    "needs neither DOM types nor a library newer than ES2020 for the entry of Node",
    "tsconfig.node.json",
    ["dist/index.d.ts", "dist/node.d.ts"],
    /lib\.(dom|es2022\.error)\.d\.ts/,
  ],
];

/** Proves with a compiler, given by the path of its command, what a use of the types must and must not compile. */
export function itCompilesWith(compiler?: string): void {
  it.each(projects)("%s", async (_rule, project, compiled, unneeded) => {
    const output = await tsc(["-p", join(import.meta.dirname, project), "--listFiles"], compiler);
    expect(output).not.toContain("error TS");
    for (const name of compiled) expect(output).toContain(name);
    expect(output).not.toMatch(unneeded);
  });

  it("reports each mistake once, at its place, with a message that names it", async () => {
    const output = await tsc(["-p", join(import.meta.dirname, "tsconfig.wrong.json")], compiler);
    // The compiler explains some messages in indented lines below them. Older ones explain more.
    const isOld = compiler !== undefined;
    const errors = output.matchAll(/^\S+\((\d+),(\d+)\): error TS\d+: (.*(?:\n .*)*)/gm);
    const found = Array.from(errors, ([, line, column, message]) => {
      return { line: Number(line), column: Number(column), message, isExplained: isOld || message!.includes("\n") };
    });
    const lines = (await readFile(join(import.meta.dirname, "wrong.ts"), "utf8")).split("\n");
    const expected = lines.flatMap((text, i) => {
      const [, code, place, dots, essential] = /^(.*) \/\/ at `(.*?)`: (\.\.\. )?(.*)$/.exec(text) ?? [];
      if (code === undefined) return [];
      const message = expect.stringContaining(essential!) as string;
      return { line: i + 1, column: code.indexOf(place!) + 1, message, isExplained: isOld || dots !== undefined };
    });
    expect(found).toEqual(expected);
  });
}
