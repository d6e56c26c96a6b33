import { describe, expect, it } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { loadCases, runCase } from "./runner.js";
import { wires } from "./wires.js";

const files = loadCases();

for (const [carrier, open] of Object.entries(wires)) {
  describe(`a peer reached ${carrier}`, () => {
    for (const { file, cases } of files) {
      describe(file, () => {
        for (const one of cases) it(`${one.name} (${one.source})`, () => runCase(one, open));
      });
    }
  });
}

it("leaves no deadline behind after all of them", () => {
  expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
});
