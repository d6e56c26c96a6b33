/**
 * The mutants: each breaks one rule, in the engine of the nodes or in their application. A test checks that the oracle detects each.
 *
 * If an answer to a call arrives twice, the second one finds no call, because a call has a number of its own and settles once. No user can
 * observe that, so it has no mutant.
 */
import { EngineError, type Engine, type EngineConnection, type EngineHost } from "../../src/topics/engine.js";
import type { Fault } from "./chaos.js";
import type { Misuse } from "./world.js";
import type { Rule } from "./oracle.js";

type HostBend = (right: EngineHost) => Partial<EngineHost>;

/** What is done in a wrong way. Each function gets what does it in the right way. */
interface Bends {
  readonly host?: HostBend;
  readonly connection?: (right: Pick<EngineConnection, "send" | "subscribe">) => Partial<EngineConnection>;
  readonly log?: (right: NonNullable<EngineConnection["log"]>) => Partial<EngineConnection["log"]>;
}

export interface Mutant {
  /** The rule that must detect it. */
  readonly rule: Rule;
  /** What the complaint says, if the faults could delay something that the rule expects. Default: anything. */
  readonly complaint?: RegExp;
  /** The faults without which it does no harm. Default: none. */
  readonly faults?: readonly Fault[];
  /** The fault at rest without which it does no harm. Default: none. */
  readonly atRest?: Fault;
  /** What the engine of a node does in a wrong way. */
  readonly engine?: (node: string) => Bends;
  readonly misuse?: Misuse;
}

/** Returns an engine whose connections are wrong. */
export function bend(engine: Engine, make: (node: string) => Bends): Engine {
  const createConnection: Engine["createConnection"] = (node, host) => {
    const { host: ofHost, connection, log } = make(node);
    const one = engine.createConnection(node, { ...host, ...ofHost?.(host) });
    const [send, subscribe] = [one.send.bind(one), one.subscribe.bind(one)];
    Object.assign(one.log!, log?.({ ...one.log! }));
    return Object.assign(one, connection?.({ send, subscribe }));
  };
  return { ...engine, createConnection };
}

interface Frame {
  readonly kind: string;
  readonly fields: readonly string[];
  readonly body: string;
}

function split(frame: string): Frame {
  const end = frame.indexOf("\n");
  const [kind = "", ...fields] = frame.slice(0, end).split("\t");
  return { kind, fields, body: frame.slice(end + 1) };
}

function join({ kind, fields, body }: Frame): string {
  return `${[kind, ...fields].join("\t")}\n${body}`;
}

/** Returns a function that is true once in `period` calls. */
function everyNth(period: number): () => boolean {
  let count = 0;
  return () => ++count % period === 0;
}

/** Changes frames of one kind when they arrive. `change` returns those that the node receives. */
const changing =
  (of: string, change: (frame: Frame) => readonly Frame[]): HostBend =>
  ({ received }) => ({
    received: (channel, frame) => {
      if (!frame.startsWith(of)) return received(channel, frame);
      for (const one of change(split(frame))) received(channel, join(one));
    },
  });

/** Loses one of so many frames of one kind. */
const losing = (kind: string, period: number): HostBend => {
  const isLost = everyNth(period);
  return changing(kind, (frame) => (isLost() ? [] : [frame]));
};

/** Keeps one of ten frames until the next one. `release` returns both. */
const keeping = (kind: string, release: (kept: Frame, next: Frame) => readonly Frame[]): HostBend => {
  const isKept = everyNth(10);
  let kept: Frame | undefined;
  return changing(kind, (frame) => {
    const before = kept;
    kept = undefined;
    if (before !== undefined) return release(before, frame);
    if (!isKept()) return [frame];
    kept = frame;
    return [];
  });
};

/** How much too early a subscription is reported, in milliseconds. */
const EARLY_MS = 1_000;

/** What the oracle says of a list with a member that is gone. */
const HAS_ANOTHER = /has (?!none)/;

const EPOCH = "one";
const inOneEpoch = (): Bends => ({
  host: changing("1L", ({ kind, fields, body }) => [{ kind, fields: [EPOCH, ...fields.slice(1)], body }]),
  log: ({ append, read }) => ({
    append: async (...args) => ({ ...(await append(...args)), epoch: EPOCH }),
    read: async (...args) => ({ ...(await read(...args)), epoch: EPOCH }),
  }),
});

