/** Imports `fleet/frames`, `fleet/members`, `fleet/nodes`: thousands of random histories need them without an engine and a clock. The state machines of members and of nodes, with random losses, delays and silences, and what they do in single states. */
import { isDeepStrictEqual } from "node:util";
import { expect, it } from "vitest";
import { Kind, frameOf, readFrame } from "../../src/fleet/frames.js";
import { Members } from "../../src/fleet/members.js";
import { LiveNodes } from "../../src/fleet/nodes.js";
import { Random } from "../faults/random.js";

const LEASE_MS = 9_000;
const TOPICS = ["one", "two"];
const NAMES = ["a", "b", "c"];

/** One node: its state machines, and what its watchers know. */
class Node {
  readonly live: LiveNodes;
  readonly members: Members;
  /** By topic: when its digest was changed. It is repeated for a minute. */
  readonly changes = new Map<string, number>();
  readonly sources = new Map<string, Iterator<readonly [channel: string, frame: string]>>();
  /** By topic and member: the last event. */
  readonly known = new Map<string, string>();
  readonly breaches: string[] = [];
  readonly #name: string;

  constructor(name: string, send: (channel: string, frame: string) => void, now: () => number) {
    const forgotten = (): void => this.digest("all", [...this.members.ownTopics]);
    const lost = (node: string): void => this.members.lost(node);
    this.live = new LiveNodes(name, LEASE_MS, { send, lost, forgotten }, now());
    this.members = new Members(name, {
      send,
      later: (key, frames) => void this.sources.set(key, frames),
      maxFrameBytes: () => Infinity,
      noteSign: (node) => this.live.noteSign(node, now()),
      asked: () => {},
      changed: (topic, event, node, id, as) => {
        const key = `${topic} ${node} ${id}`;
        const before = this.known.get(key);
        const isTwice = event === "left" ? before === undefined : before === as;
        if (isTwice && this.members.isKnown(topic)) this.breaches.push(`${name}: ${event} ${key} twice`);
        if (event === "left") this.known.delete(key);
        else this.known.set(key, as);
        if (node === name) this.changes.set(topic, now());
      },
    });
    this.#name = name;
  }

