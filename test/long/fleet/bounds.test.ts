/** What many long publications do to a fleet: they delay nothing else, cost no node its broker, and a node that was away has them or a gap. */
import { describe, expect, it, onTestFinished } from "vitest";
import { answered, use } from "../../engines/kit.js";
import type { BrokerKind, PrefixedRig } from "../../engines/failures.js";
import { NATS } from "../../engines/nats-rig.js";
import { REDIS } from "../../engines/redis-rig.js";
import { closeAll, count, gapsOf, makeNode, numbers, when, type Node } from "../../fleet/nodes.js";
import type { Program } from "../../support/program.js";
import { Relay } from "../../support/relay.js";

const TEXT = "x".repeat(500_000);
const LOGS = new Map([
  ["long", { length: 2_000, bytes: 2 ** 26, ttlMs: 600_000 }],
  ["short", { length: 2_000, ttlMs: 600_000 }],
]);
const topics = (name: string): object | undefined => (LOGS.has(name) ? { log: LOGS.get(name) } : undefined);

const publish = (
  { server }: Node,
  name: string,
  params: { readonly n: number; readonly text?: string },
): Promise<string> => answered(() => server.topic(name).publish("said", params, { key: String(params.n) }));
const publishLong = (node: Node, n: number): Promise<string> => publish(node, "long", { n, text: TEXT });

function describeBounds<S extends Program & { readonly url: string }>(kind: BrokerKind<S>): void {
  /** Makes two nodes, of which the second one has a relay. `losses`: of their connections. */
  const start = async () => {
    const server = use(await kind.create("plain"));
    const relay = use(await Relay.to(server.port));
    const rigAt = (port: number, more: object = {}): PrefixedRig =>
      kind.rig(server, {
        url: Object.assign(new URL(server.url), { port: String(port) }).href,
        ...more,
      });
    const direct = rigAt(server.port);
    const engines = [direct, rigAt(relay.port, { prefix: direct.prefix })].map(({ engine }) => engine());
    const [a, b] = engines.map((engine) => makeNode({ engine, topics })) as [Node, Node];
    onTestFinished(() => closeAll([a, b]));
    const losses: unknown[] = [];
    for (const { server: one } of [a, b])
      one.on("engine", ({ state, error }) => state === "down" && losses.push(String(error)));
    return { a, b, relay, losses };
  };
  describe(`publications of 500 KB over ${kind.name}`, () => {
    it("delay nothing of other topics, and no node loses its broker, while 600 are sent and clients join with old positions", async () => {
      const { a, b, losses } = await start();
      const bystander = await b.client();
      for (const name of ["plain", "short"]) await answered(() => b.server.topic(name).join(bystander.peer));
      let sent = 0;
      const tell = async (): Promise<void> => {
        a.server.topic("plain").notify("told", { n: ++sent });
        await publish(a, "short", { n: sent });
      };
      const positions: string[] = [];
      for (const n of count(1, 600)) {
        positions.push(await publishLong(a, n));
        await tell();
      }
      const join = async (since: string | undefined): Promise<string | undefined> => {
        const { client, peer } = await b.client();
        const { outcome } = await answered(() => b.server.topic("long").join(peer, { since }));
        await client.close();
        return outcome;
      };
      const gaps = gapsOf(b);
      for (let round = 1; round <= 30;) {
        const before = gaps.length;
        const joining = join(positions.at([1, -100, -2][round % 3]!));
        await Promise.all(count(1, 10).map(tell));
        const outcome = await joining;
        // A log that a busy broker does not send in time is a gap for all.
        if (gaps.length > before) continue;
        expect(outcome).toBe(round++ % 3 === 2 ? "complete" : "gap");
      }
      await when(() => bystander.got.length >= 2 * sent);
      expect(numbers(bystander)).toHaveLength(sent);
      expect(new Set(numbers(bystander))).toEqual(new Set(count(1, sent)));
      expect(bystander.got.filter(([method]) => method === "told").map(([, { n }]) => n)).toEqual(count(1, sent));
      expect([losses, [a, b].map(({ server }) => server.stats().engine!.dropped)]).toEqual([[], [0, 0]]);
    });

    it("reach a node that read nothing while 150 MB were sent, or are a gap there", async () => {
      const { a, b, relay } = await start();
      const gaps = gapsOf(b);
      const member = await b.client();
      await answered(() => b.server.topic("long").join(member.peer));
      await publishLong(a, 1);
      await member.until(1);
      relay.pause();
      for (const n of count(2, 301)) await publishLong(a, n);
      relay.mend();
      await when(() => numbers(member).at(-1) === 301 || gaps.length > 0);
      await publishLong(a, 302);
      await when(() => numbers(member).at(-1) === 302);
      if (gaps.length === 0) expect(numbers(member)).toEqual(count(1, 302));
      // What is there is in order.
      expect(numbers(member).every((n, i, all) => i === 0 || n > all[i - 1]!)).toBe(true);
    });
  });
}

describeBounds(REDIS);
describeBounds(NATS);
