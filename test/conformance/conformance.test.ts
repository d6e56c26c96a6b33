/** Runs the tables of this folder over each wire that can carry their frames. */
import { beforeEach, describe, it, vi } from "vitest";
import { canPack, isOneShot, isText, loadCases, runCase, type Case } from "./runner.js";
import { packedWire, plainWire, postWire, transportWire, type Wire, type WireOptions } from "./wires.js";

// The tokens of streams that a reciproc peer serves count from 1.
// The progress tokens of each connection count from 1.
beforeEach(() => void vi.spyOn(Math, "random").mockReturnValue(0));

const files = loadCases();

const wires: [string, (options: WireOptions) => Promise<Wire>, (one: Case) => boolean][] = [
  ["by a transport", transportWire, isText],
  ["over a WebSocket", plainWire, () => true],
  ["over reciproc.v1", packedWire, canPack],
  // A client that is never called ignores responses.
  ["by HTTP POST", postWire, isOneShot],
];

describe.each(wires)("a peer reached %s", (_name, open, fits) => {
  for (const { file, cases } of files) {
    const fitting = cases.filter(fits);
    if (fitting.length === 0) continue;
    describe(file, () => {
      for (const one of fitting) it(`${one.name} (${one.source})`, () => runCase(one, open));
    });
  }
});
