import { readdir, readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { FAULTS } from "../session/faults.js";
import { titlesOf } from "./titles.js";

const [text, tests] = (await readFile("docs/PROTOCOL.md", "utf8")).split("\n## Tests\n") as [string, string];
/** Each requirement with its text: a list item or a table row. */
const requirements = [...text.matchAll(/^(?:- |\| )\*\*([A-Z]\d*-\d+)\.?\*\*(.*)$/gm)];
const numbers = requirements.map(([, number]) => number!);
/** The requirement, the file and the title in each line of the list of tests. */
const references = [...tests.matchAll(/^- ([A-Z]\d*-\d+): `([^`]+)` "(.*)"$/gm)];

describe("the requirements of PROTOCOL.md", () => {
  it("are read by this test, all ten rules among them, and contain MUST, SHOULD or MAY", () => {
    expect(requirements.length).toBeGreaterThan(200);
    const rules = numbers.flatMap((number) => /^R(\d+)-1$/.exec(number)?.[1] ?? []);
    expect(rules).toEqual(["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"]);
    expect(requirements.filter(([, , rest]) => !/\b(MUST|SHOULD|MAY)\b/.test(rest!))).toEqual([]);
  });

  it("have numbers that do not repeat, and at least one test each, and no test has an unknown number", () => {
    expect(numbers).toEqual([...new Set(numbers)]);
    expect(new Set(references.map(([, requirement]) => requirement))).toEqual(new Set(numbers));
    expect(references).toHaveLength(tests.match(/^- /gm)!.length);
  });

  it("name tests that exist", async () => {
    const faults = "test/session/faults.test.ts";
    const files = new Map([[faults, [...(await titlesOf(faults)), ...Object.keys(FAULTS)]]]);
    for (const [, , file] of references) if (!files.has(file!)) files.set(file!, await titlesOf(file!));
    const missing = references.filter(([, , file, title]) => !files.get(file!)!.includes(title!));
    expect(missing.map(([line]) => line)).toEqual([]);
  });
});

it("each limit of API.md is in the title of a test", async () => {
  const [, section] = (await readFile("docs/API.md", "utf8")).split("\n## Limits\n") as [string, string];
  const limits = [...section.split("\n## ")[0]!.matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name!);
  expect(limits.length).toBeGreaterThan(10);
  const folders = ["attacks", "conformance", "features", "server", "session"].map((folder) => `test/${folder}`);
  const files = (await Promise.all(folders.map((folder) => readdir(folder)))).flatMap((names, i) =>
    names.filter((name) => /\.(test\.ts|json)$/.test(name)).map((name) => `${folders[i]}/${name}`),
  );
  const titles = (await Promise.all(files.map(titlesOf))).flat();
  expect(limits.filter((limit) => !titles.some((title) => title.includes(limit)))).toEqual([]);
});
