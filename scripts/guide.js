/**
 * Writes the application that a guide builds in steps: `node scripts/guide.js docs/guides/board.md ../board [STEP]`. The files are as they
 * are after that step, by default the last one.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** A block of code, whose first line is a comment that names its file, and the block of text after it. */
const BLOCK =
  /^```(diff|jsonc|js|tsx?|html|yaml|sh|nginx|caddy|haproxy)\n(?:\/\/|#|<!--) ([\w-]+(?:\.[\w-]+)+)(?: -->)?\n([\s\S]*?)^```$(?:\n\n^```text\n([\s\S]*?)^```$)?/gm;

export function blocksOf(markdown) {
  return [...markdown.matchAll(BLOCK)].map(([, language, name, code, output]) => ({
    language,
    name,
    code,
    output: output?.trimEnd().split("\n"),
  }));
}

export function filesOf(markdown) {
  const files = new Map();
  for (const { language, name, code } of blocksOf(markdown))
    files.set(name, language === "diff" ? changed(name, files.get(name), code) : code);
  return files;
}

export function stepsOf(markdown) {
  return [...markdown.matchAll(/^## Step \d+: (.*)$/gm)].map(({ 1: title, index }) => {
    const length = markdown.slice(index).search(/\n## /);
    return { title, text: markdown.slice(0, length === -1 ? undefined : index + length) };
  });
}

/** Returns a file with the changes of a `diff`, whose parts are separated by lines of `@@`. Each part fits in one place. */
function changed(name, code, diff) {
  return diff.split(/^@@\n/m).reduce((text, part) => {
    const lines = part.split("\n").slice(0, -1);
    const without = (sign) => lines.filter((line) => line[0] !== sign).map((line) => `${line.slice(1)}\n`);
    const [before, after] = [without("+").join(""), without("-").join("")];
    if (text?.split(before).length !== 2) throw new Error(`${name} must have this once:\n${before}`);
    return text.replace(before, () => after);
  }, code);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const [guide, folder, step] = process.argv.slice(2);
  const text = await readFile(guide, "utf8");
  const files = filesOf(step === undefined ? text : stepsOf(text)[step - 1].text);
  await mkdir(folder, { recursive: true });
  for (const [name, code] of files) await writeFile(join(folder, name), code);
}
