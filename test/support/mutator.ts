/** Makes the sources, with some of their lines changed, into modules of their own: what a test notices when a rule is gone. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { ensurePackages } from "./packages.js";

/** The part of the compiler that is used here. Its own types are missing until a test has installed it. */
interface TypeScript {
  transpileModule(text: string, options: { compilerOptions: object }): { outputText: string };
  ScriptTarget: { ES2022: number };
  ModuleKind: { ESNext: number };
}

const COMPILERS = join(import.meta.dirname, "../readme");
await ensurePackages(COMPILERS);
const ts = createRequire(`${COMPILERS}/`)("typescript-5.9") as TypeScript;
const SRC = fileURLToPath(new URL("../../src/", import.meta.url));
const PACKAGES = fileURLToPath(new URL("../../node_modules/", import.meta.url));

/** One change. `find` stands once in `path`, a file below `src`, or the change is out of date. */
export interface Change {
  readonly path: string;
  readonly find: string;
  readonly replace: string;
}

/** Loads one of the modules, by its path below `src`. */
export type Load = (path: string) => Promise<any>;

/** Builds mutants into a folder of the system's. */
export class Mutator implements Disposable {
  readonly #folder = mkdtempSync(join(tmpdir(), "reciproc-mutants-"));
  /** The sources as they are, built, by their path. */
  readonly #built = new Map<string, string>();
  #count = 0;

  /** `folders` of the sources, and single files; of `packages` they import from. */
  constructor(sources: readonly string[], packages: readonly string[] = []) {
    for (const path of sources.flatMap(filesOf)) this.#built.set(path, build(read(path)));
    mkdirSync(this.#packages);
    for (const name of packages) symlinkSync(join(PACKAGES, name), join(this.#packages, name));
  }

  /** Builds them with these changes made. `isOpen`: with everything that is private in them open to the test. */
  mutate(changes: readonly Change[], isOpen = false): Load {
    // Among packages, so that the test runner leaves them to Node, which is faster.
    const root = join(this.#packages, `mutant-${++this.#count}`);
    const changed = new Map<string, string>();
    for (const change of changes)
      changed.set(change.path, apply(change, changed.get(change.path) ?? read(change.path)));
    for (const [path, built] of this.#built) {
      const text = changed.get(path);
      const target = join(root, path.replace(/\.ts$/, ".js"));
      mkdirSync(dirname(target), { recursive: true });
      const module = text === undefined ? built : build(text);
      writeFileSync(target, isOpen ? opened(module) : module);
    }
    writeFileSync(join(root, "package.json"), '{"type":"module"}');
    return (path) => import(pathToFileURL(join(root, path.replace(/\.ts$/, ".js"))).href);
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }

  get #packages(): string {
    return join(this.#folder, "node_modules");
  }
}

function filesOf(source: string): string[] {
  if (source.endsWith(".ts")) return [source];
  const names = readdirSync(join(SRC, source), { recursive: true, encoding: "utf8" });
  return names.filter((name) => name.endsWith(".ts")).map((name) => `${source}/${name}`);
}

function read(path: string): string {
  return readFileSync(join(SRC, path), "utf8");
}

function apply({ path, find, replace }: Change, text: string): string {
  const parts = text.split(find);
  if (parts.length !== 2)
    throw new Error(`${JSON.stringify(find)} stands ${parts.length - 1} times in ${path}, not once`);
  return parts.join(replace);
}

/** With `_name` for each `#name`. */
function opened(text: string): string {
  return text.replace(/#(?=[a-z])/g, "_");
}

function build(text: string): string {
  const { ES2022: target } = ts.ScriptTarget;
  return ts.transpileModule(text, { compilerOptions: { target, module: ts.ModuleKind.ESNext } }).outputText;
}
