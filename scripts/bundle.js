/**
 * Bundles what the compiler has put into `dist`: a file for each entry, and the chunks that the entries share. Each module is
 * in one chunk, so a class is the same whichever entries a program imports.
 */
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { rollup } from "@rollup/wasm-node";
import { build, transform } from "esbuild-wasm";

const dist = fileURLToPath(new URL("../dist", import.meta.url));
const require = createRequire(import.meta.url);

const ENTRIES = {
  page: "index.js",
  node: "node.js",
  react: "react/index.js",
  tabs: "tabs/index.js",
  bridge: "cli/parts.js",
  command: "cli/main.js",
  testing: "testing/index.js",
  redis: "redis/index.js",
  nats: "nats/index.js",
};
/** The packages that are imported where they are used. */
const EXTERNAL = new Set(["ws", "react", "@redis/client", "redis", "@nats-io/transport-node", "@nats-io/jetstream"]);

/**
 * The packages that a page loads, and the ES module of each. They are in the page's chunk: a page needs no import map for
 * them, and a bundler needs no plugin for CommonJS.
 */
const PACKAGES = { eventemitter3: "dist/eventemitter3.esm.js", nanoid: "index.browser.js" };

/**
 * What the chunks import as `#ws`: the package `ws`. Only Node gets it by `require`, as bundlers do not set the condition `node-addons`. If an
 * ES module imports `ws`, Node searches every file of `ws` for the names of its exports. This takes three quarters of the import.
 */
const WS = {
  "ws.cjs": `"use strict";
const ws = require("ws");
exports.Sender = ws.Sender;
exports.WebSocket = ws.WebSocket;
exports.WebSocketServer = ws.WebSocketServer;
`,
  "ws.js": `export * from "ws";\n`,
};

/** What Node's entry imports when there is an engine. */
const LAZY = join(dist, "fleet/fleet.js");

/** Whether a module is of a peer: its calls, and each feature. So is every module that imports one of these. */
const isOfPeer = (path) => path === join(dist, "peer/outgoing-calls.js") || dirname(path) === join(dist, "features");

const isCompiled = (path) => path.startsWith(dist + sep);
const folderOf = (name) => dirname(require.resolve(`${name}/package.json`));

/** Loads modules with their source maps, so that the map of a chunk leads to `src`. */
const loader = {
  name: "loader",
  resolveId: (specifier) => (specifier in PACKAGES ? join(folderOf(specifier), PACKAGES[specifier]) : undefined),
  load(path) {
    // The lines of a package are mapped to nothing: its sources are not published with this package.
    const map = isCompiled(path) ? JSON.parse(readFileSync(`${path}.map`, "utf8")) : { mappings: "" };
    return { code: readFileSync(path, "utf8"), map };
  },
  /** Drops the comments, a third of a chunk, which a program would read at each start. The declarations have them. */
  renderChunk: (code) => transform(code, { target: "esnext", charset: "utf8", legalComments: "none", sourcemap: true }),
};

/** Returns the modules that `path` imports, directly or not, and itself. */
function importsOf(path, getModuleInfo, found = new Set()) {
  if (found.has(path)) return found;
  found.add(path);
  for (const imported of getModuleInfo(path)?.importedIds ?? []) importsOf(imported, getModuleInfo, found);
  return found;
}

/**
 * Returns the name of a module's chunk: that of the first entry which imports the module. The exports of the page's entry that
 * need no peer, such as errors, are a chunk of their own: an application that imports only these does not load the page's chunk.
 * What a server in memory shares with one on Node is the chunk "server", which needs no Node. What a server loads only with an engine is
 * the chunk "fleet".
 */
function chunkOf(path, { getModuleInfo }) {
  const isImported = (by) => importsOf(by, getModuleInfo).has(path);
  const needsNoPeer = (exported) => {
    const modules = [...importsOf(exported, getModuleInfo)];
    return modules.every(isCompiled) && !modules.some(isOfPeer);
  };
  if (getModuleInfo(join(dist, ENTRIES.page)).importedIds.filter(needsNoPeer).some(isImported)) return "messages";
  const names = Object.keys(ENTRIES).filter((name) => isImported(join(dist, ENTRIES[name])));
  const isOfFleet = importsOf(LAZY, getModuleInfo).has(path);
  if (!names.includes("node") && (isOfFleet || (names.includes("redis") && names.includes("nats")))) return "fleet";
  if (names[0] !== "node") return names[0];
  return names.includes("testing") ? "server" : "node";
}

const bundle = await rollup({
  input: Object.fromEntries(Object.values(ENTRIES).map((entry) => [entry.replace(/\.js$/, ""), join(dist, entry)])),
  external: (specifier) => EXTERNAL.has(specifier) || specifier.startsWith("node:"),
  plugins: [loader],
  // The bundler of an application removes what it does not use.
  treeshake: false,
  preserveEntrySignatures: "strict",
  onLog(_level, { message }) {
    throw new Error(message);
  },
});
const { output } = await bundle.write({
  dir: dist,
  format: "es",
  manualChunks: chunkOf,
  entryFileNames: "[name].js",
  chunkFileNames: "chunks/[name].js",
  paths: { ws: "#ws" },
  minifyInternalExports: false,
  hoistTransitiveImports: false,
  sourcemap: true,
  sourcemapExcludeSources: true,
});
await bundle.close();

// The chunks replace these modules. The declarations stay, a file for each module.
const written = new Set(output.map(({ fileName }) => join(fileName)));
for (const file of readdirSync(dist, { recursive: true })) {
  if (/\.js(\.map)?$/.test(file) && !written.has(file)) rmSync(join(dist, file));
}
for (const [file, code] of Object.entries(WS)) writeFileSync(join(dist, file), code);

// One file for pages without a bundler: the page's entry with all that it imports.
await build({
  entryPoints: [join(dist, ENTRIES.page)],
  outfile: join(dist, "reciproc.min.js"),
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  banner: {
    js: "/* reciproc, with eventemitter3 and nanoid. All have the MIT license: see licenses/ and LICENSE in the package. */",
  },
  logLevel: "error",
});
for (const name in PACKAGES) cpSync(join(folderOf(name), "LICENSE"), join(dist, "licenses", `${name}.txt`));
