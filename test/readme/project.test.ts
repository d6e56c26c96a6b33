/** Checks the documents about the project: the list for language models, the changelog, and how to contribute. */
import { access, readdir, readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { llmsText } from "../../scripts/llms.js";

interface Package {
  version: string;
  scripts: Record<string, string>;
  engines: { node: string };
}
const { version, scripts, engines } = JSON.parse(await readFile("package.json", "utf8")) as Package;

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
