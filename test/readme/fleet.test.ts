/** The figures of several servers: docs/fleet.json, and the pages that show them, which also fail if the calculation changes. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it, onTestFinished } from "vitest";
import { fleetPage, publishFleet, withFigures, type FleetFaults, type FleetFigures } from "../../scripts/fleet.js";

interface Bench {
  readonly scenarios: { results: Record<string, Record<string, { median: number }>> }[];
}

const SCALING = "docs/SCALING.md";
const textOf = (file: string): Promise<string> => readFile(file, "utf8");
const figures = JSON.parse(await textOf("docs/fleet.json")) as { bench: Bench; scale: object; faults: FleetFaults };

it("the published figures are those of docs/fleet.json and docs/scale.json", async () => {
  expect(await textOf("docs/fleet.md")).toBe(fleetPage(figures));
  const scaling = await textOf(SCALING);
  expect(withFigures(scaling, figures, JSON.parse(await textOf("docs/scale.json")) as object)).toBe(scaling);
});

it("docs/fleet.md keeps the part of one program when the other publishes, and says of each goal whether it is met", async () => {
  const folder = await mkdtemp(join(tmpdir(), "reciproc-fleet-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  const slow = structuredClone(figures.bench);
  for (const { results } of slow.scenarios) if (results["reciproc"]?.["p99"]) results["reciproc"]["p99"].median = 1e6;
  await publishFleet("bench", figures.bench, folder);
  await publishFleet("scale", figures.scale, folder);
  await publishFleet("faults", figures.faults, folder);
  const page = fleetPage(figures);
  expect(await textOf(join(folder, "fleet.md"))).toBe(page);
  await publishFleet("bench", slow, folder);
  const published = JSON.parse(await textOf(join(folder, "fleet.json"))) as FleetFigures;
  expect(published).toEqual({ ...figures, bench: slow });
  const later = await textOf(join(folder, "fleet.md"));
  const [before, after] = [page, later].map((text) => text.split("| no ").length);
  expect(after).toBe(before! + 1);
});
