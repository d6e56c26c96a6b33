/** Older compilers: they accept the types of the package, and the examples of the documents as TypeScript. */
import { rename } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { clean, extract, folder, tsc } from "../readme/examples.js";
import { itCompilesWith } from "../types/compiles.js";

const FLAGS =
  "--noEmit --strict --exactOptionalPropertyTypes --skipLibCheck --target es2022 --module nodenext --types node --lib es2022,dom,dom.iterable,dom.asynciterable,esnext.disposable --listFiles";
/** Accepted errors: parameters and variables without a type, and values of an unknown type. */
const ALLOWED = /error TS(7005|7006|7031|7034|18046):/;

const examples: string[] = [];

beforeAll(async () => {
  for (const document of ["README.md", "docs/API.md", "docs/ARCHITECTURE.md"]) {
    for (const name of await extract(document)) {
      const file = join(folder, name.replace(/\.js$/, ".ts"));
      await rename(join(folder, name), file);
      examples.push(file);
    }
  }
});
afterAll(clean);

describe.each(["typescript-6", "typescript-5.9"])("%s", (name) => {
  const compiler = join(import.meta.dirname, "node_modules", name, "bin/tsc");
  itCompilesWith(compiler);

  it("compiles the examples of README.md, API.md and ARCHITECTURE.md", async () => {
    const alone = name === "typescript-5.9" ? [] : ["--ignoreConfig"];
    const lines = (await tsc([...alone, ...examples, ...FLAGS.split(" ")], compiler)).split("\n");
    expect(lines.filter((line) => /error TS/.test(line) && !ALLOWED.test(line))).toEqual([]);
    for (const file of examples) expect(lines.some((line) => line.endsWith(file))).toBe(true);
  });
});
