/** Serves the page of an example over HTTP, without a bundler: the files of its folder, and the package for the page's import map. */
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";

const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css" };
const PACKAGE = new URL("./", import.meta.resolve("reciproc"));

/**
 * Listens on port `PORT` of this machine, 3000 by default. `folder` is the URL of a folder with an `index.html`. `texts` has functions
 * by path, each of which returns the text at that path. Returns the HTTP server. `reciproc` handles its WebSocket upgrades: `serve({ server: http })`.
 */
export async function servePage(folder, texts = {}) {
  const http = createServer(async ({ url }, response) => {
    if (Object.hasOwn(texts, url)) return response.end(texts[url]());
    const path = url === "/" ? "index.html" : url.slice(1);
    // The names of all files that a page may load. None leads out of the two folders.
    const [, inPackage, file] = /^(reciproc\/)?((?:[\w-]+\/)*[\w-]+\.(?:html|js|css))$/.exec(path) ?? [];
    try {
      const body = await readFile(new URL(file, inPackage === undefined ? folder : PACKAGE));
      response.setHeader("Content-Type", TYPES[extname(file)]).end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  http.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
  await once(http, "listening");
  return http;
}
