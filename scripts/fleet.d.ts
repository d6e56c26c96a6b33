/** Counts of a run, by what was counted. */
export type FleetCounts = Readonly<Record<string, number>>;

/** A long run with faults, in which no rule was broken. */
export interface FleetFaults {
  /** As `2026-01-31`. */
  readonly date: string;
  /** The version of Node. */
  readonly node: string;
  readonly cores: number;
  readonly minutes: number;
  /** How many processes of nodes, how many clients, and how long each seed was played. */
  readonly nodes: number;
  readonly clients: number;
  readonly seconds: number;
  readonly brokers: readonly {
    readonly broker: "redis" | "nats" | "core" | "cluster";
    readonly seeds: number;
    readonly counts: FleetCounts;
    readonly faults: FleetCounts;
  }[];
}

/** The content of docs/fleet.json. */
export interface FleetFigures {
  /** What `npm run bench -- --fleet` has measured. */
  readonly bench?: object | undefined;
  readonly scale?: object | undefined;
  readonly faults?: FleetFaults | undefined;
}

export function publishFleet(part: "bench" | "scale", run: object, folder?: string): Promise<void>;
export function publishFleet(part: "faults", run: FleetFaults, folder?: string): Promise<void>;
export function fleetPage(figures: FleetFigures): string;
export function withFigures(scaling: string, figures: FleetFigures, idle: object): string;
