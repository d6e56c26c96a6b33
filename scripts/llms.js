/**
 * Writes `llms.txt`, the list of the documents for language models (https://llmstxt.org): `node scripts/llms.js`. A test fails if the
 * file differs from what this writes.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { groups } from "../site/.vitepress/pages.mjs";

const root = join(import.meta.dirname, "..");

/** What a model gets wrong that knows other libraries of this kind. */
const FACTS = `- Import \`serve\` and, in Node, \`connect\` from \`reciproc/node\`. In a page, import \`connect\` from \`reciproc\`. Both are ES modules.
- Params are one object or one array: \`peer.request("add", [1, 2])\`. Handlers get \`(params, context)\`, and \`context.peer\` is the caller.
- Handlers are in the option \`methods\`. There is no \`peer.on("method", ...)\`: \`on\` is for the events of a peer, and throws for other names.
- Options such as \`{ timeoutMs }\` come after the params. For a method without params: \`peer.request("ping", undefined, { timeoutMs: 500 })\`.
- A client reconnects by itself and resumes its session. Put calls that make the server know the client into \`onOpen(server)\`, and call \`server\` there, not the peer.
- Throw \`new RpcError(code, message, data)\` to answer with an error. Every other error is "Internal error" for the caller, and is emitted as \`error\` of the server.
- A server listens on 127.0.0.1, and accepts pages of its own host only, unless \`host\`, \`hosts\` and \`origins\` say otherwise. \`server.on("refuse", ...)\` says why a client was refused.
- \`peer.auth\` is what \`authenticate\` returned. It is replaced when a client resumes its session. \`peer.data\` is an object of your own, which stays: assign its members.
- A topic reaches the peers of its own process, unless \`serve({ engine })\` joins several servers over Redis or NATS.
- \`peer.close()\` ends the session. A lost network does not: listen to \`suspend\`, \`resume\`, \`lost\` and \`missed\`.`;

/** Pages that are not documents in \`docs/\`, and where they come from. */
const ELSEWHERE = { changelog: "CHANGELOG.md", contributing: "CONTRIBUTING.md", reporting: "SECURITY.md" };
/** Pages that only the site has. */
const GENERATED = ["types/index"];

export async function llmsText(hrefOf = (document) => ELSEWHERE[document] ?? `docs/${document}.md`) {
  const readme = await readFile(join(root, "README.md"), "utf8");
  const [, summary] = /^# .*\n\n(?:!\[.*\n\n)?(.*)\n/.exec(readme);
  const [example] = /^```js[\s\S]*?^```text[\s\S]*?^```$/m.exec(readme);
  const lines = ["# reciproc", "", `> ${plain(summary)}`, "", "What to know:", "", FACTS, "", example];
  for (const [group, pages] of Object.entries(groups)) {
    // Models may leave out the section of this name.
    lines.push("", `## ${group === "How it is built" ? "Optional" : group}`, "");
    for (const [title, document] of Object.entries(pages))
      if (!GENERATED.includes(document)) lines.push(`- [${title}](${hrefOf(document)}): ${await describe(document)}`);
  }
  return `${lines.join("\n")}\n`;
}

/** Returns the first sentence of a document that is in a paragraph. For a guide, also returns the names of its sections. */
async function describe(document) {
  const text = await readFile(join(root, ELSEWHERE[document] ?? `docs/${document}.md`), "utf8");
  const paragraph = text.split("\n\n").find((part) => /^(?!```)[A-Z`[]/.test(part));
  const sentence = /^.*?[.:](?= |$)/.exec(plain(paragraph))[0].replace(/:$/, ".");
  const sections = [...text.matchAll(/^## (.*)$/gm)].map(([, name]) => name).filter((name) => name !== "Reference");
  return document.startsWith("guides/") && sections.length > 0
    ? `${sentence} Sections: ${sections.join("; ")}.`
    : sentence;
}

/** Returns the text of Markdown without links and emphasis. */
function plain(markdown) {
  return markdown.replaceAll(/\[([^\]]+)\]\([^)]+\)/g, "$1").replaceAll(/\*\*|(?<=\W)_|_(?=\W)/g, "");
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href)
  await writeFile(join(root, "llms.txt"), await llmsText());
