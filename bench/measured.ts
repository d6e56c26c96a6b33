/** Writes measured values into a document, between its markers. */
import { readFileSync, writeFileSync } from "node:fs";

/** Replaces the text of the document at `path` between `<!-- name: begin -->` and `<!-- name: end -->` by `text`. */
export function putMeasured(path: string, name: string, text: string): void {
  const [begin, end] = [`<!-- ${name}: begin -->`, `<!-- ${name}: end -->`];
  const page = readFileSync(path, "utf8");
  const [before, after] = [page.split(begin)[0]!, page.split(end)[1]];
  if (after === undefined) throw new Error(`${path} lacks ${begin} or ${end}`);
  writeFileSync(path, `${before}${begin}\n\n${text}\n\n${end}${after}`);
}

/** Returns a Markdown table, aligned as the formatter of this project aligns it. */
export function tableOf(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((_, column) => Math.max(3, ...[head, ...rows].map((row) => row[column]!.length)));
  const line = (cells: readonly string[], fill = " "): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column]!, fill)).join(" | ")} |`;
  return [head, head.map(() => ""), ...rows].map((row, i) => line(row, i === 1 ? "-" : " ")).join("\n");
}
