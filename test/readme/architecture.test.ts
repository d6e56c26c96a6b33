/** The names in ARCHITECTURE.md exist in the source. */
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

const page = readFileSync("docs/ARCHITECTURE.md", "utf8").replaceAll(/^```.*?^```/gms, "");
const source = readdirSync("src", { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".ts"))
  .map((path) => readFileSync(`src/${path}`, "utf8"));
const words = new Set(source.flatMap((text) => text.match(/#?\w+/g) ?? []));

/** The names in the page that are written as code, such as `Connection.send`. */
const names = [...new Set([...page.matchAll(/`(#?[A-Za-z]\w*(?:\.#?\w+)*)`/g)].map(([, name]) => name!))];
const members = names.filter((name) => /^[A-Z]\w*\.#?[a-z]\w*$/.test(name));

/** Returns whether a file of the source declares `owner`, and has a member of that name in it. */
function has(owner: string, member: string): boolean {
  const declared = new RegExp(`(?:class|interface|type|const|function) ${owner}\\b`);
  const used = new RegExp(`^ {2}(?:(?!const|let)[a-z]+ )*${member}(?:[(<;]|[?!]?:| =)`, "m");
  return source.some((text) => declared.test(text) && used.test(text));
}

describe("ARCHITECTURE.md", () => {
  it("names members that their classes have", () => {
    expect(members.length).toBeGreaterThan(30);
    expect(members.filter((name) => !has(...(name.split(".") as [string, string])))).toEqual([]);
  });

  it("names functions and types that the source has", () => {
    const simple = names.filter((name) => !name.includes(".") && /[a-z][A-Z]|^[A-Z][a-z]/.test(name));
    expect(simple.length).toBeGreaterThan(30);
    expect(simple.filter((name) => !words.has(name) && !(name in globalThis))).toEqual([]);
  });
});
