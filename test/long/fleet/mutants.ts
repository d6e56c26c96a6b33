/**
 * The mutants: each breaks one rule, in the engine of the nodes or in their application. A test checks that the oracle detects each.
 *
 * Two errors have no mutant, because no user can observe them. If several nodes reap a dead incarnation without a claim, each removes
 * members that may be gone already, which changes nothing. If an answer to a call arrives twice, the second one finds no call, because
 * a call has a number of its own and settles once.
 */
import { EngineError, type EngineConnection, type Position } from "../../../src/fleet/engine.js";
import type { Bends } from "./bent.js";
import { LOGGED, type BrokerKind } from "./orders.js";
import type { FaultKind } from "./disturbances.js";
import type { Rule } from "./oracle.js";

/** How the application of a node or of a client is wrong. */
export type Misuse =
  | "calls without a timeout"
  | "watches twice"
  | "replays after live messages"
  | "a client moves `since` before its join is answered";

export interface Mutant {
  /** The rule that must detect it. */
  readonly rule: Rule;
  /** What the complaint says, if the faults alone could delay something that the rule expects. Default: anything. */
  readonly complaint?: RegExp;
  /** The faults without which it does no harm. Default: none. */
  readonly faults?: readonly FaultKind[];
  /** How long there is traffic, in milliseconds, if its faults do harm only after some seconds. Default: that of the test. */
  readonly ms?: number;
  /** The brokers over which it is played. Default: Redis. */
  readonly brokers?: readonly BrokerKind[];
  /** What the engine of a node does in a wrong way. */
  readonly engine?: (node: string, getConnection: () => EngineConnection) => Bends;
  /** Whether the engine is told that its Redis loses nothing. */
  readonly isDurable?: boolean;
  readonly misuse?: Misuse;
}

interface Head {
  readonly kind: string;
  readonly fields: readonly string[];
  readonly body: string;
}

function split(frame: string): Head {
  const end = frame.indexOf("\n");
  const [kind = "", ...fields] = frame.slice(0, end).split("\t");
  return { kind, fields, body: frame.slice(end + 1) };
}

function join({ kind, fields, body }: Head): string {
  return `${[kind, ...fields].join("\t")}\n${body}`;
}

/** Returns a function that is true once in `period` calls. */
function everyNth(period: number): () => boolean {
  let count = 0;
  return () => ++count % period === 0;
}

/** The brokers of rules that each engine keeps in a way of its own. */
const ALL: readonly BrokerKind[] = ["redis", "nats", "cluster"];
/** Over a cluster, no call is `"not-sent"` because a node does not live: a count of 0 says nothing. */
const COUNTING: readonly BrokerKind[] = ["redis", "nats"];

/** How much too early a subscription is reported, in milliseconds. */
const EARLY_MS = 1_000;

/** What the oracle says of lists of members. */
const LACKS_ONE = /lacks (?!none)/;
const HAS_ANOTHER = /also has (?!none)/;

/** One epoch for all. */
const EPOCH = "one";
const COMMON = { epoch: EPOCH };

