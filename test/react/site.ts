/** Serves a bundled module as a page. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const PAGE = `<!doctype html>
<link rel="icon" href="data:," />
<div id="root"></div>
<script type="module" src="/page.js"></script>`;

export interface Site {
  readonly url: string;
  close(): void;
}

/** Serves a page that runs `code`, on a free port of this machine. */
export async function startSite(code: string): Promise<Site> {
  const http = createServer(({ url }, response) => {
    if (url === "/page.js") response.setHeader("Content-Type", "text/javascript").end(code);
    else response.setHeader("Content-Type", "text/html; charset=utf-8").end(PAGE);
  });
  http.listen(0, "127.0.0.1");
  await once(http, "listening");
  const { port } = http.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, close: () => (http.closeAllConnections(), http.close()) };
}
