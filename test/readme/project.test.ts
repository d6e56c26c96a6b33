/** Checks what the documents say about the project: its files, names, exports, examples and versions exist. */
import { existsSync } from "node:fs";
import { access, readdir, readFile } from "node:fs/promises";
import { Session } from "node:inspector/promises";
import { join } from "node:path";
import { parseSync } from "vite";
import { expect, it } from "vitest";
import { picture } from "../../scripts/picture.js";
import { llmsText } from "../../scripts/llms.js";
import { connect, serve } from "../../src/node.js";

interface Package {
  version: string;
  scripts: Record<string, string>;
  engines: { node: string };
  exports: Record<string, string | { types: string }>;
}
const textOf = (path: string): Promise<string> => readFile(path, "utf8");
const { version, scripts, engines, exports } = JSON.parse(await textOf("package.json")) as Package;

it("llms.txt is what `node scripts/llms.js` writes, and lists every document once, and no other file", async () => {
  const text = await textOf("llms.txt");
  expect(text).toBe(await llmsText());
  const links = [...text.matchAll(/^- \[[^\]]+\]\(([^)]+)\): \S/gm)].map(([, path]) => path!);
  const documents = (await readdir("docs", { recursive: true })).filter((name) => name.endsWith(".md"));
  expect(documents.length).toBeGreaterThan(30);
  const expected = documents.map((name) => `docs/${name.replaceAll("\\", "/")}`);
  expect(links).toHaveLength(new Set(links).size);
  expect(new Set(links)).toEqual(new Set([...expected, "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]));
});

it("the changelog, the file that `npm pack` makes and the policy on versions have the versions of the package", async () => {
  expect(/^## (\S+?),? /m.exec(await textOf("CHANGELOG.md"))![1]).toBe(version);
  for (const name of ["guides/getting-started", "guides/board", "guides/react", "SCALING"]) {
    const files = (await textOf(`docs/${name}.md`)).match(/reciproc-[\d.]+\.tgz/g);
    expect(new Set(files)).toEqual(new Set([`reciproc-${version}.tgz`]));
  }
  const oldest = engines.node.replace(">=", "");
  for (const document of ["docs/versions.md", "CONTRIBUTING.md"]) expect(await textOf(document)).toContain(oldest);
});

it("CONTRIBUTING.md is one page, and names commands and folders that exist", async () => {
  const text = await textOf("CONTRIBUTING.md");
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

it("ARCHITECTURE.md names members, functions and types that the source has", async () => {
  const page = (await textOf("docs/ARCHITECTURE.md")).replaceAll(/^```.*?^```/gms, "");
  const paths = (await readdir("src", { recursive: true })).filter((path) => path.endsWith(".ts"));
  const source = await Promise.all(paths.map((path) => textOf(join("src", path))));
  const words = new Set(source.flatMap((text) => text.match(/#?\w+/g) ?? []));
  /** The names that are written as code, such as `Connection.send`. */
  const names = [...new Set([...page.matchAll(/`(#?[A-Za-z]\w*(?:\.#?\w+)*)`/g)].map(([, name]) => name!))];
  /** Returns whether a file of the source declares the class, and has a member of that name in it. */
  const has = (name: string): boolean => {
    const [type, member] = name.split(".");
    const declared = new RegExp(`(?:class|interface|type|const|function) ${type}\\b`);
    const used = new RegExp(`^ {2}(?:(?!const|let)[a-z]+ )*${member}(?:[(<;]|[?!]?:| =)`, "m");
    return source.some((text) => declared.test(text) && used.test(text));
  };
  const members = names.filter((name) => /^[A-Z]\w*\.#?[a-z]\w*$/.test(name));
  expect(members.length).toBeGreaterThan(30);
  expect(members.filter((name) => !has(name))).toEqual([]);
  const simple = names.filter((name) => !name.includes(".") && /[a-z][A-Z]|^[A-Z][a-z]/.test(name));
  expect(simple.length).toBeGreaterThan(30);
  expect(simple.filter((name) => !words.has(name) && !(name in globalThis))).toEqual([]);
});

it("ARCHITECTURE.md lists functions that run for a call, a message and a lost socket", async () => {
  const profiler = new Session();
  profiler.connect();
  await profiler.post("Profiler.enable");
  await profiler.post("Profiler.startPreciseCoverage", { callCount: true });
  for (const link of ["plain", "packed"] as const) {
    await using server = await serve({ port: 0, link });
    server.on("peer", (peer, { socket }) => void peer.handle("lose", () => void socket.destroy()));
    await using peer = await connect(server.url);
    expect(await peer.request("lose").catch(() => "closed")).toBe(link === "plain" ? "closed" : null);
  }
  const ran = new Set<string>();
  for (const { url, functions } of (await profiler.post("Profiler.takePreciseCoverage")).result) {
    const [, path] = url.split(`${process.cwd()}/`);
    const types = path?.startsWith("src/") ? (await textOf(path)).match(/(?<=class )\w+/g) : null;
    for (const { functionName, ranges } of functions)
      if (ranges[0]!.count > 0) types?.forEach((type) => ran.add(`${type}.${functionName}`));
  }
  const [lists] = /^## The life of .*^## The ways in/ms.exec(await textOf("docs/ARCHITECTURE.md"))!;
  const names = lists.match(/^\d\. .*/gm)!.flatMap((item) => item.match(/[A-Z]\w+\.#?[a-z]\w*(?=`)/g) ?? []);
  expect(names.length).toBeGreaterThan(50);
  expect(names.filter((name) => !ran.has(name))).toEqual([]);
});

it("ARCHITECTURE.md has the picture that `node scripts/picture.js` draws of the present imports", async () => {
  expect(await textOf("docs/architecture.svg")).toBe(await picture());
});

async function exportsOf(path: string): Promise<string[]> {
  const { program } = parseSync(path, await textOf(path));
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
  const document = await textOf("docs/API.md");
  expect(names.filter((name) => !document.includes(`\`${name}\``))).toEqual([]);
});

it("RELIABILITY.md, and the last column of SECURITY.md, name tests that exist", async () => {
  const [reliability, security] = await Promise.all(
    ["RELIABILITY", "SECURITY"].map((name) => textOf(`docs/${name}.md`)),
  );
  const named = [...reliability!.matchAll(/`(test\/[^`]+\.test\.ts)`/g)].map(([, file]) => file!);
  expect(named.length).toBeGreaterThan(20);
  const cells = [...security!.matchAll(/\| (`[\w/-]+`(?:, `[\w/-]+`)*) +\|$/gm)].map(([, cell]) => cell!);
  const files = cells.flatMap((cell) => cell.replaceAll("`", "").split(", "));
  expect(files.length).toBeGreaterThan(60);
  for (const file of files) named.push(`test/${/\/|^conformance$/.test(file) ? "" : "attacks/"}${file}`);
  const found = named.filter((name) => existsSync(name) || existsSync(`${name}.ts`) || existsSync(`${name}.test.ts`));
  expect(found).toEqual(named);
});

it("the examples have a test each, are in the lists, and a README of one page says how to start each", async () => {
  const TESTS: Record<string, string> = {
    chat: "test/browser/examples.test.ts",
    cursors: "test/browser/examples.test.ts",
    "language-server": "test/browser/examples.test.ts",
    "log-stream": "test/examples/log-stream.test.ts",
    "mcp-server": "test/interop/mcp/guide.test.ts",
    nextjs: "test/browser/nextjs.test.ts",
    "three-nodes": "test/scaling/scaling.test.ts",
  };
  const entries = await readdir("examples", { withFileTypes: true });
  const folders = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  expect(new Set(Object.keys(TESTS))).toEqual(new Set(folders));
  const lists = await Promise.all(["README.md", "docs/examples.md"].map(textOf));
  for (const [name, test] of Object.entries(TESTS)) {
    for (const list of lists) expect(list).toContain(`examples/${name}`);
    expect(await textOf(test)).toContain(name);
    const text = await textOf(join("examples", name, "README.md"));
    expect(text.startsWith(`# ${name}\n`)).toBe(true);
    expect(text.split("\n").length).toBeLessThan(60);
    expect(text).toContain("npm ci && npm run build");
    const links = [...text.matchAll(/\]\(([^)#:]+)(?:#[^)]*)?\)/g)].map(([, path]) => join("examples", name, path!));
    expect(links.length).toBeGreaterThan(1);
    for (const path of links) await access(path);
  }
});

it("the lock file contains no URL, and no package with an install script", async () => {
  const { packages } = JSON.parse(await textOf("package-lock.json")) as {
    packages: Record<string, { resolved?: string; hasInstallScript?: boolean }>;
  };
  const entries = Object.entries(packages);
  expect(entries.length).toBeGreaterThan(10);
  expect(entries.filter(([, { resolved }]) => resolved !== undefined)).toEqual([]);
  expect(entries.filter(([, { hasInstallScript }]) => hasInstallScript)).toEqual([]);
});
