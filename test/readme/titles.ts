/** The titles of tests, as written in their files. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript-5.9";

const root = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Returns the titles of all tests and suites of a file: each alone, and with the titles of the suites around it in front. A
 * title that has placeholders, such as `%s`, stands as it is written. Of a table of conformance cases, returns their names.
 */
export async function titlesOf(path: string): Promise<string[]> {
  const text = await readFile(join(root, path), "utf8");
  if (path.endsWith(".json")) return (JSON.parse(text) as { cases: { name: string }[] }).cases.map(({ name }) => name);
  const titles: string[] = [];
  const visit = (node: ts.Node, suites: readonly string[]): void => {
    const call = callOf(node);
    if (call === undefined) return node.forEachChild((child) => visit(child, suites));
    const full = [...suites, call.title];
    titles.push(call.title, full.join(" "));
    node.forEachChild((child) => visit(child, call.kind === "describe" ? full : suites));
  };
  visit(ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true), []);
  return titles;
}

/** Reads `it("title", ..)`, `describe("title", ..)` and their forms with `each`. */
function callOf(node: ts.Node): { kind: string; title: string } | undefined {
  if (!ts.isCallExpression(node)) return undefined;
  let callee: ts.Expression = node.expression;
  while (ts.isCallExpression(callee) || ts.isPropertyAccessExpression(callee)) callee = callee.expression;
  const [title] = node.arguments;
  if (!ts.isIdentifier(callee) || !["it", "test", "describe"].includes(callee.text) || title === undefined)
    return undefined;
  if (ts.isStringLiteralLike(title)) return { kind: callee.text, title: title.text };
  if (ts.isTemplateExpression(title)) return { kind: callee.text, title: title.getText().slice(1, -1) };
  return undefined;
}
