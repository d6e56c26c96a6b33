import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "../..");

describe("the film of the demo", () => {
  it("lasts twenty seconds, repeats, and is smaller than 3 MB", async () => {
    const film = await readFile(join(ROOT, "docs/demo-film.webp"));
    expect(film.length).toBeLessThan(3_000_000);
    expect(film.toString("latin1", 0, 4) + film.toString("latin1", 8, 12)).toBe("RIFFWEBP");
    const { repeats, durations } = animation(film);
    expect(repeats).toBe(0);
    expect(durations.length).toBeGreaterThan(60);
    const seconds = durations.reduce((sum, ms) => sum + ms, 0) / 1000;
    expect(seconds).toBeGreaterThan(19);
    expect(seconds).toBeLessThan(21);
  });

  it("leads README", async () => {
    const [title, , film] = (await readFile(join(ROOT, "README.md"), "utf8")).split("\n");
    expect(title).toBe("# reciproc");
    expect(film).toMatch(/^!\[.+\]\(docs\/demo-film\.webp\)$/);
  });
});

/** Reads the chunks of an animated WebP: how often it repeats (0: without end), and how long it shows each picture. */
function animation(film: Buffer): { repeats: number; durations: number[] } {
  let repeats = -1;
  const durations: number[] = [];
  for (let at = 12; at < film.length;) {
    const [kind, length] = [film.toString("latin1", at, at + 4), film.readUInt32LE(at + 4)];
    if (kind === "ANIM") repeats = film.readUInt16LE(at + 8 + 4);
    if (kind === "ANMF") durations.push(film.readUIntLE(at + 8 + 12, 3));
    at += 8 + length + (length % 2);
  }
  return { repeats, durations };
}
