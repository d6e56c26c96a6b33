/** Checks what the documents say about the project: its files, names, exports, examples and versions exist. */
import { access, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseSync } from "vite";
import { describe, expect, it } from "vitest";
import { llmsText } from "../../scripts/llms.js";

interface Package {
  version: string;
  scripts: Record<string, string>;
  engines: { node: string };
  exports: Record<string, string | { types: string }>;
}
const { version, scripts, engines, exports } = JSON.parse(await readFile("package.json", "utf8")) as Package;

it("llms.txt is what `node scripts/llms.js` writes", async () => {
  expect(await readFile("llms.txt", "utf8")).toBe(await llmsText());
});

it("llms.txt lists every document once, and no other file", async () => {
  const text = await readFile("llms.txt", "utf8");
  const links = [...text.matchAll(/^- \[[^\]]+\]\(([^)]+)\): \S/gm)].map(([, path]) => path!);
  const documents = (await readdir("docs", { recursive: true })).filter((name) => name.endsWith(".md"));
  expect(documents.length).toBeGreaterThan(30);
  const expected = documents.map((name) => `docs/${name.replaceAll("\\", "/")}`);
  expect(links).toHaveLength(new Set(links).size);
  expect(new Set(links)).toEqual(new Set([...expected, "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]));
});

it("the changelog begins with the version of the package", async () => {
  const [, newest] = /^## (\S+?),? /m.exec(await readFile("CHANGELOG.md", "utf8"))!;
  expect(newest).toBe(version);
});

it("the documents that install the package from a clone name the file that `npm pack` makes", async () => {
  const documents = ["docs/guides/getting-started.md", "docs/guides/react.md"];
  const texts = await Promise.all(documents.map((document) => readFile(document, "utf8")));
  for (const text of texts) {
    const files = text.match(/reciproc-[\d.]+\.tgz/g);
    expect(new Set(files)).toEqual(new Set([`reciproc-${version}.tgz`]));
  }
});

it("the policy on versions and the list of what a contributor needs name the supported Node", async () => {
  const [, oldest] = /^>=(\S+)$/.exec(engines.node)!;
  for (const document of ["docs/versions.md", "CONTRIBUTING.md"])
    expect(await readFile(document, "utf8")).toContain(oldest!);
});

it("CONTRIBUTING.md is one page, and names commands and folders that exist", async () => {
  const text = await readFile("CONTRIBUTING.md", "utf8");
  expect(text.split("\n").length).toBeLessThan(80);
  const commands = [...text.matchAll(/npm (?:run )?([a-z]+)/g)].map(([, name]) => name!);
  const known = new Set([...Object.keys(scripts), "ci"]);
  expect(commands.length).toBeGreaterThan(8);
  expect(commands.filter((name) => !known.has(name))).toEqual([]);
  const [, table] = text.split("## Where things are");
  const folders = [...table!.matchAll(/^\| (`[^|]+)\|/gm)].flatMap(([, cell]) => [...cell!.matchAll(/`(\w+)`/g)]);
  expect(folders.length).toBeGreaterThan(6);
  for (const [, folder] of folders) await access(folder!);
  for (const [, file] of text.matchAll(/npx vitest run (test\/[\w/.]+)/g)) await access(file!);
});

describe("ARCHITECTURE.md", async () => {
  const page = (await readFile("docs/ARCHITECTURE.md", "utf8")).replaceAll(/^```.*?^```/gms, "");
  const paths = (await readdir("src", { recursive: true })).filter((path) => path.endsWith(".ts"));
  const source = await Promise.all(paths.map((path) => readFile(join("src", path), "utf8")));
  const words = new Set(source.flatMap((text) => text.match(/#?\w+/g) ?? []));
  /** The names that are written as code, such as `Connection.send`. */
  const names = [...new Set([...page.matchAll(/`(#?[A-Za-z]\w*(?:\.#?\w+)*)`/g)].map(([, name]) => name!))];

  /** Returns whether a file of the source declares `owner`, and has a member of that name in it. */
  function has(owner: string, member: string): boolean {
    const declared = new RegExp(`(?:class|interface|type|const|function) ${owner}\\b`);
    const used = new RegExp(`^ {2}(?:(?!const|let)[a-z]+ )*${member}(?:[(<;]|[?!]?:| =)`, "m");
    return source.some((text) => declared.test(text) && used.test(text));
  }

  it("names members that their classes have", () => {
    const members = names.filter((name) => /^[A-Z]\w*\.#?[a-z]\w*$/.test(name));
    expect(members.length).toBeGreaterThan(30);
    expect(members.filter((name) => !has(...(name.split(".") as [string, string])))).toEqual([]);
  });

  it("names functions and types that the source has", () => {
    const simple = names.filter((name) => !name.includes(".") && /[a-z][A-Z]|^[A-Z][a-z]/.test(name));
    expect(simple.length).toBeGreaterThan(30);
    expect(simple.filter((name) => !words.has(name) && !(name in globalThis))).toEqual([]);
  });
});

/** Returns the names that a module exports by itself, types included. */
async function exportsOf(path: string): Promise<string[]> {
  const { program } = parseSync(path, await readFile(path, "utf8"));
  return program.body.flatMap((node) => {
    if (node.type !== "ExportNamedDeclaration") return [];
    const named = node.specifiers.map(({ exported }) => ("name" in exported ? exported.name : exported.value));
    const { declaration } = node;
    if (declaration === null) return named;
    const declared = "declarations" in declaration ? declaration.declarations : [declaration];
    return [...named, ...declared.flatMap(({ id }) => (id !== null && "name" in id ? [id.name] : []))];
  });
}

it("API.md names every export of the package", async () => {
  const entries = Object.values(exports).flatMap((entry) => (typeof entry === "string" ? [] : [entry.types]));
  const sources = entries.map((path) => path.replace("./dist/", "src/").replace(".d.ts", ".ts"));
  const names = (await Promise.all(sources.map(exportsOf))).flat();
  expect(new Set(names).size).toBeGreaterThan(60);
  const document = await readFile("docs/API.md", "utf8");
  expect(names.filter((name) => !document.includes(`\`${name}\``))).toEqual([]);
});

it("RELIABILITY.md names tests that exist", async () => {
  const text = await readFile("docs/RELIABILITY.md", "utf8");
  const named = [...text.matchAll(/`(test\/[^`]+\.test\.ts)`/g)].map(([, file]) => file!);
  expect(named.length).toBeGreaterThan(20);
  for (const file of named) await expect(access(file).then(() => file)).resolves.toBe(file);
});

describe("the examples", async () => {
  /** The test file that runs each example. */
  const TESTS: Record<string, string> = {
    "board-react": "test/browser/board-react.test.ts",
    chat: "test/browser/examples.test.ts",
    cursors: "test/browser/examples.test.ts",
    "language-server": "test/browser/examples.test.ts",
    "log-stream": "test/examples/log-stream.test.ts",
    "mcp-server": "test/interop/mcp/guide.test.ts",
    "three-nodes": "test/scaling/scaling.test.ts",
  };
  const entries = await readdir("examples", { withFileTypes: true });
  const folders = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);

  it("have a test each, and are in the list of README.md and of the documents", async () => {
    expect(new Set(Object.keys(TESTS))).toEqual(new Set(folders));
    for (const document of ["README.md", "docs/examples.md"]) {
      const text = await readFile(document, "utf8");
      expect(folders.filter((name) => !text.includes(`examples/${name}`))).toEqual([]);
    }
    for (const [name, test] of Object.entries(TESTS)) expect(await readFile(test, "utf8")).toContain(name);
  });

  it.each(folders)(
    "have a README of one page, which says how to start it, and whose links lead somewhere: %s",
    async (name) => {
      const text = await readFile(join("examples", name, "README.md"), "utf8");
      expect(text.startsWith(`# ${name}\n`)).toBe(true);
      expect(text.split("\n").length).toBeLessThan(60);
      expect(text).toContain("npm ci && npm run build");
      const links = [...text.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)].map(([, path]) => join("examples", name, path!));
      expect(links.length).toBeGreaterThan(1);
      for (const path of links) await access(path);
    },
  );
});

it("the lock file contains no URL, and no package with an install script", async () => {
  const { packages } = JSON.parse(await readFile("package-lock.json", "utf8")) as {
    packages: Record<string, { resolved?: string; hasInstallScript?: boolean }>;
  };
  const entries = Object.entries(packages);
  expect(entries.length).toBeGreaterThan(10);
  expect(entries.filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
  expect(entries.filter(([, { hasInstallScript }]) => hasInstallScript)).toEqual([]);
});
