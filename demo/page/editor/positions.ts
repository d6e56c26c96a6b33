/** Positions in a text: CodeMirror counts characters from the start. A language server counts lines, and characters in a line. */
import type { Text } from "@codemirror/state";
import type { Position } from "../../lsp.js";

/** Returns the line and character of an offset. Both sides count UTF-16 units. */
export function positionAt(text: Text, offset: number): Position {
  const line = text.lineAt(offset);
  return { line: line.number - 1, character: offset - line.from };
}

/** Returns the offset of a line and character. If the text has become shorter since, returns its end. */
export function offsetAt(text: Text, { line, character }: Position): number {
  if (line >= text.lines) return text.length;
  const { from, to } = text.line(line + 1);
  return Math.min(from + character, to);
}
