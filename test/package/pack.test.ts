import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { rollup, type Chunk } from "@rollup/wasm-node";
import { build } from "esbuild-wasm";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

/** The pictures of the demo, which only the repository has: together they have more bytes than everything in the package. */
const PICTURES = ["docs/demo-film.webp", "docs/demo-editor.webp"];

let project: string;
let packed: string[];
let packedBytes: number;

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), "reciproc-pack-"));
  // The package is already built. Building it here would remove files that concurrent tests use.
  const pack = ["pack", "--ignore-scripts", "--json", "--pack-destination", project];
  const { stdout } = await run("npm", pack, { cwd: root });
  const [tarball] = JSON.parse(stdout) as [{ filename: string; size: number; files: { path: string }[] }];
  packedBytes = tarball.size;
  packed = tarball.files.map(({ path }) => path);
  await writeFile(join(project, "package.json"), '{ "private": true, "type": "module" }');
  const { devDependencies } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
  const nodeTypes = `@types/node@${devDependencies["@types/node"]}`;
  const install = ["install", "--prefer-offline", "--no-audit", "--no-fund", `./${tarball.filename}`, nodeTypes];
  await run("npm", install, { cwd: project });
});

afterAll(() => rm(project, { recursive: true, force: true }));

async function printBy(program: string): Promise<string> {
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program], { cwd: project });
  return stdout;
}

const readPacked = (path: string): Promise<string> => readFile(join(project, "node_modules/reciproc", path), "utf8");

/** Returns the chunks that Rollup makes of files of the package, without a warning. */
async function bundled(...files: string[]): Promise<Chunk[]> {
  const bundle = await rollup({
    input: Object.fromEntries(files.map((file, i) => [`entry${i}`, join(project, "node_modules/reciproc", file)])),
    external: ["react"],
    onLog: (_level, { message }) => expect.fail(message),
  });
  const { output } = await bundle.generate({ format: "es" });
  await bundle.close();
  expect(output.map(({ type }) => type)).not.toContain("asset");
  return output;
}

