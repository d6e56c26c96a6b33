/** What the client half weighs in a page. */
import { gzipSync } from "node:zlib";
import { build } from "esbuild-wasm";
import { fileURLToPath } from "node:url";
import { less } from "./metric.js";

export const bundleSize = {
  name: "bundle",
  title: "Browser bundle",
  metrics: [less("gzip", "bytes, minified and gzipped"), less("minified", "bytes, minified")],
  mostRounds: 1,
  absence: ({ browser }) => (browser === undefined ? "no package of its own in a browser" : undefined),
  async alone({ browser }) {
    const { outputFiles } = await build({
      stdin: { contents: browser, resolveDir: fileURLToPath(new URL("..", import.meta.url)) },
      bundle: true,
      minify: true,
      write: false,
      format: "esm",
      platform: "browser",
      target: "es2022",
      define: { "process.env.NODE_ENV": '"production"' },
      logLevel: "silent",
    });
    const [{ contents }] = outputFiles;
    return { gzip: gzipSync(contents, { level: 9 }).length, minified: contents.length };
  },
};
