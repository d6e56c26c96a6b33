/** The mutants: each breaks one rule in the process of a node, and the oracle must detect it. */
import { Follower } from "../../../src/fleet/follower.js";
import { Lease } from "../../../src/fleet/lease.js";

const MUTANTS: Record<string, () => void> = {
  /** F4 reversed: an entry that was read is delivered again, although a live message was faster. */
  "F4 reversed"() {
    const { request, read } = Follower.prototype;
    Follower.prototype.request = function () {
      const asked = request.call(this);
      return asked.onlyTop ? asked : { ...asked, after: Math.max(0, asked.after - 1) };
    };
    Follower.prototype.read = function (asked, part) {
      const again = read.call(this, asked, part);
      return again;
    };
  },
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
