/** Checks that every requirement of docs/PROTOCOL.md has a number of its own, and names a test that exists. */
import { readFile } from "node:fs/promises";
import { beforeAll, describe, expect, it } from "vitest";
import { titlesOf } from "./titles.js";

/** Where the list of tests begins. */
const TESTS = "\n## Tests\n";

interface Reference {
  readonly requirement: string;
  readonly file: string;
  readonly title: string;
}

/** Returns each requirement with its text: a list item or a table row. */
let requirements: { number: string; text: string }[];
let references: Reference[];
/** The number of lines in the list of tests. */
let lines: number;

beforeAll(async () => {
  const document = await readFile("docs/PROTOCOL.md", "utf8");
  const [text, tests] = document.split(TESTS) as [string, string];
  requirements = [...text.matchAll(/^(?:- |\| )\*\*([A-Z]\d*-\d+)\.?\*\*(.*)$/gm)].map(([, number, rest]) => ({
    number: number!,
    text: rest!,
  }));
  references = [...tests.matchAll(/^- ([A-Z]\d*-\d+): `([^`]+)` "(.*)"$/gm)].map(([, requirement, file, title]) => ({
    requirement: requirement!,
    file: file!,
    title: title!,
  }));
  lines = tests.split("\n").filter((line) => line.startsWith("- ")).length;
});

describe("the requirements of PROTOCOL.md", () => {
  it("are read by this test, all ten rules among them", () => {
    expect(requirements.length).toBeGreaterThan(200);
    const rules = requirements.flatMap(({ number }) => /^R(\d+)-1$/.exec(number)?.[1] ?? []);
    expect(rules).toEqual(["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    expect(references).toHaveLength(lines);
  });

  it("have numbers that do not repeat", () => {
    const numbers = requirements.map(({ number }) => number);
    expect(numbers.filter((number, i) => numbers.indexOf(number) !== i)).toEqual([]);
  });

  it("contain MUST, SHOULD or MAY", () => {
    expect(requirements.filter(({ text }) => !/\b(MUST|SHOULD|MAY)\b/.test(text)).map(({ number }) => number)).toEqual(
      [],
    );
  });

  it("have at least one test each, and no test has an unknown number", () => {
    const numbers = requirements.map(({ number }) => number);
    expect(new Set(references.map(({ requirement }) => requirement))).toEqual(new Set(numbers));
  });

  it("name tests that exist", async () => {
    const files = new Map<string, string[]>();
    for (const { file } of references) if (!files.has(file)) files.set(file, await titlesOf(file));
    const missing = references.filter(({ file, title }) => !files.get(file)!.some((one) => one.startsWith(title)));
    expect(missing.map(({ requirement, file, title }) => `${requirement}: ${file} "${title}"`)).toEqual([]);
  });
});
