/** The figures of several servers: docs/fleet.json, and the pages that show them. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { fleetPage, publishFleet, withFigures, type FleetFaults, type FleetFigures } from "../../scripts/fleet.js";

const SCALING = "docs/SCALING.md";
const textOf = (file: string): Promise<string> => readFile(file, "utf8");
const jsonOf = async <T>(file: string): Promise<T> => JSON.parse(await textOf(file)) as T;

describe("the published figures", () => {
  it("are those of docs/fleet.json, in docs/fleet.md", async () => {
    expect(await textOf("docs/fleet.md")).toBe(fleetPage(await jsonOf<FleetFigures>("docs/fleet.json")));
  });

  it("are those of docs/fleet.json and docs/scale.json, in SCALING.md", async () => {
    const scaling = await textOf(SCALING);
    const figures = await jsonOf<FleetFigures>("docs/fleet.json");
    expect(withFigures(scaling, figures, await jsonOf<object>("docs/scale.json"))).toBe(scaling);
  });
});

/** One round of a contender, with the same median. */
const cell = (figures: Record<string, number>): object =>
  Object.fromEntries(Object.entries(figures).map(([name, median]) => [name, { median, rounds: [median] }]));

function scenario(name: string, results: Record<string, Record<string, number>>, more: object = {}): object {
  const metrics = Object.keys(Object.values(results)[0]!).map((metric) => ({ name: metric, unit: metric }));
  const cells = Object.entries(results).map(([contender, figures]) => [contender, cell(figures)]);
  return { name, title: name, metrics, results: Object.fromEntries(cells) as object, ...more };
}

/** A run with round figures. `p99` is that of reciproc: the other contender has 100. */
function benchWith(p99: number): object {
  const fanOut = (nodes: number): object =>
    scenario(`fan-out-${nodes}`, {
      reciproc: { delivered: 200_000, nodeCpu: nodes, brokerCpu: 20 * nodes },
      other: { delivered: 100_000, nodeCpu: 2, brokerCpu: 20 },
    });
  const cost = (nodes: number): object => {
    const receiver = nodes === 1 ? 0 : 21;
    const figures = {
      broker: 10 + 2 * nodes,
      sender: 31,
      receiver,
      commands: 1,
      received: nodes,
      bytesOut: 300 * nodes,
    };
    return scenario(`cost-${nodes}`, { reciproc: figures, other: figures });
  };
  return {
    measured: "2026-01-31T00:00:00.000Z",
    quick: false,
    machine: { cpu: "a CPU", memoryGiB: 1, system: "a system", node: "20" },
    versions: { reciproc: "1.0.0" },
    budget: { rounds: 5, peers: 10_000 },
    contenders: ["reciproc", "other"].map((name) => ({ name, title: name })),
    scenarios: [
      scenario("delivery-1000", { reciproc: { p99 }, other: { p99: 100 } }, { perSecond: 1_000 }),
      ...[1, 2, 4].flatMap((nodes) => [fanOut(nodes), cost(nodes)]),
      scenario("recovery", { reciproc: { last: 4, whole: 100 }, other: { last: 9, whole: 100 } }),
    ],
  };
}

const FAULTS: FleetFaults = {
  date: "2026-01-30",
  node: "v20",
  cores: 2,
  minutes: 60,
  nodes: 3,
  clients: 60,
  seconds: 20,
  brokers: [
    { broker: "redis", seeds: 7, counts: { calls: 1_234 }, faults: { "a node is killed": 5 } },
    { broker: "nats", seeds: 6, counts: { calls: 99 }, faults: {} },
  ],
};

/** The cells of the first row that begins so. */
function rowOf(page: string, ...begin: string[]): string[] {
  const rows = page.split("\n").filter((line) => line.startsWith("| "));
  const cells = rows.map((line) =>
    line
      .split("|")
      .map((text) => text.trim())
      .slice(1, -1),
  );
  return cells.find((row) => begin.every((text, i) => row[i] === text))!;
}

/** What the page says of each goal. */
const goals = (p99: number): string[] =>
  fleetPage({ bench: benchWith(p99) })
    .split("### Goals")[1]!
    .split("###")[0]!
    .match(/\| (yes|no) +\|/g)!;

describe("docs/fleet.md", () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "reciproc-fleet-"));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it("keeps the part of one program when the other publishes", async () => {
    await publishFleet("bench", benchWith(10), folder);
    await publishFleet("faults", FAULTS, folder);
    const page = await textOf(join(folder, "fleet.md"));
    expect(page).toContain("Measured 2026-01-31");
    expect(page).toContain("ran for 60 minutes on 2026-01-30");
    expect(page).toContain("13 seeds");
    expect(rowOf(page, "calls")).toEqual(["calls", "1,234", "99"]);
    expect(rowOf(page, "a node is killed")).toEqual(["a node is killed", "5", "0"]);

    await publishFleet("bench", benchWith(20), folder);
    const figures = await jsonOf<FleetFigures>(join(folder, "fleet.json"));
    expect(figures).toEqual({ bench: benchWith(20), faults: FAULTS });
    expect(await textOf(join(folder, "fleet.md"))).toBe(fleetPage(figures));
  });

  it("says of each goal whether the run has met it", () => {
    expect(goals(25)).toHaveLength(5);
    expect(goals(25).filter((text) => text.includes("no"))).toEqual([]);
    expect(goals(26).filter((text) => text.includes("no"))).toHaveLength(1);
  });

  it("shows the cost of a delivery at 1, 2 and 4 nodes", () => {
    const [, part] = fleetPage({ bench: benchWith(10) }).split("### How the cost grows");
    expect(rowOf(part!, "1", "1")).toEqual(["1", "1", "0.002", "0.0002"]);
    expect(rowOf(part!, "4", "4")).toEqual(["4", "4", "0.008", "0.0005"]);
  });

  it("calculates the cost up to 100 nodes and a million peers", () => {
    // B = 10, b = 2, s = 30, r = 20, d = 1, o = 300. Rooms of 50 peers, a message of each peer in 10 s.
    const reached = 100 * (1 - 0.99 ** 50);
    const broker = (100_000 * (10 + 2 * reached)) / 1e6;
    const node = (1_000 * (30 + 20 * (reached - 1) + 50)) / 1e6;
    expect([reached, broker, node].map((value) => value.toPrecision(3))).toEqual(["39.5", "8.90", "0.850"]);
    const [, announcements, spread, together] = fleetPage({ bench: benchWith(10) }).split(
      /\*\*One message|\*\*Rooms|The same/,
    );
    const full = ["100", "1,000,000"];
    // 0.7 s / (20 + 10,000) µs and 0.7 s / (10 + 200) µs.
    expect(rowOf(announcements!, ...full)).toEqual([...full, "69.9", "3,330", "nodes"]);
    expect(rowOf(spread!, ...full)).toEqual([
      ...full,
      "100,000",
      "39.5",
      "4,050,000",
      "8.9",
      "9,480",
      "0.85",
      "nodes and broker",
    ]);
    // 100,000 (10 + 2) µs and 1,000 (30 + 50) µs.
    expect(rowOf(together!, ...full)).toEqual([...full, "100,000", "1", "200,000", "1.2", "240", "0.08", "broker"]);
  });
});
