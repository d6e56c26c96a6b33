/** The logs of the engine over JetStream: what they keep, foreign messages in their streams, and a server that answers as a cluster may. */
import { describe, expect, it, vi } from "vitest";
import { managed, NatsServer, publishAt, publishRaw } from "../support/nats.js";
import { LOG, outcomeOf, page, TestNode, TOPIC, use } from "./kit.js";
import type { PrefixedRig } from "./failures.js";
import { natsRig, useNats, type NatsWire } from "./nats-rig.js";

const KIB = 1_024;
const CHANNEL = `t:${TOPIC}` as const;

const nats = useNats();
const { rigOf, relayed } = nats;

/** Opens two nodes of one rig. */
async function pair(rig: PrefixedRig): Promise<[a: TestNode, b: TestNode]> {
  return [await TestNode.open(rig.engine(), "a"), await TestNode.open(rig.engine(), "b")];
}

/** Opens a node by a relay. `carried`: how many bytes it was sent, which a test resets. */
async function openRelayed(rig: PrefixedRig): Promise<{ wire: NatsWire; node: TestNode; carried: { bytes: number } }> {
  const { relay, wire, rig: own } = await relayed(rig);
  const carried = { bytes: 0 };
  const { pass } = relay;
  relay.pass = (bytes, to, line) => {
    if (to === "client") carried.bytes += bytes.length;
    return pass(bytes, to, line);
  };
  return { wire, carried, node: await TestNode.open(own.engine(), "relayed") };
}

/**
 * Expects a node to read so many entries of a length, and that little more is sent for them: `extra` for each page. A page that takes long ends
 * with what it has. What is read is sent as base64.
 */
async function expectRead(
  { connection }: TestNode,
  carried: { bytes: number },
  after: number,
  count: number,
  length: number,
  extra = 1,
): Promise<void> {
  carried.bytes = 0;
  const read: number[] = [];
  let pages = 0;
  for (; read.length < count; pages++) {
    const { entries } = await connection.log!.read(
      TOPIC,
      after + read.length,
      page(10, (count - read.length) * length),
    );
    read.push(...entries.map(([offset]) => offset));
  }
  expect(read).toEqual(Array.from({ length: count }, (_, i) => after + i + 1));
  expect(carried.bytes).toBeLessThan((count + extra * pages) * length * 1.5);
}

function entriesOf(...bodies: string[]): [offset: number, body: string][] {
  return bodies.map((body, i) => [i + 1, body]);
}

