/** Bundles modules with the built package and one version of React, and serves them as pages. */
import { createServer } from "node:http";
import { join } from "node:path";
import { build, type BuildOptions } from "esbuild-wasm";
import { listening } from "../support/network.js";

const ROOT = join(import.meta.dirname, "../..");

export type ReactVersion = 18 | 19;

/** Returns where a bundler finds the packages: one version of React, and the built package. */
function aliasesOf(version: ReactVersion): Record<string, string> {
  const packages = join(version === 18 ? import.meta.dirname : ROOT, "node_modules");
  return {
    react: join(packages, "react"),
    "react-dom": join(packages, "react-dom"),
    "@tanstack/react-query": join(packages, "@tanstack/react-query"),
    reciproc: join(ROOT, "dist/index.js"),
    "reciproc/react": join(ROOT, "dist/react/index.js"),
    "reciproc/tabs": join(ROOT, "dist/tabs/index.js"),
  };
}

/** Returns the code and the style of a module with all that it imports. By default, it is a page with React 19. */
export async function bundle(
  options: Partial<BuildOptions>,
  version: ReactVersion = 19,
): Promise<{ code: string; css: string }> {
  const { outputFiles } = await build({
    bundle: true,
    write: false,
    outdir: ROOT,
    format: "esm",
    platform: "browser",
    target: "es2022",
    jsx: "automatic",
    logLevel: "error",
    // The development build of React checks more, and its StrictMode mounts twice.
    define: { "process.env.NODE_ENV": '"development"' },
    loader: { ".ttf": "dataurl" },
    alias: aliasesOf(version),
    nodePaths: [join(ROOT, "test/interop/node_modules")],
    ...options,
  });
  const textOf = (ending: string): string =>
    Buffer.from(outputFiles!.find(({ path }) => path.endsWith(ending))?.contents ?? "").toString();
  return { code: textOf(".js"), css: textOf(".css") };
}

export type Site = Awaited<ReturnType<typeof startPage>>;

/** Serves a page that contains `html`, and runs the code, on a free port of this machine. `scripts`: further ones, by their path. */
export async function startPage(
  { code, css }: { code: string; css: string },
  html = "",
  scripts: Readonly<Record<string, string>> = {},
) {
  const page = `<!doctype html>
<link rel="icon" href="data:," />
<style>${css}</style>
${html}
<div id="root"></div>
<script type="module" src="/page.js"></script>`;
  const all: typeof scripts = { ...scripts, "/page.js": code };
  const http = createServer(({ url = "" }, response) => {
    if (url in all) response.setHeader("Content-Type", "text/javascript").end(all[url]);
    else response.setHeader("Content-Type", "text/html; charset=utf-8").end(page);
  });
  const { url, ...site } = await listening(http);
  return { url: url.replace("ws:", "http:"), close: () => void site[Symbol.asyncDispose]() };
}