export const MUTANTS: Readonly<Record<string, Mutant>> = {
  "a node takes its own notifications from the broker": {
    rule: "N1",
    engine: (node) => ({
      host: changing("1N", ({ kind, fields: [from, ...others], body }) => [
        { kind, fields: [from === node ? "another" : from!, ...others], body },
      ]),
    }),
  },
  "a notification is overtaken": {
    rule: "N2",
    engine: () => ({ host: keeping("1N", (kept, next) => [next, kept]) }),
  },
  "a notification is lost between nodes": { rule: "N3", engine: () => ({ host: losing("1N", 20) }) },
  "a channel is subscribed after the join that needs it": {
    rule: "N3",
    engine: () => ({
      connection: (right) => ({
        subscribe: async (channel) => void setTimeout(() => void right.subscribe(channel), EARLY_MS),
      }),
    }),
  },
  "a lost connection is not reported": {
    rule: "N4",
    complaint: /reported nothing/,
    faults: ["cut"],
    engine: () => ({ host: () => ({ down: () => {}, up: () => {} }) }),
  },
  "a missed publication is not read from the log": {
    rule: "L1",
    engine: () => ({
      host: losing("1L", 10),
      log: ({ read }) => ({
        read: async (topic, offset, page) => {
          const part = await read(topic, offset, page);
          return page.bytes === 0 ? part : { ...part, top: offset, entries: [] };
        },
      }),
    }),
  },
  "a log is not read when its channel is subscribed again, and no position is repeated": {
    rule: "L1",
    engine: () => ({ host: (right) => ({ ...changing("1d", () => [])(right), resubscribed: () => {} }) }),
  },
  "a node moves back in a log": {
    rule: "L1",
    engine: () => {
      const isWrong = everyNth(4);
      return {
        host: losing("1L", 10),
        log: ({ read }) => ({
          read: async (topic, offset, page) => {
            const part = await read(topic, offset, page);
            // In another epoch, a node begins again. The next read says that it was the same.
            return page.bytes > 0 && isWrong() ? { epoch: "another", top: 0, entries: [] } : part;
          },
        }),
      };
    },
  },
  "two publications change places on one node": {
    rule: "L2",
    engine: () => ({
      host: keeping("1L", (kept, next) => [
        { ...kept, body: next.body },
        { ...next, body: kept.body },
      ]),
    }),
  },
  "a log that lost its end goes on in the same epoch": { rule: "L3", faults: ["emptied"], engine: inOneEpoch },
  "all epochs of a log are one": { rule: "L2", faults: ["emptied"], engine: inOneEpoch },
  "a client moves `since` before its join is answered": {
    rule: "L3",
    faults: ["killed"],
    misuse: "a client moves `since` before its join is answered",
  },
  "`since` is replayed after live publications": {
    rule: "L1",
    complaint: /got \S+ \(\d+\) after/,
    faults: ["killed", "cut"],
    misuse: "replays after live messages",
  },
  "a gap is reported although the log has everything": {
    rule: "L6",
    engine: () => ({
      host: losing("1L", 10),
      log: ({ read }) => ({ read: async (topic, ...page) => ({ ...(await read(topic, ...page)), entries: [] }) }),
    }),
  },
  "a publication that was sent is reported as not sent": {
    rule: "L4",
    engine: () => {
      const isWrong = everyNth(5);
      return {
        log: ({ append }) => ({
          append: async (...args) => {
            const position = await append(...args);
            if (isWrong()) throw new EngineError("a mutant", "not-sent");
            return position;
          },
        }),
      };
    },
  },
  "keys are ignored": {
    rule: "L5",
    engine: () => ({ log: ({ append }) => ({ append: (topic, body, rule) => append(topic, body, rule, undefined) }) }),
  },
  "a call whose answer is lost does not settle": {
    rule: "C1",
    misuse: "calls with a timeout of a day",
    engine: () => ({ host: losing("1a", 5) }),
  },
  "a call that was sent is reported as not sent": {
    rule: "C2",
    engine: () => ({
      connection: (right) => ({
        send: async (channel, frame) => {
          const count = await right.send(channel, frame);
          return frame.startsWith("1q") ? 0 : count;
        },
      }),
    }),
  },
  "a call is sent twice": {
    rule: "C3",
    engine: () => ({
      host: changing("1q", ({ fields: [number, ...others], ...frame }) =>
        [0, 1e9].map((more) => ({ ...frame, fields: [String(Number(number) + more), ...others] })),
      ),
    }),
  },
  "an answer is taken for another call": {
    rule: "C3",
    engine: () => {
      let last: string | undefined;
      return {
        host: changing("1a", (frame) => {
          const { body } = frame;
          const wrong = { ...frame, body: last ?? body };
          last = body;
          return [wrong];
        }),
      };
    },
  },
  "members of a dead node are not removed": {
    rule: "P1",
    complaint: HAS_ANOTHER,
    faults: ["killed", "cut"],
    engine: (node) => {
      const beats = new Map<string, string>();
      return {
        // Each node that was heard once is heard for ever.
        host: ({ received }) => ({
          received: (channel, frame) => {
            received(channel, frame);
            if (!frame.startsWith("1b")) return;
            const [from = ""] = split(frame).fields;
            if (from === node) for (const beat of beats.values()) received(channel, beat);
            else beats.set(from, frame);
          },
        }),
      };
    },
  },
  "members of a live node are removed": {
    rule: "P3",
    engine: (node) => {
      const isWrong = everyNth(5);
      return {
        host: changing("1b", (frame) => {
          const [from = "", ...others] = frame.fields;
          return from === node || !isWrong() ? [frame] : [{ ...frame, fields: [from, others[0]!, others[1]!, "bye"] }];
        }),
      };
    },
  },
  "a node that is heard again is not asked for its members": {
    rule: "P1",
    complaint: /lacks (?!none)/,
    atRest: "unheard",
    engine: () => ({ host: changing("1b", (frame) => (frame.fields[3] === "again" ? [] : [frame])) }),
  },
  "a beat waits behind other work": {
    rule: "N4",
    complaint: /lost a connection, which it had/,
    faults: ["slow"],
    engine: () => {
      let others: Promise<unknown> = Promise.resolve();
      return {
        connection: ({ send }) => ({
          send: async (channel, frame) => {
            if (frame.startsWith("1b")) for (let last; last !== others;) await (last = others);
            const sent = send(channel, frame);
            if (!frame.startsWith("1b")) others = Promise.allSettled([others, sent]);
            return sent;
          },
        }),
      };
    },
  },
  "a digest is not repeated": {
    rule: "P1",
    engine: () => ({ host: (right) => losing("1j", 3)({ ...right, ...changing("1d", () => [])(right) }) }),
  },
  "a snapshot is applied after a newer change": {
    rule: "P1",
    faults: ["cut"],
    engine: () => ({
      host: changing("1m", ({ fields: [from, topic, number, ...others], ...frame }) => [
        { ...frame, fields: [from!, topic!, String(Number(number) + 1e6), ...others] },
      ]),
    }),
  },
  "two answers to one question count twice": {
    rule: "P1",
    complaint: /first list/,
    faults: ["killed"],
    engine: () => {
      let answers = 0;
      return {
        // The first answer is that of two other nodes too, which have no members. The next two are lost.
        host: changing("1m", (frame) => {
          const [, topic = ""] = frame.fields;
          const others = ["x", "y"].map((from) => ({ ...frame, fields: [from, topic, "0", "0", "1"], body: "[]" }));
          return [[frame, ...others], [], []][answers++] ?? [frame];
        }),
      };
    },
  },
  "a watcher is notified twice": { rule: "P2", misuse: "watches twice" },
  "a followed topic is loaded before the join": { rule: "S1", misuse: "loads before the join" },
  "a page cannot join again": { rule: "S2", faults: ["cut", "killed", "slow"], misuse: "refuses to join again" },
  "a member that has left is listed": { rule: "S3", misuse: "lists a member that has left" },
  "a repeated change has another key": { rule: "S4", faults: ["cut", "killed", "slow"], misuse: "replaces the key" },
};
