/** Bundles a module with one version of React and with the built package. */
import { join } from "node:path";
import { build } from "../package/bundlers.js";

/** The folder in which React 18 and 19 are installed. */
export const PACKAGES = join(import.meta.dirname, "node_modules");
const DIST = join(import.meta.dirname, "../../dist");

export type ReactVersion = 18 | 19;

/** Returns where a bundler finds the packages: one version of React, and the built package. */
export function aliasesOf(version: ReactVersion): Record<string, string> {
  const suffix = version === 18 ? "-18" : "";
  return {
    react: join(PACKAGES, `react${suffix}`),
    "react-dom": join(PACKAGES, `react-dom${suffix}`),
    "@tanstack/react-query": join(PACKAGES, "@tanstack/react-query"),
    reciproc: join(DIST, "index.js"),
    "reciproc/react": join(DIST, "react/index.js"),
  };
}

/** Returns the code of a module of `folder` with all that it imports, for a page. `contents` is TypeScript with JSX. */
export async function bundle(contents: string, folder: string, version: ReactVersion): Promise<string> {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: folder, loader: "tsx" },
    bundle: true,
    write: false,
    format: "esm",
    platform: "browser",
    target: "es2022",
    jsx: "automatic",
    logLevel: "error",
    // The development build of React checks more, and its StrictMode mounts twice.
    define: { "process.env.NODE_ENV": '"development"' },
    alias: aliasesOf(version),
  });
  return Buffer.from(outputFiles![0]!.contents).toString();
}
