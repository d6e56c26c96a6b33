/** The faults between nodes, broker and clients. */
import type { Random } from "../../faults/random.js";
import type { World } from "./world.js";

/** How often each fault is drawn. */
export const FAULT_WEIGHTS = {
  "node killed": 2,
  "node stopped": 1,
  "broker stopped": 1,
  "broker killed": 1,
  "broker killed with a snapshot": 1,
  "broker emptied": 1,
  "broker kills clients": 3,
  "node cut": 6,
  "node cut at a byte": 4,
  "node muted one way": 2,
  "node swallowed": 2,
  "client cut": 6,
  "client cut at a byte": 6,
  "client muted": 3,
} as const;
export type FaultKind = keyof typeof FAULT_WEIGHTS;

const MOST_BYTES = 5_000;
/** The longest pause of a process. In a short world, most pauses are short. */
const LONGEST_PAUSE_MS = 20_000;
const SHORTEST_PAUSE_MS = 1_000;

const after = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** How long a process is stopped: 1 to 20 s, mostly little. */
function pauseMs(random: Random): number {
  return SHORTEST_PAUSE_MS + (LONGEST_PAUSE_MS - SHORTEST_PAUSE_MS) * random.next() ** 4;
}

/** Injects one fault. Resolves when it is over, and a killed process has started again. */
export async function disturb(kind: FaultKind, { random, broker, nodes, clients }: World): Promise<void> {
  const node = random.pick(nodes);
  const client = random.pick(clients);
  const allTroubled = (): void => {
    for (const one of nodes) one.troubled();
  };
  switch (kind) {
    case "node killed":
      await node.kill();
      await after(random.below(1_000));
      return node.start();
    case "node stopped":
      node.signal("SIGSTOP");
      await after(pauseMs(random));
      return node.signal("SIGCONT");
    case "broker stopped":
      allTroubled();
      broker.signal("SIGSTOP");
      await after(pauseMs(random));
      return broker.signal("SIGCONT");
    case "broker killed with a snapshot":
    case "broker killed":
      if (kind === "broker killed with a snapshot") await broker.command("SAVE");
      allTroubled();
      await broker.kill();
      await after(random.below(500));
      return broker.start();
    case "broker emptied":
      allTroubled();
      await broker.command("FLUSHALL");
      return;
    case "broker kills clients":
      allTroubled();
      await broker.command("CLIENT", "KILL", "TYPE", random.pick(["normal", "pubsub"]), "SKIPME", "yes");
      return;
    case "client cut":
      return client.relay.whole.at(-1)?.cut();
    case "client cut at a byte":
      return client.relay.whole.at(-1)?.cutAfter(1 + random.below(MOST_BYTES));
    case "client muted": {
      const line = client.relay.whole.at(-1);
      if (line === undefined) return;
      client.member.disturbed();
      line.mute(...random.pick([["client"], ["server"], ["client", "server"]] as const));
      await after(random.below(2_000));
      return line.cut();
    }
    default: {
      const { whole } = node.relay;
      if (whole.length === 0) return;
      const line = random.pick(whole);
      node.troubled();
      if (kind === "node cut") return line.cut();
      if (kind === "node cut at a byte") return line.cutAfter(1 + random.below(MOST_BYTES));
      // It stays so until the node notices.
      return line.mute(
        ...(kind === "node swallowed" ? (["client", "server"] as const) : [random.pick(["client", "server"] as const)]),
      );
    }
  }
}
