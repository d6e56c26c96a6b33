/** Serves the page and the modules that it imports, from a fixed list of folders. */
import { once } from "node:events";
import { STATUS_CODES, type IncomingMessage, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { basename, dirname } from "node:path";
import { fileURLToPath } from "node:url";
import send from "send";
import { manualPage } from "./manual.js";

/** The folders, by the first part of a path. The page's import map names the last three, and the modules. */
const FOLDERS = new Map([
  ["", new URL("../page/", import.meta.url)],
  ["page", new URL("page/", import.meta.url)],
  ["reciproc", new URL("./", import.meta.resolve("reciproc"))],
  ["eventemitter3", new URL("dist/", import.meta.resolve("eventemitter3/package.json"))],
  ["nanoid", new URL("./", import.meta.resolve("nanoid/package.json"))],
]);

/** Modules of one file each, by their import names. Only the editor loads them. */
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
    // This file is bundled with its dependencies.
    new URL(import.meta.resolve(name === "markdown-it" ? "markdown-it/browser" : name)),
  ]),
);

/** The pages, by their addresses. */
const PAGES = new Map([
  ["/", "/index.html"],
  ["/split", "/split.html"],
]);

/** Matches folder and file. No part may begin with a dot or contain an escape, so no path leads out of its folder. */
const PATH = /^\/(?:([a-z0-9]+)\/)?((?:[\w-][\w.-]*\/)*[\w-][\w.-]*\.(?:html|css|js|svg))$/;

/** Matches the pictures of the documents. */
const PICTURE = /^\/about\/docs\/([\w-]+\.(?:svg|webp))$/;

/** The newest response of each connection. */
const newest = new WeakMap<Socket, ServerResponse>();

/**
 * Sends the file that the URL names, or 404. Node dispatches pipelined requests all at once, and each open file holds up to
 * 128 KiB for a slow reader. Therefore a request waits until the one before it on its connection has its response.
 */
export async function serveFile(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { socket, url = "/" } = request;
  const previous = newest.get(socket);
  newest.set(socket, response);
  if (previous !== undefined && !previous.closed) await once(previous, "close");
  if (socket.destroyed) return;
  const path = url.split("?")[0]!;
  const manual = await manualPage(path);
  if (manual !== undefined) return void response.setHeader("Content-Type", "text/html; charset=utf-8").end(manual);
  const file = find(path);
  if (file === undefined) return refuse(response, 404);
  response.setHeader("Cache-Control", "no-cache");
  response.setHeader("X-Content-Type-Options", "nosniff");
  send(request, encodeURIComponent(file.name), { root: file.folder, acceptRanges: false, index: false })
    .on("error", ({ status }: { status: number }) => refuse(response, status))
    .pipe(response);
}

/** Returns the folder of a URL and the file's path inside it. */
function find(path: string): { folder: string; name: string } | undefined {
  const picture = PICTURE.exec(path);
  if (picture !== null) return { folder: fileURLToPath(new URL("../../docs/", import.meta.url)), name: picture[1]! };
  const module = MODULES.get(path);
  if (module !== undefined) {
    const file = fileURLToPath(module);
    return { folder: dirname(file), name: basename(file) };
  }
  const [, folder = "", name] = PATH.exec(PAGES.get(path) ?? path) ?? [];
  const base = FOLDERS.get(folder);
  return base && name ? { folder: fileURLToPath(base), name } : undefined;
}

/** Responds with a status. If a response has begun, resets it instead, so that the client sees that it is incomplete. */
function refuse(response: ServerResponse, status: number): void {
  if (response.headersSent) return void response.destroy();
  for (const name of response.getHeaderNames()) response.removeHeader(name);
  response.writeHead(status, { "Content-Type": "text/plain" }).end(`${STATUS_CODES[status]}\n`);
}