  digest(key: string, topics: string[]): void {
    const frameFor = (topic: string): string => frameOf(Kind.Digest, [this.#name, this.members.numberOf(topic) ?? 0]);
    this.sources.set(key, topics.map((topic) => [`t:${topic}`, frameFor(topic)] as const).values());
  }

  list(topic: string): Set<string> {
    return new Set(Array.from(this.members.list(topic), (one) => one.join(" ")));
  }
}

/** Plays random changes of three nodes whose frames get lost or late, and then time without a fault. Returns what is wrong. */
function play(seed: number): string[] {
  const random = new Random(seed);
  let now = 0;
  let isFaulty = true;
  const unheard = new Set<string>();
  /** The frames on their way, in the order of each channel, for each sender and receiver. */
  const lines = new Map<string, string[]>();
  const nodes = new Map<string, Node>();
  const send = (from: string, channel: string, frame: string): void => {
    for (const to of NAMES) {
      if (channel.startsWith("n:") && channel !== `n:${to}`) continue;
      const isLost = from !== to && (unheard.has(from) || (isFaulty && random.chance(0.1)));
      const key = `${from} ${channel} ${to}`;
      if (!isLost) lines.set(key, [...(lines.get(key) ?? []), frame]);
    }
  };
  const deliver = (key: string): void => {
    const frame = readFrame(lines.get(key)!.shift()!)!;
    if (lines.get(key)!.length === 0) lines.delete(key);
    const [, channel, to] = key.split(" ") as [string, string, string];
    const node = nodes.get(to)!;
    if (frame.kind === Kind.Beat) node.live.received(frame.fields, now);
    else node.members.received(channel.startsWith("t:") ? channel.slice(2) : frame.fields[1]!, frame);
  };
  for (const name of NAMES) nodes.set(name, new Node(name, (...one) => send(name, ...one), () => now)); // prettier-ignore
  const act = (name: string, node: Node): void => {
    const topic = random.pick(TOPICS);
    const id = String(random.below(3));
    if (random.chance(0.6)) node.members.put(topic, id, String(random.below(3)));
    else node.members.remove(topic, id);
    if (random.chance(0.05)) node.members.missed(TOPICS);
    if (random.chance(0.02)) unheard.add(name);
    if (random.chance(0.05)) unheard.delete(name);
  };
  const step = (): void => {
    for (const [name, node] of nodes) {
      if (now % (LEASE_MS / 3) === 0) node.live.beat(now);
      node.members.tick(now);
      const due = [...node.changes].filter(([, at]) => [1_000, 10_000, 60_000].includes(now - at));
      node.digest("due", due.map(([topic]) => topic)); // prettier-ignore
      if (isFaulty) act(name, node);
      for (const [key, source] of node.sources) {
        const { done, value } = source.next();
        if (done === true) node.sources.delete(key);
        else send(name, ...(value as [string, string]));
      }
    }
    // Some frames stay on their way.
    for (let left = isFaulty ? random.below(30) : Infinity; left > 0 && lines.size > 0; left--)
      deliver(random.pick([...lines.keys()]));
    now += 1_000;
  };
  for (const node of nodes.values())
    for (const topic of TOPICS) {
      node.members.follow(topic);
      node.members.ask(topic, () => {});
      node.members.enough(topic);
    }
  for (let i = 0; i < 100; i++) step();
  isFaulty = false;
  // Nothing changes any more, and nothing of what was said before is repeated again, while one node is not heard.
  unheard.clear();
  unheard.add(random.pick(NAMES));
  for (let i = 0; i < 80; i++) step();
  unheard.clear();
  for (let i = 0; i < 20; i++) step();
  const wrong = [...nodes.values()].flatMap(({ breaches }) => breaches);
  for (const topic of TOPICS) {
    const lists = NAMES.map((name) => nodes.get(name)!.list(topic));
    for (const [i, name] of NAMES.entries()) {
      const node = nodes.get(name)!;
      const known = [...node.known].filter(([key]) => key.startsWith(`${topic} `));
      const seen = new Set(known.map(([key, as]) => `${key.slice(topic.length + 1)} ${as}`));
      for (const [what, other] of [
        ["another node", lists[0]!],
        ["its watcher", seen],
      ] as const)
        // prettier-ignore
        if (!isDeepStrictEqual(lists[i], other))
          wrong.push(`seed ${seed}, ${topic}: ${name} lists ${[...lists[i]!].join()}, ${what} knows ${[...other].join()}`);
      if ([...node.members.list(topic)].length !== lists[i]!.size) wrong.push(`seed ${seed}: a member twice`);
    }
  }
  return wrong;
}

it("all nodes list the same members at last, each once, and their watchers know the same", () => {
  for (let seed = 1; seed <= 200; seed++) expect(play(seed)).toEqual([]);
});

/** A node that follows "one", and what it sends and reports. */
function follower() {
  const seen: string[] = [];
  const sources: string[] = [];
  const frames: Iterator<unknown>[] = [];
  const members = new Members("me", {
    send: () => {},
    later: (key, source) => void (sources.push(key), frames.push(source)),
    maxFrameBytes: () => Infinity,
    noteSign: () => true,
    asked: () => {},
    changed: (_topic, event, _node, id, as) => void seen.push(`${event} ${id} ${as}`),
  });
  let known = 0;
  members.follow("one");
  const receive = (kind: string, fields: (string | number)[], body = ""): boolean =>
    members.received("one", readFrame(frameOf(kind, fields, body))!);
  const answer = (from: string, number: number, ...entries: [string, string][]): boolean =>
    receive(Kind.Members, [from, "one", number, 0, 1], JSON.stringify(entries));
  members.ask("one", () => known++);
  return { members, seen, sources, frames, receive, answer, known: () => known };
}

it("a node takes two answers of one node for one, and waits for the others", () => {
  const { members, answer, known, seen } = follower();
  members.counted("one", 3);
  answer("a", 1, ["x", "1"]);
  answer("a", 1, ["x", "1"]);
  expect([known(), members.sizeOf("one")]).toEqual([0, 1]);
  members.lost("b");
  answer("c", 0);
  expect([known(), seen]).toEqual([1, []]);
});

it("a node ignores an answer that is older than a change, and applies the changes that came before an answer after it", () => {
  const { members, receive, answer, seen, sources } = follower();
  members.enough("one");
  answer("a", 1, ["x", "1"]);
  receive(Kind.Joined, ["a", 2, 1, "y"], "2");
  answer("a", 1, ["x", "1"]);
  expect(seen).toEqual(["joined x 1", "joined y 2"]);
  // The change 3 is missing.
  receive(Kind.Joined, ["a", 4, 3, "z"], "4");
  expect([seen.length, sources]).toEqual([2, ["k a one"]]);
  answer("a", 3, ["x", "3"]);
  expect(seen.slice(2)).toEqual(["left y 2", "joined x 3", "joined z 4"]);
});

it("a node that waits for its turn to ask about a topic asks no other node besides, and later each that does not answer", () => {
  const { members, answer, sources, frames } = follower();
  members.enough("one");
  answer("a", 1, ["x", "1"]);
  members.missed(["one"]);
  for (let now = 0; now < 60_000; now += 1_000) members.tick(now);
  expect(sources).toEqual(["missed 1"]);
  frames[0]!.next();
  for (let now = 60_000; now < 62_000; now += 1_000) members.tick(now);
  expect(sources).toEqual(["missed 1", "k a one"]);
  // So does a question to one node, and it is not repeated when the topic is followed no more.
  for (let now = 62_000; now < 120_000; now += 1_000) members.tick(now);
  expect(sources).toHaveLength(2);
  expect(frames[1]!.next().done).toBe(false);
  for (let now = 120_000; now < 123_000; now += 1_000) members.tick(now);
  expect(sources).toEqual(["missed 1", "k a one", "k a one"]);
  members.unfollow("one");
  expect([frames[2]!.next().done, members.tick(200_000)]).toEqual([true, false]);
});

/** The nodes as node "n" hears them. `beat`: its next beat, which comes back at once. */
function listener() {
  const lost: unknown[] = [];
  const output = { send: () => {}, lost: (...one: unknown[]) => lost.push(one), forgotten: () => {} };
  const live = new LiveNodes("n", 10_000, output, 0);
  let number = 0;
  const beat = (at: number): boolean => live.beat(at) && live.received(["n", String(++number), "10000", ""], at);
  return { live, lost, beat };
}

it("a node whose broker was away gives up none that connects a little later", () => {
  for (const back of [105_000, 160_000]) {
    const { live, lost, beat } = listener();
    live.noteSign("m", 97_500);
    beat(100_000);
    live.connected();
    for (const [i, after] of [0, 3_334, 6_668, 10_001, 13_335, 16_668].entries())
      expect([beat(back + after), lost.length]).toEqual([true, i < 5 ? 0 : 1]);
  }
});

it("a node that was only called was no member of a topic when it is silent, and is never heard again after its bye", () => {
  const { live, lost, beat } = listener();
  for (const node of ["x", "y"]) live.expects(node, 0);
  live.received(["y", "1", "10000", "bye"], 0);
  for (const at of [3_000, 6_000, 9_000, 12_000]) beat(at);
  expect([lost, live.noteSign("x", 30_000), live.noteSign("y", 30_000)]).toEqual([[["y", false], ["x", false]], true, false]); // prettier-ignore
});

it("a node that was given up meanwhile is asked although it answers that nothing has changed", () => {
  const { members, receive, answer, frames } = follower();
  members.enough("one");
  answer("a", 5, ["x", "1"]);
  members.lost("a");
  receive(Kind.Digest, ["a", 5]);
  receive(Kind.Members, ["a", "one", 5, "", 1]);
  expect(frames[0]!.next().done).toBe(false);
});