describe("the logs of the engine nats", () => {
  it("know the position of a key whose entry is no longer kept", async () => {
    const rig = rigOf();
    const [a, b] = await pair(rig);
    const rule = { length: 2, bytes: 2 ** 20, ttlMs: 60_000 };
    const first = await a.append("1", "key", rule);
    for (const body of ["2", "3", "4"]) await a.append(body, undefined, rule);
    for (const node of [a, b]) expect(await node.append("again", "key", rule)).toEqual(first);
    expect(await b.read()).toMatchObject({ top: 4, entries: entriesOf("1", "2", "3", "4").slice(2) });
    await managed(nats.server.url, ({ streams }) => streams.purge(`${rig.prefix}_1_k`));
    expect(await outcomeOf(b.append("again", "key", rule))).toBe("unknown");
  });

  it("are kept as the greatest rule and option of any node want", async () => {
    const rig = rigOf();
    const larger = rigOf({ prefix: rig.prefix, jetstream: { bytes: 2 ** 28 } });
    const a = await TestNode.open(rig.engine());
    const settings = () => managed(nats.server.url, ({ streams }) => streams.info(`${rig.prefix}_1_l`));
    expect((await settings()).config.max_bytes).toBe(2 ** 27);
    const b = await TestNode.open(larger.engine());
    await Promise.all([
      a.append("1", undefined, { length: 5, bytes: 2 ** 20, ttlMs: 7_200_000 }),
      b.append("2", undefined, { length: 7, bytes: 2 ** 20, ttlMs: 1_000 }),
    ]);
    const { config } = await settings();
    expect(config.max_msgs_per_subject).toBe(7);
    expect(config.max_age).toBe((7_200_000 + 86_400_000) * 1_000_000);
    expect(config.max_bytes).toBe(2 ** 28);
  });

  it("have the bytes of the option together: the oldest entries of all are removed", async () => {
    const rig = rigOf({ jetstream: { bytes: 2 ** 20 } });
    const [a, b] = await pair(rig);
    const body = "x".repeat(200 * KIB);
    const quiet = await a.connection.log!.append("quiet", "1", LOG, undefined);
    for (let i = 1; i <= 8; i++) await a.append(body);
    const { top, entries } = await b.connection.log!.read(TOPIC, 0, page(10, 2 ** 22));
    expect([top, entries.map(([offset]) => offset)]).toEqual([8, [4, 5, 6, 7, 8]]);
    // A log without entries has no position either.
    expect(await b.connection.log!.read("quiet", 0, page(10))).toEqual({ epoch: "", top: 0, entries: [] });
    const { epoch, offset } = await a.connection.log!.append("quiet", "1", LOG, undefined);
    expect([offset, epoch === quiet.epoch]).toEqual([1, false]);
  });

  it("have the bytes of their rule also if their node publishes to 10,000 other topics meanwhile", async () => {
    const node = await TestNode.open(rigOf().engine());
    const rule = { length: 100, bytes: 8 * KIB, ttlMs: 60_000 };
    const publish = (): Promise<unknown> => node.append("x".repeat(KIB), undefined, rule);
    for (let i = 0; i < 8; i++) await publish();
    for (const half of ["a", "b"]) {
      const others = Array.from({ length: 5_000 }, (_, i) =>
        node.connection.log!.append(`${half}${i}`, "", rule, undefined),
      );
      await Promise.all(others);
      await publish();
    }
    await vi.waitFor(async () => expect((await node.read()).entries[0]).toEqual([3, "x".repeat(KIB)]));
  });

  it("are read in pages, for each of which little more is sent than it has", async () => {
    const rig = rigOf();
    const writer = await TestNode.open(rig.engine(), "writer");
    const { node, carried } = await openRelayed(rig);
    const body = "x".repeat(500 * KIB);
    for (let i = 0; i < 16; i++) await writer.append(body);
    let after = 0;
    for (const limit of [1, 2, 3]) {
      // The last entry is read too, with each page.
      await expectRead(node, carried, after, limit, body.length);
      after += limit;
    }
    expect(node.downs).toEqual([]);
  });

  it("are read from a late position without most entries before it, also if they are far apart", async () => {
    const rig = rigOf();
    const writer = await TestNode.open(rig.engine(), "writer");
    const { node, carried } = await openRelayed(rig);
    const [count, body] = [200, "x".repeat(10 * KIB)];
    for (let i = 0; i < count; i++) {
      await writer.append(body);
      if (i % 50 === 0) for (let j = 0; j < 40; j++) await writer.connection.log!.append("other", "", LOG, undefined);
    }
    for (const after of [count - 2, 120, 60, count - 3]) await expectRead(node, carried, after, 2, body.length, 16);
  });

  it("reject an entry that is too long for the server", async () => {
    const small = use(await NatsServer.create({ lines: ["max_payload: 64KB"] }));
    const node = await TestNode.open(natsRig({ url: small.url, jetstream: {} }, small).engine());
    expect(node.facts).toEqual({ maxFrameBytes: 63 * KIB, unmet: [] });
    expect(await outcomeOf(node.append("x".repeat(65 * KIB)))).toBe("not-sent");
    expect(await outcomeOf(node.connection.send("a:all", "x".repeat(65 * KIB)))).toBe("not-sent");
    expect((await node.append("1")).offset).toBe(1);
  });
});

/** Headers of messages that no node has written. */
const FOREIGN_HEADERS = [
  undefined,
  "not a name: 1\r\nReciproc-Number: 7",
  "Reciproc-Epoch: e",
  "Reciproc-Epoch: e\r\nReciproc-Number: -5",
  "Reciproc-Epoch: e\r\nReciproc-Number: 0x10",
  "Reciproc-Epoch: e\r\nReciproc-Number: 9007199254740993",
  "Reciproc-Number: 7",
];

