/** The page and the modules it imports, from a fixed list of folders. */
import { readFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";

/** The first part of a path, and the folder behind it. The page's import map names the last three. */
const FOLDERS = new Map([
  ["", new URL("../page/", import.meta.url)],
  ["page", new URL("page/", import.meta.url)],
  ["reciproc", new URL("./", import.meta.resolve("reciproc"))],
  ["eventemitter3", new URL("dist/", import.meta.resolve("eventemitter3/package.json"))],
  ["nanoid", new URL("./", import.meta.resolve("nanoid/package.json"))],
]);

const TYPES = new Map([
  ["html", "text/html; charset=utf-8"],
  ["css", "text/css; charset=utf-8"],
  ["js", "text/javascript; charset=utf-8"],
]);

/** Folder, file and ending. No part of a path may begin with a dot, so none leads out of its folder. */
const PATH = /^\/(?:([a-z0-9]+)\/)?((?:[\w-][\w.-]*\/)*[\w-][\w.-]*\.(html|css|js))$/;

export async function serveFile({ url = "/" }: IncomingMessage, response: ServerResponse): Promise<void> {
  const [path] = url.split("?");
  const [, folder = "", file = "", ending = ""] = PATH.exec(path === "/" ? "/index.html" : path!) ?? [];
  const base = FOLDERS.get(folder);
  const body = base && file ? await readFile(new URL(file, base)).catch(() => undefined) : undefined;
  if (body === undefined) {
    response.writeHead(404, { "Content-Type": "text/plain" }).end("Not found\n");
    return;
  }
  const type = TYPES.get(ending)!;
  response.writeHead(200, { "Content-Type": type, "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff" });
  response.end(body);
}
