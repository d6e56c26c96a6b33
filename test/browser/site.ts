/** A bare page that has imported the built package as a browser does, through an import map. */
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import type * as Entry from "../../src/index.js";

declare global {
  /** What the page imported: the browser entry, all of it. */
  var reciproc: typeof Entry;
}

/** Where a browser finds each package: the addresses for the import map, and the folders behind them. */
const PACKAGES = [
  { name: "reciproc", entry: "index.js", folder: "../../dist/" },
  { name: "eventemitter3", entry: "eventemitter3.esm.js", folder: "../../node_modules/eventemitter3/dist/" },
  { name: "nanoid", entry: "index.browser.js", folder: "../../node_modules/nanoid/" },
];

const PAGE = `<!doctype html>
<link rel="icon" href="data:," />
<script type="importmap">
  ${JSON.stringify({ imports: Object.fromEntries(PACKAGES.map(({ name, entry }) => [name, `/${name}/${entry}`])) })}
</script>
<script type="module">
  import * as reciproc from "reciproc";
  globalThis.reciproc = reciproc;
  document.title = "ready";
</script>`;

/** Serves the page and the packages on a free port of this machine. */
export async function startSite(): Promise<{ http: HttpServer; port: number }> {
  const http = createServer((request, response): void => {
    const [, name, file] = /^\/([a-z0-9]+)\/(.+\.js)$/.exec(request.url ?? "") ?? [];
    const folder = PACKAGES.find((one) => one.name === name)?.folder;
    if (folder === undefined) {
      response.setHeader("Content-Type", "text/html").end(PAGE);
      return;
    }
    const path = fileURLToPath(new URL(`${folder}${file}`, import.meta.url));
    void readFile(path).then(
      (body) => response.setHeader("Content-Type", "text/javascript").end(body),
      () => response.writeHead(404).end(),
    );
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  return { http, port: (http.address() as AddressInfo).port };
}
