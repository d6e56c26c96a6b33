import { describe, expect, it } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { isOneShot, loadCases, runCase } from "./runner.js";
import { postWire, wires } from "./wires.js";

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

describe("a peer reached by HTTP POST", () => {
  for (const { file, cases } of files) {
    const fitting = cases.filter(isOneShot);
    // A client that is never called ignores responses.
    if (fitting.length === 0) continue;
    describe(file, () => {
      for (const one of fitting) it(`${one.name} (${one.source})`, () => runCase(one, postWire));
    });
  }
});

it("leaves no deadline after all cases", () => {
  expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
});
