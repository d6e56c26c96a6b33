/**
 * Measures what a page loads. Run as a program, it measures the features, the stores, the hooks and the alternatives, writes the tables
 * into the documents, and prints the share of each module.
 */
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild-wasm";
import { format, resolveConfig } from "prettier";
import { build as buildByVite } from "vite";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const define = { "process.env.NODE_ENV": '"production"' };

/**
 * Returns the bytes of the module `code` with all that it imports: minified, and gzipped. `folder` is where its imports are
 * resolved. `target` is a target of esbuild, or `"vite"` for a build by Vite with its defaults. A page of Vite also holds 0.3 kB of
 * Vite's own, which are not counted. The imports of `external` are left out.
 */
export async function sizeOf(code, target = "es2022", folder = ROOT, external = []) {
  const bundle =
    target === "vite"
      ? await bundleByVite(code, folder, external)
      : (await bundleByEsbuild(code, target, folder, { external })).bytes;
  return { minified: bundle.length, gzip: gzipSync(bundle, { level: 9 }).length };
}

async function bundleByEsbuild(contents, target, resolveDir, options) {
  const { outputFiles, metafile } = await build({
    stdin: { contents, resolveDir },
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    platform: "browser",
    target,
    define,
    legalComments: "none",
    logLevel: "silent",
    metafile: true,
    ...options,
  });
  return { bytes: outputFiles[0].contents, metafile };
}

async function bundleByVite(code, root, external) {
  const entry = join(root, "size-entry.js");
  const { output } = await buildByVite({
    root,
    configFile: false,
    logLevel: "silent",
    plugins: [
      { name: "entry", resolveId: (id) => (id === entry ? id : null), load: (id) => (id === entry ? code : null) },
    ],
    build: {
      write: false,
      reportCompressedSize: false,
      rolldownOptions: { input: entry, external, preserveEntrySignatures: "strict" },
    },
  });
  return Buffer.from(output.map((chunk) => chunk.code).join(""));
}

/** Returns the minified bytes of each module in a bundle of `code`, the largest first. The modules of `src` are bundled, not those of `dist`. */
export async function sharesOf(code) {
  const require = createRequire(import.meta.url);
  const eventemitter3 = require
    .resolve("eventemitter3/package.json")
    .replace(/package\.json$/, "dist/eventemitter3.esm.js");
  const { metafile } = await bundleByEsbuild(code, "es2022", ROOT, { alias: { eventemitter3 }, absWorkingDir: ROOT });
  const [{ inputs }] = Object.values(metafile.outputs);
  const shares = Object.entries(inputs).map(([path, { bytesInOutput }]) => ({ path, bytes: bytesInOutput }));
  return shares.filter(({ bytes }) => bytes > 0).toSorted((a, b) => b.bytes - a.bytes);
}

/** What the table of sizes shows: a name, the code, and the folder in which its packages are installed. */
const ROWS = [
  ["`connect`", 'export { connect } from "./dist/index.js";', ROOT],
  ["with `streams`", 'export { connect, streams } from "./dist/index.js";', ROOT],
  ["with `progress`", 'export { connect, progress } from "./dist/index.js";', ROOT],
  ["with `batches`", 'export { connect, batches } from "./dist/index.js";', ROOT],
  ["with `live`", 'export { connect, live } from "./dist/index.js";', ROOT],
  ["with `renewal`", 'export { connect, renewal } from "./dist/index.js";', ROOT],
  ["with `schemas`", 'export { connect, schemas } from "./dist/index.js";', ROOT],
  ["with `compat`", 'export { connect, compat } from "./dist/index.js";', ROOT],
  ["with `bytes`", 'export { connect, bytes } from "./dist/index.js";', ROOT],
  ["with `contract`", 'export { connect, contract } from "./dist/index.js";', ROOT],
  [
    "with all of these",
    'export { connect, streams, progress, batches, live, renewal, schemas, compat, bytes, contract } from "./dist/index.js";',
    ROOT,
  ],
  ["`contract` alone", 'export { contract } from "./dist/index.js";', ROOT],
  ["`reciproc.min.js`", 'export * from "./dist/reciproc.min.js";', ROOT],
  ...[
    ["birpc", "createBirpc"],
    ["json-rpc-2.0", "JSONRPCServerAndClient"],
    ["rpc-websockets", "Client"],
    ["socket.io-client", "io"],
    ["vscode-ws-jsonrpc", "toSocket, WebSocketMessageReader, WebSocketMessageWriter, createWebSocketConnection"],
    ["capnweb", "newWebSocketRpcSession"],
  ].map(([name, exported]) => [name, `export { ${exported} } from "${name}";`, join(ROOT, "bench")]),
];
const TARGETS = ["es2022", "es2020", "vite"];