describe("the published tarball", () => {
  it("contains only the code, its types and maps, the documents, and the licences of what it bundles", () => {
    for (const path of ["dist/index.js", "dist/index.d.ts", "dist/index.js.map", "src/index.ts", "LICENSE"]) {
      expect(packed).toContain(path);
    }
    const expected =
      /^(dist|src|docs)\/|^(package\.json|(CHANGELOG|CONTRIBUTING|README|SECURITY)\.md|llms\.txt|LICENSE)$/;
    expect(packed.filter((path) => !expected.test(path))).toEqual([]);
    const licences = packed.filter((path) => path.startsWith("dist/licenses/"));
    expect(new Set(licences)).toEqual(new Set(["dist/licenses/eventemitter3.txt", "dist/licenses/nanoid.txt"]));
    // The size at the last measurement, 1,180,245 bytes, plus 5 %.
    expect(packedBytes).toBeLessThan(1_239_000);
  });

  // The anchors are tested with the documentation site.
  it("contains the link targets and images of its documents, except the pictures of the demo", async () => {
    const lost = new Set<string>();
    for (const path of packed.filter((name) => name.endsWith(".md"))) {
      const text = (await readPacked(path)).replace(/^```[\s\S]*?^```|`[^`\n]*`/gm, "");
      for (const [, inText, inTag] of text.matchAll(/\]\(([^)#\s]+)|(?:src|href)="([^"#]+)"/g)) {
        const link = (inText ?? inTag)!;
        const target = posix.join(posix.dirname(path), link);
        if (!/^[a-z]+:/.test(link) && !packed.includes(target)) lost.add(target);
      }
    }
    expect(lost).toEqual(new Set(PICTURES));
  });

  it("runs from all entries, which have the same classes but for the peers of Node, with all features", async () => {
    const program = `
      import * as page from "reciproc";
      import * as node from "reciproc/node";
      import { testServer } from "reciproc/testing";
      console.log(Object.keys(page).filter((name) => page[name] !== node[name]).join());
      const server = await node.serve({ port: 0, methods: { twice: ([x]) => 2 * x } });
      const peer = await node.connect(server.url);
      const kit = testServer({ methods: { thrice: ([x]) => 3 * x } });
      const inMemory = await kit.connect(kit.server.url);
      console.log(await peer.request("twice", [21]), await inMemory.request("thrice", [7]));
      console.log(kit.server instanceof node.Server, inMemory instanceof page.Peer, inMemory instanceof node.Peer);
      for (const one of [peer, server, kit.server]) await one.close();`;
    expect(await printBy(program)).toBe("Peer,connect,open,pair\n42 21\ntrue true true\n");
  });

  it("has an entry for Node that requires `ws`, whose files Node then does not search for the names of their exports", async () => {
    const program = `
      import { createRequire } from "node:module";
      import "reciproc/node";
      const files = Object.keys(createRequire(import.meta.url).cache);
      console.log(files.filter((file) => /\\bws.index\\.js$/.test(file)).length);`;
    expect(await printBy(program)).toBe("1\n");
  });

  it.each([
    ["with `ws`", "cjs", "with-ws.cjs", [], undefined],
    ["as an ES module that imports `ws`", "esm", "without-ws.mjs", ["ws"], undefined],
    ["as such a module by conditions of its own", "esm", "conditions.mjs", ["ws"], ["custom"]],
  ] as const)("has an entry for Node that esbuild bundles %s", async (_what, format, file, external, conditions) => {
    const contents = `
      import { connect, serve } from "reciproc/node";
      void serve({ port: 0, methods: { twice: ([x]) => 2 * x } }).then(async (server) => {
        const peer = await connect(server.url);
        console.log(await peer.request("twice", [21]));
        await peer.close();
        await server.close();
      });`;
    const outfile = join(project, file);
    const stdin = { contents, resolveDir: project };
    const options = { format, external: [...external], conditions: conditions && [...conditions] };
    await build({ ...options, stdin, outfile, bundle: true, platform: "node", logLevel: "error" });
    expect(/ from "ws"/.test(await readFile(outfile, "utf8"))).toBe(external.length > 0);
    const { stdout } = await run(process.execPath, [outfile], { cwd: project });
    expect(stdout).toBe("42\n");
  });

  it("has an entry for pages that Rollup bundles without any plugin, and that imports no other package", async () => {
    const [page, ...others] = await bundled("dist/index.js");
    expect(others).toEqual([]);
    expect(page!.imports).toEqual([]);
    await writeFile(join(project, "page.js"), page!.code);
    const program = `
      import { pair } from "./page.js";
      const [a, b] = pair({ methods: { add: ([x, y]) => x + y } }, {});
      console.log(await b.request("add", [1, 2]), a.id.length);`;
    expect(await printBy(program)).toBe("3 21\n");
  });

  it("has an entry for pages that Parcel bundles with its defaults, which ignore `exports`", async () => {
    await ensurePackages(import.meta.dirname);
    const folder = join(project, "parcel");
    await mkdir(folder);
    await writeFile(join(folder, "index.html"), '<!doctype html><script type="module" src="page.js"></script>');
    const page = `
      import { pair } from "reciproc";
      const [, b] = pair({ methods: { add: ([x, y]) => x + y } }, {});
      console.log(await b.request("add", [1, 2]));`;
    await writeFile(join(folder, "page.js"), page);
    const parcel = join(import.meta.dirname, "node_modules/parcel/lib/bin.js");
    await run(process.execPath, [parcel, "build", "index.html", "--no-cache", "--dist-dir", "dist"], { cwd: folder });
    const built = join(folder, "dist");
    const [script] = (await readdir(built)).filter((name) => name.endsWith(".js"));
    const { stdout } = await run(process.execPath, [join(built, script!)], { cwd: folder });
    expect(stdout).toBe("3\n");
  });

  it("has one minified file for import maps and script tags, with every export of the entry for pages", async () => {
    const [page, ...others] = await bundled("dist/reciproc.min.js");
    expect([others, page!.imports]).toEqual([[], []]);
    const program = `
      import * as entry from "reciproc";
      import * as one from "./node_modules/reciproc/dist/reciproc.min.js";
      const [, b] = one.pair({ methods: { add: ([x, y]) => x + y } }, {});
      console.log(await b.request("add", [1, 2]), String(Object.keys(one)) === String(Object.keys(entry)));`;
    expect(await printBy(program)).toBe("3 true\n");
  });

  it("has an entry for React that imports React, and shares every class with the others", async () => {
    const output = await bundled("dist/index.js", "dist/react/index.js");
    const importing = output.filter(({ imports }) => imports.includes("react"));
    expect(importing.map(({ code }) => code.includes("createReciproc"))).toEqual([true]);
    expect(output.filter(({ code }) => /\bclass Peer\b/.test(code))).toHaveLength(1);
  });

  it("installs neither React nor the client of a broker", async () => {
    const installed = await readdir(join(project, "node_modules"));
    // The types of Node are the test's.
    const others = installed.filter((name) => !/^\.|^(@types|undici-types)$/.test(name));
    expect(others).toEqual(["eventemitter3", "nanoid", "reciproc", "ws"]);
    expect(await readdir(join(project, "node_modules/@types"))).toEqual(["node"]);
  });

  it.each([
    ["Redis", "redis", 'url: "redis://127.0.0.1:1"', "@redis/client"],
    ["NATS", "nats", 'url: "nats://127.0.0.1:1", jetstream: {}', "@nats-io/transport-node"],
  ])("has an entry for %s that starts nothing, and names the missing package", async (_, entry, options, missing) => {
    const program = `
        import { EngineError, ${entry} } from "reciproc/${entry}";
        const engine = ${entry}({ ${options} });
        const host = { received() {}, up() {}, down() {}, resubscribed() {} };
        const error = await engine.createConnection("node", host).open().catch((error) => error);
        console.log(error instanceof EngineError, error.outcome, error.message.includes("${missing}"));`;
    expect(await printBy(program)).toBe("true not-sent true\n");
  });

  it("uses the package `redis` for Redis if `@redis/client` is not there", async () => {
    const folder = join(project, "node_modules/redis");
    await mkdir(folder);
    await writeFile(join(folder, "package.json"), '{ "name": "redis", "type": "module", "exports": "./index.js" }');
    // A class by which version 6 is recognized.
    const source = 'export class RedisClient {} export function createClient() { throw new Error("it is found"); }';
    await writeFile(join(folder, "index.js"), source);
    const program = `
      import { redis } from "reciproc/redis";
      const down = (error) => (console.log(error.message), connection.close());
      const host = { received() {}, up() {}, down, resubscribed() {} };
      const connection = redis({ url: "redis://127.0.0.1:1" }).createConnection("node", host);
      await connection.open().catch((error) => console.log(error.outcome));`;
    const stdout = await printBy(program);
    await rm(folder, { recursive: true });
    expect(stdout).toBe("Redis at 127.0.0.1:1: it is found\nnot-sent\n");
  });

  it("has source maps and declaration maps that lead to files of the package", async () => {
    const maps = packed.filter((path) => path.endsWith(".map"));
    expect(maps).toEqual(expect.arrayContaining(["dist/index.d.ts.map", "dist/index.js.map"]));
    for (const path of maps) {
      const { sources } = JSON.parse(await readPacked(path)) as { sources: string[] };
      const files = sources.map((source) => posix.join(posix.dirname(path), source));
      expect(files.filter((file) => !packed.includes(file) && !file.startsWith("node_modules/"))).toEqual([]);
    }
  });

  it("installs a command that runs", async () => {
    const { version } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    const { stdout } = await run("npx", ["--no-install", "reciproc", "--version"], { cwd: project });
    expect(stdout).toContain(version);
  });

  it.each([
    ["nodenext", "NodeNext"],
    ["bundler", "ESNext"],
  ])("type-checks with %s resolution", async (moduleResolution, module) => {
    await writeFile(
      join(project, "use.ts"),
      `import { connect } from "reciproc";
       import { nats } from "reciproc/nats";
       import { serve } from "reciproc/node";
       import { redis } from "reciproc/redis";
       import { testServer } from "reciproc/testing";
       interface Api { add(params: [a: number, b: number]): number }
       const server = await serve<Api>({ port: 0, methods: { add: ([a, b]) => a + b } });
       const peer = await connect<Api>(server.url);
       // @ts-expect-error the types exist
       await peer.request("add", ["1", 2]);
       // An engine of one entry fits the other entries.
       for (const engine of [nats({ url: "nats://127.0.0.1" }), redis({ url: "redis://127.0.0.1" })])
         testServer<Api>({ engine, methods: { add: () => 1 } });`,
    );
    const checks = { strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false };
    const compilerOptions = { ...checks, noEmit: true, target: "ES2022", types: ["node"], module, moduleResolution };
    await writeFile(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["use.ts"] }));
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    const { stdout } = await run(process.execPath, [tsc, "-p", "."], { cwd: project });
    expect(stdout).toBe("");
  });
});
