/** A bare page that has imported the built package as a browser does, through an import map. */
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer, type Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll } from "vitest";
import type * as Entry from "../../src/index.js";
import { newPage } from "./browser.js";

declare global {
  /** The whole browser entry, imported by the page. */
  var reciproc: typeof Entry;
}

const PAGE = `<!doctype html>
<link rel="icon" href="data:," />
<script type="importmap">
  { "imports": { "reciproc": "/reciproc/index.js" } }
</script>
<script type="module">
  import * as reciproc from "reciproc";
  globalThis.reciproc = reciproc;
  document.title = "ready";
</script>`;

/** Serves the page and the package on a free port of this machine. */
export async function startSite(): Promise<{ http: HttpServer; port: number }> {
  const http = createServer((request, response): void => {
    const [, file] = /^\/reciproc\/(.+\.js)$/.exec(request.url ?? "") ?? [];
    if (file === undefined) {
      response.setHeader("Content-Type", "text/html").end(PAGE);
      return;
    }
    const path = fileURLToPath(new URL(`../../dist/${file}`, import.meta.url));
    void readFile(path).then(
      (body) => response.setHeader("Content-Type", "text/javascript").end(body),
      () => response.writeHead(404).end(),
    );
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  return { http, port: (http.address() as AddressInfo).port };
}

let site: Awaited<ReturnType<typeof startSite>> | undefined;
afterAll(() => void site?.http.close());

/** Opens the bare page in a context of its own. All pages of a test file are of one site. `host` is another name of this machine. */
export async function openBarePage(context?: BrowserContext, host = "127.0.0.1"): Promise<Page> {
  site ??= await startSite();
  const page = await (context?.newPage() ?? newPage());
  await page.goto(`http://${host}:${site.port}/`);
  await page.waitForFunction(() => document.title === "ready");
  return page;
}
