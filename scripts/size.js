/** Measures what a page loads. Run as a program, it prints the size of `connect` and the share of each module. */
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild-wasm";
import { build as buildByVite } from "vite";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const define = { "process.env.NODE_ENV": '"production"' };

/**
 * Returns the bytes of the module `code` with all that it imports: minified, and gzipped. `folder` is where its imports are
 * resolved. `target` is a target of esbuild, or `"vite"` for a build by Vite with its defaults. A page of Vite also holds 0.3 kB of
 * Vite's own, which are not counted. The imports of `external` are left out; esbuild alone supports this.
 */
export async function sizeOf(code, target = "es2022", folder = ROOT, external = []) {
  const bundle =
    target === "vite"
      ? await bundleByVite(code, folder)
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

async function bundleByVite(code, root) {
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
      rolldownOptions: { input: entry, preserveEntrySignatures: "strict" },
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

const write = (line) => process.stdout.write(`${line}\n`);
const cells = (...numbers) => numbers.map((number) => number.toLocaleString("en").padStart(9)).join("");

async function print() {
  write(`${"gzipped".padEnd(24)}   es2022   es2020     Vite`);
  const rows = [
    ["connect", 'export { connect } from "./dist/index.js";', ROOT],
    ["socket.io-client", 'export { io } from "socket.io-client";', join(ROOT, "bench")],
  ];
  for (const [name, code, folder] of rows) {
    const sizes = [];
    try {
      for (const target of ["es2022", "es2020", "vite"]) sizes.push((await sizeOf(code, target, folder)).gzip);
      write(name.padEnd(24) + cells(...sizes));
    } catch {
      write(`${name.padEnd(24)} not built or installed (\`npm run build\`, \`npm --prefix bench ci\`)`);
    }
  }
  const code = 'export { connect } from "./src/index.ts";';
  const shares = await sharesOf(code);
  const { minified, gzip } = await sizeOf(code);
  write(`\nminified  gzipped (estimated by the share of the minified bytes)`);
  for (const { path, bytes } of shares)
    write(`${cells(bytes, Math.round((bytes * gzip) / minified)).slice(1)}  ${path}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await print();
