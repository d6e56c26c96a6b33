import { expect, it, vi } from "vitest";
import { ClientSession } from "../../../src/link/client.js";
import { Sessions } from "../../../src/link/sessions.js";
import { useFakeClock } from "../../support/clock.js";
import { explore } from "./model.js";

useFakeClock();

const seed = Number(process.env["RECIPROC_SESSION_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const runs = Number(process.env["RECIPROC_SESSION_RUNS"] ?? 2000);

function advance(ms: number): void {
  vi.advanceTimersByTime(ms);
}

it("delivers everything in order and once, or tells of a loss that has a reason", async () => {
  expect(await explore({ ClientSession, Sessions }, { runs, seed, shrinks: true, advance })).toBeUndefined();
});