describe("the engine nats, when another program writes to its subjects", () => {
  it("continues behind foreign messages in its streams, whatever their headers", async () => {
    const rig = rigOf();
    const [a, b] = await pair(rig);
    await b.connection.subscribe(CHANNEL);
    const disturb = (headers: string | undefined): Promise<void> => {
      const subject = `${rig.prefix}.1.l.${TOPIC}`;
      if (headers === undefined) return publishAt(nats.server.url, subject, "foreign");
      return publishRaw(nats.server, subject, `NATS/1.0\r\n${headers}\r\n\r\n`, "foreign");
    };
    // The client library refuses to write such headers, and to read them.
    await publishRaw(nats.server, `${rig.prefix}.1.t.${TOPIC}`, "NATS/1.0\r\nnot a name: 1\r\n\r\n", "foreign");
    await disturb(undefined);
    expect(await a.read()).toEqual({ epoch: "", top: 0, entries: [] });
    const { epoch } = await a.append("0");
    for (const [i, headers] of FOREIGN_HEADERS.entries()) {
      await disturb(headers);
      // One knows the end of the log, and the other one looks for it.
      expect(await [a, b][i % 2]!.append(String(i))).toEqual({ epoch, offset: i + 2 });
      await disturb(headers);
      expect(await (await TestNode.open(rig.engine())).read(1)).toMatchObject({ epoch, top: i + 2 });
    }
    const count = 2 + 2 * FOREIGN_HEADERS.length;
    expect(await b.until(CHANNEL, count, (frame) => frame === "foreign")).toHaveLength(count);
    expect([...a.downs, ...b.downs]).toEqual([]);
  });

  it("reads little of a log whose last message is foreign, and all of it if necessary", async () => {
    const rig = rigOf();
    const writer = await TestNode.open(rig.engine(), "writer");
    const body = "x".repeat(500 * KIB);
    for (let i = 0; i < 16; i++) await writer.append(body);
    const others = Array.from({ length: 1_100 }, () => "");
    const disturb = async (): Promise<void> => publishAt(nats.server.url, `${rig.prefix}.1.l.${TOPIC}`, "foreign");
    await publishAt(nats.server.url, `${rig.prefix}.1.l.other`, ...others);
    const { epoch } = await writer.append("17");
    await disturb();
    const { node, carried } = await openRelayed(rig);
    carried.bytes = 0;
    expect(await node.append("18")).toEqual({ epoch, offset: 18 });
    expect(carried.bytes).toBeLessThan(100 * KIB);
    await publishAt(nats.server.url, `${rig.prefix}.1.l.other`, ...others);
    await disturb();
    expect(await (await TestNode.open(rig.engine())).append("19")).toEqual({ epoch, offset: 19 });
  });
});

describe("the engine nats, when NATS answers as a cluster may", () => {
  it("appends behind the last message if it is refused, and does not know it if one with its key is in process", async () => {
    const rig = rigOf();
    const writer = await TestNode.open(rig.engine(), "writer");
    const { wire, node } = await openRelayed(rig);
    const { epoch } = await node.append("1");
    let code = 0;
    let refusals = 0;
    wire.change = (text) => {
      if (text.includes('"err_code":10071,')) refusals++;
      return text.replace('"err_code":10071,', `"err_code":${code},`);
    };
    // Another node was first, or the servers store another message.
    for (code of [10_164, 10_163]) {
      const { offset } = await writer.append("between");
      expect(await node.append("x")).toEqual({ epoch, offset: offset + 1 });
    }
    expect(refusals).toBe(2);
    code = 10_158;
    await writer.append("between");
    expect(await outcomeOf(node.append("x", "key"))).toBe("unknown");
  });

  it("rejects a read that is not answered, and an entry whose place it cannot find", async () => {
    vi.unstubAllGlobals();
    const rig = rigOf();
    await (await TestNode.open(rig.engine(), "writer")).append("1");
    const { wire, node } = await openRelayed(rig);
    let answers = 0;
    wire.change = (text) => (!text.includes("stream_msg_get_response") || answers-- > 0 ? text : undefined);
    expect(await outcomeOf(node.append("2"))).toBe("not-sent");
    answers = Infinity;
    expect((await node.append("2")).offset).toBe(2);
    expect((await node.read()).entries).toEqual(entriesOf("1", "2"));
    // The last message is found, and then none any more.
    answers = 1;
    expect(await outcomeOf(node.read())).toBe("unknown");
  });
});
