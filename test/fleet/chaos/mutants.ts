/** The mutants: each breaks one rule in the process of a node, and the oracle must detect it. */
import { Lease } from "../../../src/fleet/lease.js";

const MUTANTS: Record<string, () => void> = {
  "no incarnation"() {
    Object.defineProperty(Lease.prototype, "incarnation", { get: () => "one/1" });
  },
};
/** The names of the mutants. */
export const MUTANT_NAMES = Object.keys(MUTANTS);

/** Applies a mutant to this process. */
export function applyMutant(name: string): void {
  MUTANTS[name]!();
}
