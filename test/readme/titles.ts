/** The titles of tests, as written in their files. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseSync, type ESTree } from "vite";

const root = join(import.meta.dirname, "../..");

/** Returns the titles of a file's tests as written, alone and behind those of their suites, the first texts of rows, or names of cases. */
export async function titlesOf(path: string): Promise<string[]> {
  const text = await readFile(join(root, path), "utf8");
  if (path.endsWith(".json")) return (JSON.parse(text) as { cases: { name: string }[] }).cases.map(({ name }) => name);
  const titles: string[] = [];
  const visit = (node: unknown, suites: readonly string[]): void => {
    if (typeof node !== "object" || node === null) return;
    const call = callOf(node as ESTree.Node, text);
    const full = call === undefined ? suites : [...suites, call.title];
    if (call === undefined) titles.push(...rowsOf(node as ESTree.Node));
    else if (call.kind !== "describe") titles.push(call.title, full.join(" "));
    const inner = call?.kind === "describe" ? full : suites;
    for (const child of Object.values(node)) visit(child, inner);
  };
  visit(parseSync(path, text).program, []);
  return titles;
}

/** Reads `it("title", ..)`, `describe("title", ..)` and their forms with `each`. */
function callOf(node: ESTree.Node, text: string): { kind: string; title: string } | undefined {
  if (node.type !== "CallExpression") return undefined;
  let { callee }: { callee: ESTree.Node } = node;
  while (callee.type === "CallExpression" || callee.type === "MemberExpression")
    callee = callee.type === "CallExpression" ? callee.callee : callee.object;
  const [title] = node.arguments;
  if (callee.type !== "Identifier" || !["it", "test", "describe"].includes(callee.name)) return undefined;
  const kind = callee.name;
  if (title?.type === "TemplateLiteral") return { kind, title: text.slice(title.start + 1, title.end - 1) };
  return title?.type === "Literal" && typeof title.value === "string" ? { kind, title: title.value } : undefined;
}

/** Returns the first text of each row of `it.each([["text", ..], ..])`, or of a function that makes tests of a table. */
function rowsOf(node: ESTree.Node): string[] {
  const table = node.type === "CallExpression" ? node.arguments[0] : undefined;
  if (table?.type !== "ArrayExpression") return [];
  return table.elements.flatMap((row) => {
    const first = row?.type === "ArrayExpression" ? row.elements[0] : row;
    return first?.type === "Literal" && typeof first.value === "string" ? [first.value] : [];
  });
}
