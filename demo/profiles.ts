/** Gives each joining person a name and a colour that differ from those of the people who are present. */
import { COLORS, MOST_NAME, type Color, type Profile } from "./api.js";

/**
 * Returns the profile for a person who asks for `wish` among `others`. A name that is taken gets a number. A colour that is
 * taken is replaced with one that the fewest people have.
 */
export function distinctProfile({ name, color }: Profile, others: readonly Profile[]): Profile {
  const names = new Set(others.map((other) => other.name));
  const usesOf = (each: Color): number => others.filter((other) => other.color === each).length;
  const fewest = Math.min(...COLORS.map(usesOf));
  return {
    name: names.has(name) ? numbered(name, names) : name,
    color: usesOf(color) === 0 ? color : COLORS.find((each) => usesOf(each) === fewest)!,
  };
}

function numbered(name: string, taken: ReadonlySet<string>): string {
  const characters = Array.from(new Intl.Segmenter().segment(name.replace(/ \d+$/, "")), ({ segment }) => segment);
  for (let number = 2; ; number++) {
    while (`${characters.join("")} ${number}`.length > MOST_NAME) characters.pop();
    const candidate = `${characters.join("")} ${number}`;
    if (!taken.has(candidate)) return candidate;
  }
}
