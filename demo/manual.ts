/** Shows the documents of the package: `/about/README.md`, `/about/docs/API.md`. Their relative links lead to one another. */
import { readFile } from "node:fs/promises";
import MarkdownIt from "markdown-it";

/** The repository, seen from the compiled file. */
const ROOT = new URL("../../", import.meta.url);
/** The documents. Nothing else of the repository is served. */
const PATH = /^\/about\/((?:docs\/(?:guides\/)?)?[\w-]+\.md)$/;

const parser = new MarkdownIt({ html: false, linkify: false });
parser.core.ruler.push("heading-ids", ({ tokens }) => {
  const used = new Map<string, number>();
  for (const [i, token] of tokens.entries()) {
    if (token.type !== "heading_open") continue;
    const id = idOf(tokens[i + 1]!.content);
    const times = used.get(id) ?? 0;
    used.set(id, times + 1);
    token.attrSet("id", times === 0 ? id : `${id}-${times}`);
  }
});

/** Returns the document at a path of the server as a page; `undefined` if there is none. */
export async function manualPage(path: string): Promise<string | undefined> {
  const [, file] = PATH.exec(path) ?? [];
  if (file === undefined) return undefined;
  const text = await readFile(new URL(file, ROOT), "utf8").catch(() => undefined);
  if (text === undefined) return undefined;
  const html = parser.render(text.replace(/<!--.*?-->/gs, ""));
  // By keyboard, code that is wider than the page is scrolled when it has the focus. A header without a text is none.
  return pageOf(file, html.replaceAll("<pre>", '<pre tabindex="0">').replaceAll("<th></th>", "<td></td>"));
}

/** Returns the id of a heading, by which the links of the documents name it: that of GitHub. */
function idOf(heading: string): string {
  return heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replace(/\s/g, "-");
}

function pageOf(file: string, body: string): string {
  return `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <meta name="color-scheme" content="light dark" />
    <title>reciproc: ${file}</title>
    <link rel="icon" href="/icon.svg" />
    <link rel="stylesheet" href="/theme.css" />
    <link rel="stylesheet" href="/manual.css" />
  </head>
  <body>
    <nav aria-label="Documents">
      <a href="/">The demo</a> <a href="/about/README.md">README</a> <a href="/about/docs/API.md">API</a>
      <a href="/about/docs/PROTOCOL.md">Protocol</a> <a href="/about/docs/RELIABILITY.md">Reliability</a>
    </nav>
    <main>${body}</main>
  </body>
</html>
`;
}