export const MUTANTS: Readonly<Record<string, Mutant>> = {
  "a node takes its own notifications from the broker": {
    rule: "N1",
    brokers: ALL,
    engine: (node) => ({
      received: (pass, channel, frame) => {
        const { kind, fields, body } = split(frame);
        const isOwn = kind === "1N" && fields[0] === node;
        pass(channel, isOwn ? join({ kind, fields: ["another", ...fields.slice(1)], body }) : frame);
      },
    }),
  },
  "a notification is overtaken": {
    rule: "N2",
    engine: () => {
      const isHeld = everyNth(10);
      let held: string | undefined;
      return {
        received: (pass, channel, frame) => {
          if (!frame.startsWith("1N")) return pass(channel, frame);
          if (held === undefined && isHeld()) return void (held = frame);
          pass(channel, frame);
          if (held !== undefined) pass(channel, held);
          held = undefined;
        },
      };
    },
  },
  "a notification is lost between nodes": {
    rule: "N3",
    brokers: ALL,
    engine: () => {
      const isLost = everyNth(20);
      return {
        received: (pass, channel, frame) => {
          if (!frame.startsWith("1N") || !isLost()) pass(channel, frame);
        },
      };
    },
  },
  "a channel is subscribed after the join that needs it": {
    rule: "N3",
    engine: () => ({
      subscribe: async (pass, channel) => {
        setTimeout(() => void pass(channel), EARLY_MS);
      },
    }),
  },
  "a lost connection is not reported": {
    rule: "N4",
    complaint: /reported nothing/,
    faults: ["node cut"],
    engine: () => ({ down: () => {}, up: () => {} }),
  },
  "a missed publication is not read from the log": {
    rule: "L1",
    brokers: ALL,
    engine: () => {
      const isLost = everyNth(10);
      return {
        received: (pass, channel, frame) => {
          if (!frame.startsWith("1L") || !isLost()) pass(channel, frame);
        },
        read: async (pass, topic, after, limit) => {
          const part = await pass(topic, after, limit);
          return limit === 0 ? part : { ...part, top: after, entries: [] };
        },
      };
    },
  },
  "a log is not read when its channel is subscribed again": {
    rule: "L1",
    engine: () => ({ heard: () => {} }),
  },
  "a node moves back in a log": {
    rule: "L1",
    engine: () => {
      const isLost = everyNth(10);
      const isWrong = everyNth(4);
      return {
        received: (pass, channel, frame) => {
          if (!frame.startsWith("1L") || !isLost()) pass(channel, frame);
        },
        read: async (pass, topic, after, limit) => {
          const part = await pass(topic, after, limit);
          // In another epoch, a node begins again. The next read says that it was the same.
          return limit > 0 && isWrong() ? { epoch: "another", top: 0, entries: [] } : part;
        },
      };
    },
  },
  "two publications change places on one node": {
    rule: "L2",
    engine: () => {
      const isHeld = everyNth(10);
      let held: Head | undefined;
      return {
        received: (pass, channel, frame) => {
          if (!frame.startsWith("1L")) return pass(channel, frame);
          const head = split(frame);
          if (held === undefined && isHeld()) return void (held = head);
          if (held === undefined) return pass(channel, frame);
          pass(channel, join({ ...held, body: head.body }));
          pass(channel, join({ ...head, body: held.body }));
          held = undefined;
        },
      };
    },
  },
  "the epoch is not bound to the life of the broker": {
    rule: "L3",
    faults: ["broker killed after a snapshot", "client cut for long"],
    isDurable: true,
  },
  "a client moves `since` before its join is answered": {
    rule: "L3",
    faults: ["node killed"],
    misuse: "a client moves `since` before its join is answered",
  },
  "`since` is replayed after live publications": {
    rule: "L1",
    complaint: /got \S+ \(\d+\) after/,
    faults: ["client cut for long"],
    // So that clients whose sessions have ended join again while there are publications.
    ms: 12_000,
    misuse: "replays after live messages",
  },
  "all epochs of a log are one": {
    rule: "L2",
    faults: ["broker emptied"],
    engine: () => ({
      received: (pass, channel, frame) => {
        const { kind, fields, body } = split(frame);
        pass(channel, kind === "1L" ? join({ kind, fields: [EPOCH, ...fields.slice(1)], body }) : frame);
      },
      append: async (pass, ...args): Promise<Position> => ({ ...(await pass(...args)), ...COMMON }),
      read: async (pass, topic, after, limit) => ({ ...(await pass(topic, after, limit)), ...COMMON }),
    }),
  },
  "a publication that was sent is reported as not sent": {
    rule: "L4",
    engine: () => {
      const isWrong = everyNth(5);
      return {
        append: async (pass, ...args) => {
          const position = await pass(...args);
          if (isWrong()) throw new EngineError("a mutant", "not-sent");
          return position;
        },
      };
    },
  },
  "keys are ignored": {
    rule: "L5",
    brokers: ALL,
    engine: () => ({ append: (pass, topic, body, rule) => pass(topic, body, rule, undefined) }),
  },
  "a call whose answer is lost does not settle": {
    rule: "C1",
    misuse: "calls without a timeout",
    engine: () => {
      const isLost = everyNth(5);
      return {
        received: (pass, channel, frame) => {
          if (!frame.startsWith("1a") || !isLost()) pass(channel, frame);
        },
      };
    },
  },
  "a call that was sent is reported as not sent": {
    rule: "C2",
    brokers: COUNTING,
    engine: () => ({
      send: async (pass, channel, frame) => {
        const count = await pass(channel, frame);
        return frame.startsWith("1q") ? 0 : count;
      },
    }),
  },
  "a call is sent twice": {
    rule: "C3",
    engine: () => ({
      send: (pass, channel, frame) => {
        if (!frame.startsWith("1q")) return pass(channel, frame);
        const { kind, fields, body } = split(frame);
        const [number, ...others] = fields;
        void pass(channel, join({ kind, fields: [String(Number(number) + 1e9), ...others], body }));
        return pass(channel, frame);
      },
    }),
  },
  "an answer is taken for another call": {
    rule: "C3",
    engine: () => {
      let last: string | undefined;
      return {
        received: (pass, channel, frame) => {
          if (!frame.startsWith("1a")) return pass(channel, frame);
          const { kind, fields, body } = split(frame);
          pass(channel, join({ kind, fields, body: last ?? body }));
          last = body;
        },
      };
    },
  },
  "members of a dead node are not removed": {
    rule: "P1",
    complaint: HAS_ANOTHER,
    faults: ["node killed"],
    engine: (_node, getConnection) => ({
      beat: async (_pass, incarnation, leaseMs) => {
        await getConnection().roster!.enter(incarnation, leaseMs);
        return { isMine: true, live: [incarnation] };
      },
    }),
  },
  "members of a live node are removed": {
    rule: "P1",
    brokers: ALL,
    complaint: LACKS_ONE,
    engine: (node, getConnection) => ({
      beat: async (pass, incarnation, leaseMs) => {
        const { roster } = getConnection();
        const { members } = await roster!.list(LOGGED);
        const [other] = members.find(([id]) => !id.startsWith(`${node}/`)) ?? [];
        if (other !== undefined) await roster!.put(LOGGED, other, undefined);
        return pass(incarnation, leaseMs);
      },
    }),
  },
  "a node does not put its members again": {
    rule: "P1",
    complaint: LACKS_ONE,
    faults: ["broker emptied"],
    engine: () => {
      const before = new Set<string>();
      return {
        put: async (pass, topic, id, as) => {
          const name = `${topic} ${id.slice(id.lastIndexOf("."))} ${as ?? ""}`;
          if (!before.has(name)) await pass(topic, id, as);
          before.add(name);
        },
      };
    },
  },
  "a node that was given up goes on": {
    rule: "P1",
    complaint: LACKS_ONE,
    faults: ["broker stopped"],
    engine: (_node, getConnection) => ({
      beat: async (pass, incarnation, leaseMs) => {
        const state = await pass(incarnation, leaseMs);
        if (state.isMine) return state;
        await getConnection().roster!.enter(incarnation, leaseMs);
        return { isMine: true, live: [incarnation] };
      },
    }),
  },
  "a watcher is notified twice": { rule: "P2", misuse: "watches twice" },
};
