/** What a program or a page takes before it connects. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { sizeOf } from "../../scripts/size.js";
import { less } from "./metric.js";

const run = promisify(execFile);
const DIRECTORY = new URL("..", import.meta.url);

/** The time in which a new process imports the modules of a server and a client. */
const coldImport = {
  name: "import",
  title: "Import in a fresh process",
  metrics: [less("time", "ms")],
  absence: ({ imports }) => (imports === undefined ? "same package as above" : undefined),
  async runInParent({ imports }) {
    const specifiers = imports.map((specifier) =>
      specifier.startsWith(".") ? new URL(specifier, DIRECTORY).href : specifier,
    );
    const program = `
      const before = performance.now();
      ${specifiers.map((specifier) => `await import(${JSON.stringify(specifier)});`).join("\n")}
      process.stdout.write(String(performance.now() - before));
      process.exit();`;
    const { stdout } = await run(process.execPath, ["--input-type=module", "--eval", program], { cwd: DIRECTORY });
    return { time: Number(stdout) };
  },
};

/** The size of the client half in a page. */
const bundleSize = {
  name: "bundle",
  title: "Browser bundle",
  metrics: [
    less("gzip", "bytes gzipped, es2022"),
    less("gzip2020", "bytes gzipped, es2020"),
    less("gzipVite", "bytes gzipped, Vite"),
    less("minified", "bytes minified, es2022"),
  ],
  mostRounds: 1,
  absence: ({ browser }) => (browser === undefined ? "no package of its own in a browser" : undefined),
  async runInParent({ browser }) {
    const folder = fileURLToPath(DIRECTORY);
    const es2022 = await sizeOf(browser, "es2022", folder);
    const es2020 = await sizeOf(browser, "es2020", folder);
    const vite = await sizeOf(browser, "vite", folder);
    return { gzip: es2022.gzip, gzip2020: es2020.gzip, gzipVite: vite.gzip, minified: es2022.minified };
  },
};

export const starts = [coldImport, bundleSize];
