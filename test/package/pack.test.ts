import { execFile } from "node:child_process";
import { access, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import MarkdownIt from "markdown-it";
import { rollup } from "@rollup/wasm-node";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";

const run = promisify(execFile);
const root = fileURLToPath(new URL("../..", import.meta.url));

/** The pictures of the demo, which only the repository has: together they have more bytes than everything in the package. */
const PICTURES = ["docs/demo-film.webp", "docs/demo-editor.webp"];

/** An empty user project with the published tarball installed. */
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

/** Returns the output of a module that runs in the project. */
async function printBy(program: string): Promise<string> {
  const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program], { cwd: project });
  return stdout;
}

/** The links and pictures of a document in the tarball, and the anchors of its headings. */
async function readPage(path: string): Promise<{ links: string[]; anchors: Set<string> }> {
  const text = await readFile(join(project, "node_modules/reciproc", path), "utf8");
  const tokens = new MarkdownIt({ html: true }).parse(text, {});
  const links = tokens
    .flatMap(({ children }) => children ?? [])
    .flatMap((token) => token.attrGet("href") ?? token.attrGet("src") ?? [])
    .map(String);
  const headings = tokens.flatMap((token, i) => (token.type === "heading_open" ? tokens[i + 1]!.content : []));
  return { links, anchors: new Set(headings.map(anchorOf)) };
}

/** Returns the anchor that GitHub generates for a heading. */
function anchorOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replaceAll(" ", "-");
}

