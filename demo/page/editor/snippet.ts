/** Converts a snippet of the Language Server Protocol to the syntax of CodeMirror. */

const FIELD = /\$(\d+)|\$\{(\d+)(?::((?:\\.|[^\\}])*)|\|((?:\\.|[^\\,|])*)(?:\\.|[^\\|])*\|)?\}/;
const PART = new RegExp(`\\\\([\\\\$}])|${FIELD.source}|([{}])`, "g");

/**
 * Returns the converted snippet. Fields keep their numbers and texts. A choice becomes its first value. A text with braces becomes
 * empty, because CodeMirror has no escape for them.
 */
export function templateOf(snippet: string): string {
  return snippet.replace(PART, (_all, escaped?: string, ...rest: (string | undefined)[]) => {
    const [short, long, text, choice, brace] = rest;
    const number = short ?? long;
    if (number !== undefined) return field(number, plain(text ?? choice ?? ""));
    const literal = escaped ?? brace!;
    return literal === "{" || literal === "}" ? `\\${literal}` : literal;
  });
}

function field(number: string, text: string): string {
  return text === "" || /[{}]/.test(text) ? `\${${number}}` : `\${${number}:${text}}`;
}

function plain(text: string): string {
  return text.replace(/\\(.)/g, "$1");
}
