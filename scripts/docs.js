/** Builds the documentation site: `npm run docs`. With `--serve`, also serves it: `npm run docs -- --serve [--port N]`. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { llmsText } from "./llms.js";
import { ensurePackages } from "./packages.js";

const root = join(import.meta.dirname, "..");
const site = join(root, "site");
const source = join(site, ".build/source");
/** The documents of the root folder that are pages of the site. */
const ROOT_PAGES = { CHANGELOG: "changelog", CONTRIBUTING: "contributing", SECURITY: "reporting" };

const { values } = parseArgs({ options: { serve: { type: "boolean" }, port: { type: "string", default: "4173" } } });

await ensurePackages(site, () => print("Installing the tools of the site, once"));
await stage();
await generateTypes();
await run("vitepress/bin/vitepress.js", "build", site);
print(`The site is in ${join("site", ".build", "dist")}`);
if (values.serve) await run("vitepress/bin/vitepress.js", "preview", site, "--port", values.port);

/** Copies the documents into the source folder of VitePress, and makes the first page of README's first example. */
async function stage() {
  await rm(source, { recursive: true, force: true });
  await mkdir(join(source, "public"), { recursive: true });
  await cp(join(root, "docs"), source, { recursive: true });
  // A link between the two folders leads to a page of the site. Each page of the site has its contents beside the text.
  for (const name of await readdir(source))
    if (name.endsWith(".md"))
      await edit(name, (text) => withLinks(text, "../").replace(/^\*\*Contents:\*\* .*\n\n/m, ""));
  for (const [name, page] of Object.entries(ROOT_PAGES)) {
    const text = await readFile(join(root, `${name}.md`), "utf8");
    await writeFile(join(source, `${page}.md`), withLinks(text, "").replaceAll("](docs/", "]("));
  }
  const [example] = /^```js[\s\S]*?^```text[\s\S]*?^```$/m.exec(await readFile(join(root, "README.md"), "utf8"));
  await writeFile(join(source, "index.md"), `${await readFile(join(site, "index.md"), "utf8")}\n${example}\n`);
  await writeFile(join(source, "public/llms.txt"), await llmsText((document) => `/${document}.html`));
}

/** Returns a document whose links to files of the root folder, which is at `path`, lead to pages of the site. */
function withLinks(text, path) {
  const changed = text.replaceAll(`](${path}README.md)`, "](guides/getting-started.md)");
  return Object.entries(ROOT_PAGES).reduce(
    (all, [name, page]) => all.replaceAll(`](${path}${name}.md`, `](${page}.md`),
    changed,
  );
}

async function edit(name, change) {
  const path = join(source, name);
  await writeFile(path, change(await readFile(path, "utf8")));
}

/** Writes a page for each export of the package, from the doc comments of the sources. */
async function generateTypes() {
  const { name, exports } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const entries = Object.entries(exports).filter(([, { types }]) => types !== undefined);
  const sources = entries.map(([, { types }]) => types.replace("./dist/", "src/").replace(/\.d\.ts$/, ".ts"));
  const options = ["--options", join(site, "typedoc.json"), ...sources.flatMap((path) => ["--entryPoints", path])];
  await run("typedoc/bin/typedoc", ...options);
  // TypeDoc names a module by its file, and a user by its import.
  const imports = new Map(sources.map((path, i) => [moduleOf(path), entries[i][0].replace(".", name)]));
  for (const file of await readdir(join(source, "types"), { recursive: true })) {
    if (!file.endsWith(".md")) continue;
    await edit(join("types", file), (text) =>
      text
        .replace(/^# (\S+)$/m, (line, module) => (imports.has(module) ? `# ${imports.get(module)}` : line))
        .replace(/^- \[(\S+)\](?=\(\1\/index\.md\))/gm, (line, module) => `- [${imports.get(module) ?? module}]`)
        .replace(/^(\[Types\]\([^)]*\) \/ \[?)(\w+)(?=\]|$)/m, (line, types, module) =>
          imports.has(module) ? types + imports.get(module) : line,
        ),
    );
  }
}

/** Returns TypeDoc's name for the module of a source file. */
function moduleOf(path) {
  return path.replace(/^src\//, "").replace(/(\/index)?\.ts$/, "");
}

function print(line) {
  process.stdout.write(`${line}\n`);
}

/** Runs a command of a package of the site, and passes SIGINT and SIGTERM on to it. Ends this program if the command fails or is stopped. */
async function run(command, ...args) {
  const [name] = command.split("/");
  const folder = join(createRequire(join(site, "package.json")).resolve(`${name}/package.json`), "..");
  const path = join(folder, command.slice(name.length + 1));
  const child = spawn(process.execPath, [path, ...args], { cwd: root, stdio: "inherit" });
  let isStopped = false;
  const stop = (signal) => {
    isStopped = true;
    child.kill(signal);
  };
  process.on("SIGINT", stop).on("SIGTERM", stop);
  const [code] = await once(child, "exit");
  process.off("SIGINT", stop).off("SIGTERM", stop);
  if (isStopped) process.exit(0);
  if (code !== 0) process.exit(code ?? 1);
}
