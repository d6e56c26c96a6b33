/** The live session of the soak, with a shorter absence. `npm run soak` plays it with 50 s, again and again. */
import { expect, it } from "vitest";
import { playLive } from "./live.js";

const AWAY_MS = Number(process.env["RECIPROC_AWAY_MS"] ?? 4_000);
const [MOVERS, HZ] = [20, 30];

it(
  `gives a peer that was away for ${AWAY_MS} ms all important messages, and one position of each of ${MOVERS} others`,
  { timeout: AWAY_MS + 60_000 },
  async () => {
    const broken: string[] = [];
    const load = { movers: MOVERS, hz: HZ, awayMs: AWAY_MS };
    const { importantSent, moves, queuedLength } = await playLive(load, (what) => broken.push(what));
    expect(broken).toEqual([]);
    expect(importantSent).toBeGreaterThan(AWAY_MS / 1000);
    expect(moves).toBeGreaterThan(MOVERS * 10);
    // Each position takes about 140, and each important message as much.
    expect(queuedLength).toBeLessThan(200 * (MOVERS + importantSent));
  },
);
