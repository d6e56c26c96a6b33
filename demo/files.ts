/** The page and the modules it imports, from a fixed list of folders. */
import { readFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";

/** The first part of a path, and the folder behind it. The page's import map names the last three, and the modules. */
const FOLDERS = new Map([
  ["", new URL("../page/", import.meta.url)],
  ["page", new URL("page/", import.meta.url)],
  ["reciproc", new URL("./", import.meta.resolve("reciproc"))],
  ["eventemitter3", new URL("dist/", import.meta.resolve("eventemitter3/package.json"))],
  ["nanoid", new URL("./", import.meta.resolve("nanoid/package.json"))],
]);

/** Modules of one file each, under the name by which they import each other. Only the editor loads them. */
const MODULES = new Map(
  [
    "@codemirror/autocomplete",
    "@codemirror/collab",
    "@codemirror/commands",
    "@codemirror/lang-css",
    "@codemirror/lang-json",
    "@codemirror/language",
    "@codemirror/lint",
    "@codemirror/state",
    "@codemirror/streamparser",
    "@codemirror/view",
    "@lezer/common",
    "@lezer/css",
    "@lezer/highlight",
    "@lezer/json",
    "@lezer/lr",
    "@marijn/find-cluster-break",
    "crelt",
    "markdown-it",
    "style-mod",
    "w3c-keyname",
  ].map((name) => [
    `/modules/${name}`,
    // The one that brings along what it imports.
    new URL(import.meta.resolve(name === "markdown-it" ? "markdown-it/browser" : name)),
  ]),
);

const TYPES = new Map([
  ["html", "text/html; charset=utf-8"],
  ["css", "text/css; charset=utf-8"],
  ["js", "text/javascript; charset=utf-8"],
]);

/** Folder, file and ending. No part of a path may begin with a dot, so none leads out of its folder. */
const PATH = /^\/(?:([a-z0-9]+)\/)?((?:[\w-][\w.-]*\/)*[\w-][\w.-]*\.(html|css|js))$/;

export async function serveFile({ url = "/" }: IncomingMessage, response: ServerResponse): Promise<void> {
  const { file, ending } = find(url.split("?")[0]!);
  const body = file && (await readFile(file).catch(() => undefined));
  if (body === undefined) {
    response.writeHead(404, { "Content-Type": "text/plain" }).end("Not found\n");
    return;
  }
  const type = TYPES.get(ending)!;
  response.writeHead(200, { "Content-Type": type, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff" });
  response.end(body);
}

function find(path: string): { file: URL | undefined; ending: string } {
  const module = MODULES.get(path);
  if (module !== undefined) return { file: module, ending: "js" };
  const [, folder = "", file = "", ending = ""] = PATH.exec(path === "/" ? "/index.html" : path) ?? [];
  const base = FOLDERS.get(folder);
  return { file: base && file ? new URL(file, base) : undefined, ending };
}
