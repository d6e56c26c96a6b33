/** Returns the anchor of a heading, by the rule of GitHub: lower case, without punctuation, with hyphens for spaces. */
export function slugOf(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, "")
    .replaceAll(" ", "-");
}
