/** Copies the packages that a page loads into `dist/packages`, and makes `dist/core/packages.js` import the copies. */
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const dist = new URL("../dist/", import.meta.url);
const require = createRequire(import.meta.url);

/** The files of each package that its ES build for browsers consists of, the entry first, and its licence. */
const PACKAGES = {
  eventemitter3: ["dist/eventemitter3.esm.js", "LICENSE"],
  nanoid: ["index.browser.js", "url-alphabet/index.js", "LICENSE"],
};

const target = new URL("core/packages.js", dist);
let code = readFileSync(target, "utf8");
for (const [name, files] of Object.entries(PACKAGES)) {
  const installed = pathToFileURL(require.resolve(`${name}/package.json`));
  for (const file of files) cpSync(new URL(file, installed), new URL(`packages/${name}/${file}`, dist));
  code = code.replace(`from "${name}"`, `from "../packages/${name}/${files[0]}"`);
}
if (/from "[^.]/.test(code)) throw new Error(`${target.pathname} imports a package that is not copied:\n${code}`);
writeFileSync(target, code);
