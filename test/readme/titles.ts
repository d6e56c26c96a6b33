/** The titles of tests, as written in their files. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript-5.9";

const root = fileURLToPath(new URL("../..", import.meta.url));

/**
 * Returns the titles of all tests and suites of a file: each alone, and with the titles of the suites around it in front. A
 * title that has placeholders, such as `%s`, is returned as it is written. The title `%s` alone is returned for each row of its
 * table. Of a table of conformance cases, returns their names.
 */
export async function titlesOf(path: string): Promise<string[]> {
  const text = await readFile(join(root, path), "utf8");
  if (path.endsWith(".json")) return (JSON.parse(text) as { cases: { name: string }[] }).cases.map(({ name }) => name);
  const titles: string[] = [];
  const visit = (node: ts.Node, suites: readonly string[]): void => {
    const call = callOf(node);
    if (call === undefined) return node.forEachChild((child) => visit(child, suites));
    const full = [...suites, call.title];
    titles.push(call.title, full.join(" "), ...call.rows);
    node.forEachChild((child) => visit(child, call.kind === "describe" ? full : suites));
  };
  visit(ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true), []);
  return titles;
}

/** Reads `it("title", ..)`, `describe("title", ..)` and their forms with `each`. */
function callOf(node: ts.Node): { kind: string; title: string; rows: string[] } | undefined {
  if (!ts.isCallExpression(node)) return undefined;
  let callee: ts.Expression = node.expression;
  while (ts.isCallExpression(callee) || ts.isPropertyAccessExpression(callee)) callee = callee.expression;
  const [title] = node.arguments;
  if (!ts.isIdentifier(callee) || !["it", "test", "describe"].includes(callee.text) || title === undefined)
    return undefined;
  if (ts.isStringLiteralLike(title)) {
    return { kind: callee.text, title: title.text, rows: title.text === "%s" ? rowsOf(node.expression) : [] };
  }
  if (ts.isTemplateExpression(title)) return { kind: callee.text, title: title.getText().slice(1, -1), rows: [] };
  return undefined;
}

/** Returns the first text of each row of `it.each([["text", ..], ..])`. */
function rowsOf(each: ts.Expression): string[] {
  const table = ts.isCallExpression(each) ? each.arguments[0] : undefined;
  if (table === undefined || !ts.isArrayLiteralExpression(table)) return [];
  return table.elements.flatMap((row) => {
    const first = ts.isArrayLiteralExpression(row) ? row.elements[0] : row;
    return first !== undefined && ts.isStringLiteralLike(first) ? [first.text] : [];
  });
}
