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

/** A Markdown table of two columns, aligned as the formatter of this project aligns it. */
export function tableOf(head: readonly [string, string], rows: readonly (readonly [string, string])[]): string {
  const widths = [0, 1].map((column) => Math.max(...[head, ...rows].map((row) => row[column]!.length)));
  const line = (cells: readonly string[], fill = " "): string =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column]!, fill)).join(" | ")} |`;
  return [line(head), line(["", ""], "-"), ...rows.map((row) => line(row))].join("\n");
}
