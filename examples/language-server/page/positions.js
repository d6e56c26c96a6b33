/** Positions of LSP are lines and characters, and those of CodeMirror offsets. Both count UTF-16 code units. */

export function positionAt(doc, offset) {
  const line = doc.lineAt(offset);
  return { line: line.number - 1, character: offset - line.from };
}

/** Returns the end of the text for a position behind it. */
export function offsetAt(doc, { line, character }) {
  return line >= doc.lines ? doc.length : Math.min(doc.line(line + 1).from + character, doc.length);
}
