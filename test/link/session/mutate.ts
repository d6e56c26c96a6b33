/** Makes the sources of the link, with one line changed, into modules of their own. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import ts from "typescript-5.9";
import type { Modules } from "./rig.js";

const SRC = fileURLToPath(new URL("../../../src/", import.meta.url));
/** What a link needs of the sources. */
const FOLDERS = ["core", "link"];

/** One change. `find` stands once in `file`, or the change is out of date. */
export interface Change {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
}

/** Builds mutants into a folder of the system's, which the caller removes. */
export class Mutator {
  readonly folder = mkdtempSync(join(tmpdir(), "reciproc-mutants-"));
  readonly #built = new Map<string, string>();
  #count = 0;

  constructor() {
    for (const folder of FOLDERS) {
      for (const name of readdirSync(join(SRC, folder)))
        this.#built.set(`${folder}/${name}`, build(read(folder, name)));
    }
  }

  /** The modules with `change` made, or as they are; `isOpen`: with everything that is private in them open to the test. */
  async modules(change?: Change, isOpen = false): Promise<Modules> {
    // Under that name, so that the test runner leaves them to Node, which is faster.
    const root = join(this.folder, "node_modules", String(++this.#count));
    for (const folder of FOLDERS) mkdirSync(join(root, folder), { recursive: true });
    for (const [path, built] of this.#built) {
      const text = change !== undefined && path === `link/${change.file}` ? build(mutate(change)) : built;
      writeFileSync(join(root, path.replace(/\.ts$/, ".js")), isOpen ? text.replace(/#(?=[a-z])/g, "_") : text);
    }
    writeFileSync(join(root, "package.json"), '{"type":"module"}');
    const load = async (file: string): Promise<any> => import(pathToFileURL(join(root, "link", file)).href);
    return { ...(await load("client.js")), ...(await load("sessions.js")) } as Modules;
  }
}

function read(folder: string, name: string): string {
  return readFileSync(join(SRC, folder, name), "utf8");
}

function mutate({ file, find, replace }: Change): string {
  const parts = read("link", file).split(find);
  if (parts.length !== 2)
    throw new Error(`${JSON.stringify(find)} stands ${parts.length - 1} times in ${file}, not once`);
  return parts.join(replace);
}

function build(text: string): string {
  const { ES2022: target } = ts.ScriptTarget;
  return ts.transpileModule(text, { compilerOptions: { target, module: ts.ModuleKind.ESNext } }).outputText;
}
