/** Places in a text: CodeMirror counts characters from the start, a language server counts lines and characters within them. */
import type { Text } from "@codemirror/state";
import type { Position } from "../../lsp.js";

/** The line and character of an offset. Both sides count UTF-16 units. */
export function positionAt(text: Text, offset: number): Position {
  const line = text.lineAt(offset);
  return { line: line.number - 1, character: offset - line.from };
}

/** The offset of a line and character. What lies beyond, because the text has become shorter since, is at the end. */
export function offsetAt(text: Text, { line, character }: Position): number {
  if (line >= text.lines) return text.length;
  const { from, to } = text.line(line + 1);
  return Math.min(from + character, to);
}