/**
 * The stores, the hooks and what tabs share, each with the imports of a page that has it at least. A hook contains its store, and is also
 * beside it. `createReciproc` has the hooks that are not here.
 */
export const ADDED = [
  ["follow", "connect"],
  ["mutation", "connect"],
  ["presence", "connect"],
  ["presence", "connect, follow"],
  ["createReciproc", "connect, streams"],
  ["useTopic", "connect, createReciproc"],
  ["useTopic", "connect, follow, createReciproc"],
  ["useMutation", "connect, createReciproc"],
  ["useMutation", "connect, mutation, createReciproc"],
  ["usePresence", "connect, createReciproc"],
  ["usePresence", "connect, presence, createReciproc"],
  ["useOthers", "connect, createReciproc"],
  ["useOthers", "connect, presence, createReciproc"],
  ["useMyPresence", "connect, createReciproc"],
  ["useMyPresence", "connect, presence, createReciproc"],
  ["openTab", "connect"],
  ["shareConnection", "connect"],
];

/** Returns the gzipped bytes that an import adds to a page with the imports `beside`. React is not counted. */
export async function addedBy(name, beside, target) {
  const sizes = [];
  for (const names of [beside, `${beside}, ${name}`]) {
    const lines = names.split(", ").map((one) => {
      const folder = /^(use|create)/.test(one) ? "react/" : /^(openTab|shareConnection)/.test(one) ? "tabs/" : "";
      return `export { ${one} } from "./dist/${folder}index.js";`;
    });
    sizes.push((await sizeOf(lines.join("\n"), target, ROOT, ["react"])).gzip);
  }
  return sizes[1] - sizes[0];
}

/** The file with the tables. Each has a line before it and after it. */
const DOCUMENT = join(ROOT, "docs/PERFORMANCE.md");

const write = (line) => process.stdout.write(`${line}\n`);
const cells = (...numbers) => numbers.map((number) => number.toLocaleString("en").padStart(9)).join("");

/** Measures the rows of a table, in kB of 1,000 bytes, prints it, and writes it into the document. A row is a name, and a function. */
async function show(name, title, rows) {
  const lines = [`| ${title} | es2022 | es2020 | Vite |`, "| --- | --: | --: | --: |"];
  for (const [label, measure] of rows) {
    const sizes = [];
    for (const target of TARGETS) sizes.push(((await measure(target)) / 1000).toFixed(1));
    lines.push(`| ${label} | ${sizes.join(" | ")} |`);
  }
  lines.forEach(write);
  const document = await readFile(DOCUMENT, "utf8");
  const [begin, end] = [`<!-- ${name}: begin -->`, `<!-- ${name}: end -->`];
  const [before, after] = [document.indexOf(begin) + begin.length, document.indexOf(end)];
  const text = `${document.slice(0, before)}\n\n${lines.join("\n")}\n\n${document.slice(after)}`;
  await writeFile(DOCUMENT, await format(text, { ...(await resolveConfig(DOCUMENT)), parser: "markdown" }));
}

async function print() {
  const all = ROWS.map(([name, code, folder]) => [name, async (target) => (await sizeOf(code, target, folder)).gzip]);
  await show("sizes", "gzipped, kB", all);
  const added = ADDED.map(([name, beside]) => [
    `\`${name}\` beside \`${beside}\``,
    (target) => addedBy(name, beside, target),
  ]);
  await show("added", "added, gzipped, kB", added);
  const code = 'export { connect } from "./src/index.ts";';
  const shares = await sharesOf(code);
  const { minified, gzip } = await sizeOf(code);
  write(`\nminified  gzipped (estimated by the share of the minified bytes)`);
  for (const { path, bytes } of shares)
    write(`${cells(bytes, Math.round((bytes * gzip) / minified)).slice(1)}  ${path}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await print();
