/** The lines of this demo's source behind each topic, read from the files that run. */
import { readFileSync } from "node:fs";
import type { Excerpt } from "./api.js";

/** For each topic, places in the source: a file, and the beginning of the first line. The block that begins there is shown. */
const PLACES: Readonly<Record<string, readonly [file: string, begin: string][]>> = {
  join: [
    ["page/main.ts", "  onOpen:"],
    ["server.ts", "    join(profile"],
  ],
  draw: [
    ["page/main.ts", "function draw("],
    ["server.ts", "    draw({"],
  ],
  move: [
    ["page/main.ts", "function move("],
    ["server.ts", "    move({"],
  ],
  say: [
    ["page/main.ts", '    await peer.request("say"'],
    ["server.ts", "    say({"],
  ],
  react: [
    ["page/main.ts", "function react("],
    ["server.ts", "    react({"],
  ],
  undo: [
    ["page/main.ts", "function undo("],
    ["server.ts", "    undo(_"],
  ],
  clear: [
    ["server.ts", "    async clear(_"],
    ["vote.ts", "  const outcomes = "],
    ["page/main.ts", "  vote: "],
  ],
  cut: [
    ["page/main.ts", 'peer.on("suspend"'],
    ["page/main.ts", 'peer.on("resume"'],
  ],
  edit: [
    ["page/editor/shared.ts", "        await server.request("],
    ["server.ts", "    edit({"],
  ],
  language: [
    ["languages.ts", "      fallback: (params, context) => forward(this"],
    ["languages.ts", "async function forward("],
  ],
};

let found: Record<string, Excerpt[]> | undefined;

/** Topics that only one process has. */
const OF_ONE = ["edit", "language"];

/**
 * Returns the code of all topics. `nodes` is the file of the server if there are several, without the topics that it does not have.
 * Throws if the source does not have one of the places.
 */
export function excerpts(nodes?: string): Record<string, Excerpt[]> {
  const fileOf = (file: string): string => (file === "server.ts" && nodes !== undefined ? nodes : file);
  found ??= Object.fromEntries(
    Object.entries(PLACES)
      .filter(([topic]) => nodes === undefined || !OF_ONE.includes(topic))
      .map(([topic, places]) => [topic, places.map(([file, begin]) => excerpt(fileOf(file), begin))]),
  );
  return found;
}

/** Returns the block of lines that begins so: the lines that are indented further, and the line that closes the block. */
function excerpt(file: string, begin: string): Excerpt {
  // The compiled file is in a folder of its own, beside the source.
  const lines = readFileSync(new URL(`../${file}`, import.meta.url), "utf8").split("\n");
  const first = lines.findIndex((line) => withoutAsync(line).startsWith(withoutAsync(begin)));
  if (first < 0) throw new Error(`${file} has no line that begins with ${JSON.stringify(begin)}`);
  const indent = lines[first]!.search(/\S/);
  const rest = lines.slice(first + 1);
  let length = rest.findIndex((line) => line !== "" && line.search(/\S/) <= indent);
  if (/^[)}\]]/.test(rest[length]?.slice(indent) ?? "")) length++;
  const block = lines.slice(first, first + 1 + length);
  return { file, line: first + 1, code: block.map((line) => line.slice(indent)).join("\n") };
}

/** The same method may await something on several nodes, and nothing on one server. */
function withoutAsync(line: string): string {
  return line.replace(/^( *)async /, "$1");
}