describe("the published tarball", () => {
  it("contains only the code, its types and maps, and the files they refer to", () => {
    for (const path of ["dist/index.js", "dist/index.d.ts", "dist/index.js.map", "src/index.ts", "LICENSE"]) {
      expect(packed).toContain(path);
    }
    expect(
      packed.filter(
        (path) =>
          !/^(dist|src|docs)\/|^(package\.json|(CHANGELOG|CONTRIBUTING|README|SECURITY)\.md|llms\.txt|LICENSE)$/.test(
            path,
          ),
      ),
    ).toEqual([]);
  });

  // The size at the last measurement, 1,122,024 bytes, plus 5 %.
  it("is smaller than 1,178,000 bytes", () => {
    expect(packedBytes).toBeLessThan(1_178_000);
  });

  it("contains the link targets and images of its documents, except the pictures of the demo", async () => {
    const documents = packed.filter((path) => path.endsWith(".md"));
    const pages = new Map(await Promise.all(documents.map(async (path) => [path, await readPage(path)] as const)));
    const lost: string[] = [];
    let links = 0;
    for (const [path, page] of pages) {
      for (const link of page.links) {
        if (/^[a-z]+:/.test(link) || PICTURES.includes(link)) continue;
        links++;
        const [file = "", anchor] = link.split("#");
        const target = file === "" ? path : posix.join(posix.dirname(path), file);
        const isThere = packed.includes(target) && (anchor === undefined || pages.get(target)?.anchors.has(anchor));
        if (isThere !== true) lost.push(`${path}: ${link}`);
      }
    }
    expect(links).toBeGreaterThan(40);
    expect(lost).toEqual([]);
    expect(pages.get("README.md")!.links).toEqual(expect.arrayContaining(PICTURES));
    expect(packed.filter((path) => PICTURES.includes(path))).toEqual([]);
  });

  it("runs from all entries", async () => {
    const program = `
      import { pair } from "reciproc";
      import { connect, serve } from "reciproc/node";
      import { testServer } from "reciproc/testing";
      const [, b] = pair({ methods: { add: ([x, y]) => x + y } }, {});
      const server = await serve({ port: 0, methods: { twice: ([x]) => 2 * x } });
      const peer = await connect(server.url);
      console.log(await b.request("add", [1, 2]), await peer.request("twice", [21]));
      await peer.close();
      await server.close();
      const kit = testServer({ methods: { thrice: ([x]) => 3 * x } });
      console.log(await (await kit.connect(kit.server.url)).request("thrice", [7]));
      await kit.server.close();`;
    expect(await printBy(program)).toBe("3 42\n21\n");
  });

  it("has an entry for pages that Rollup bundles without any plugin, and that imports no other package", async () => {
    const warnings: string[] = [];
    const bundle = await rollup({
      input: join(project, "node_modules/reciproc/dist/index.js"),
      onLog: (_level, { message }) => warnings.push(message),
    });
    const { output } = await bundle.generate({ format: "es" });
    await bundle.close();
    expect(warnings).toEqual([]);
    expect(output.map(({ type }) => type)).toEqual(["chunk"]);
    expect(output[0].imports).toEqual([]);
    expect(output[0].code).not.toContain("createReciproc");
    await writeFile(join(project, "page.js"), output[0].code);
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
    const file = join(project, "node_modules/reciproc/dist/reciproc.min.js");
    const bundle = await rollup({ input: file, onLog: (_level, { message }) => expect.fail(message) });
    const { output } = await bundle.generate({ format: "es" });
    await bundle.close();
    expect(output.map(({ type }) => type)).toEqual(["chunk"]);
    expect(output[0].imports).toEqual([]);
    expect(gzipSync(await readFile(file)).length).toBeLessThan(35_000);
    const program = `
      import * as entry from "reciproc";
      import * as one from "./node_modules/reciproc/dist/reciproc.min.js";
      const [, b] = one.pair({ methods: { add: ([x, y]) => x + y } }, {});
      console.log(await b.request("add", [1, 2]), String(Object.keys(one)) === String(Object.keys(entry)));`;
    expect(await printBy(program)).toBe("3 true\n");
  });

  it("has an entry for React that imports React, and shares every class with the others", async () => {
    const bundle = await rollup({
      input: {
        page: join(project, "node_modules/reciproc/dist/index.js"),
        react: join(project, "node_modules/reciproc/dist/react/index.js"),
      },
      external: ["react"],
      onLog: (_level, { message }) => expect.fail(message),
    });
    const { output } = await bundle.generate({ format: "es" });
    await bundle.close();
    const importing = output.filter(({ imports }) => imports.includes("react"));
    expect(importing.map(({ code }) => code.includes("createReciproc"))).toEqual([true]);
    expect(output.filter(({ code }) => /\bclass Peer\b/.test(code))).toHaveLength(1);
  });

  it("installs neither React nor the client of a broker", async () => {
    for (const name of ["react", "@types/react", "redis", "@redis/client", "@nats-io"]) {
      const found = access(join(project, "node_modules", name));
      await expect(found).rejects.toMatchObject({ code: "ENOENT" });
    }
  });

  it.each([
    ["Redis", "redis", 'url: "redis://127.0.0.1:1"', "`redis` or `@redis/client`, version 6,"],
    ["NATS", "nats", 'url: "nats://127.0.0.1:1", jetstream: {}', "`@nats-io/transport-node`, version 3,"],
  ])(
    "has an entry for %s that starts nothing, and names the missing package when a server connects",
    async (_, entry, options, missing) => {
      const program = `
        import { EngineError, ${entry} } from "reciproc/${entry}";
        const engine = ${entry}({ ${options} });
        const host = { received() {}, up() {}, down() {}, heard() {} };
        const error = await engine.createConnection("node", host).open().catch((error) => error);
        console.log(error instanceof EngineError, error.outcome, error.message);`;
      expect(await printBy(program)).toBe(`true not-sent the package ${missing} is not installed\n`);
    },
  );

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
      const host = { received() {}, up() {}, down, heard() {} };
      const connection = redis({ url: "redis://127.0.0.1:1" }).createConnection("node", host);
      await connection.open().catch((error) => console.log(error.outcome));`;
    const stdout = await printBy(program);
    await rm(folder, { recursive: true });
    expect(stdout).toBe("Redis at 127.0.0.1:1: it is found\nnot-sent\n");
  });

  it("contains the licences of the bundled packages", () => {
    const licences = packed.filter((path) => path.startsWith("dist/licenses/"));
    expect(new Set(licences)).toEqual(new Set(["dist/licenses/eventemitter3.txt", "dist/licenses/nanoid.txt"]));
  });

  it("has the same classes in all entries", async () => {
    const program = `
      import * as page from "reciproc";
      import * as node from "reciproc/node";
      const isShared = (name) => page[name] === node[name];
      console.log(Object.keys(page).filter((name) => !isShared(name)).join());
      console.log(typeof page.Peer, typeof page.RpcError);
      const { testServer } = await import("reciproc/testing");
      const { server, connect } = testServer({});
      console.log(server instanceof node.Server, (await connect(server.url)) instanceof page.Peer);
      await server.close();`;
    expect(await printBy(program)).toBe("connect,open\nfunction function\ntrue true\n");
  });

  it("has source maps by which a stack names the lines of `src`", async () => {
    const program = `
      import { RpcError } from "reciproc";
      try {
        new RpcError("1", "");
      } catch (error) {
        console.log(error.stack);
      }`;
    const flags = ["--enable-source-maps", "--input-type=module", "--eval", program];
    const { stdout } = await run(process.execPath, flags, { cwd: project });
    const [, file, line] = /new RpcError \(.*\/reciproc\/(src\/[^:]+):(\d+):/.exec(stdout) ?? [];
    expect(packed).toContain(file);
    const source = await readFile(join(project, "node_modules/reciproc", file!), "utf8");
    expect(source.split("\n")[Number(line) - 1]).toContain("checkError(code, message)");
  });

  it("has declaration maps that point to `src`", async () => {
    const maps = packed.filter((path) => path.endsWith(".d.ts.map"));
    expect(maps).toContain("dist/index.d.ts.map");
    for (const path of maps) {
      const { sources } = JSON.parse(await readFile(join(project, "node_modules/reciproc", path), "utf8")) as {
        sources: string[];
      };
      expect(packed).toContain(posix.join(posix.dirname(path), sources[0]!));
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
      `import { connect as connectAnywhere, RpcError } from "reciproc";
       import { nats, type NatsOptions } from "reciproc/nats";
       import { serve, type Server } from "reciproc/node";
       import { redis } from "reciproc/redis";
       import { testServer } from "reciproc/testing";
       interface Api { add(params: [a: number, b: number]): number }
       export const server: Server<Api> = await serve<Api>({ port: 0, methods: { add: ([a, b]) => a + b } });
       const peer = await connectAnywhere<Api>(server.url);
       export const sum: number = await peer.request("add", [1, 2]);
       // @ts-expect-error the types exist
       await peer.request("add", ["1", 2]);
       export const kit = testServer<Api>({ methods: {} });
       const options: NatsOptions = { url: "nats://127.0.0.1", jetstream: { replicas: 3 } };
       // An engine of one entry fits the other entries.
       for (const engine of [nats(options), redis({ url: "redis://127.0.0.1" })]) testServer<Api>({ engine, methods: {} });
       export const error = new RpcError(1, "");`,
    );
    const checks = { strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false };
    const compilerOptions = { ...checks, noEmit: true, target: "ES2022", types: ["node"], module, moduleResolution };
    await writeFile(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["use.ts"] }));
    const tsc = join(root, "node_modules/typescript/bin/tsc");
    const { stdout } = await run(process.execPath, [tsc, "-p", "."], { cwd: project });
    expect(stdout).toBe("");
  });
});
