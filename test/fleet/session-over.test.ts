/** Reports of sessions whose clients are elsewhere: how long they are repeated, and how many. */
import { expect, it } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import type { Broker } from "../../src/fleet/broker.js";
import { EngineError } from "../../src/fleet/engine.js";
import { SessionReports } from "../../src/fleet/session-over.js";
import { pass, useFakeClock } from "../support/clock.js";

useFakeClock();

/** Reports over a broker that answers with `count`. Records the frames that were sent. */
function reportsTo(count: () => Promise<number | undefined>): { reports: SessionReports; sent: string[] } {
  const sent: string[] = [];
  const connection = {
    send: (_channel: string, frame: string) => {
      sent.push(frame);
      return count();
    },
  };
  const broker = { connection, run: (_bytes: number, _ms: number, run: () => unknown) => run() } as unknown as Broker;
  const reports = new SessionReports({ node: "a", broker, live: new Set(["a", "b"]), endSession() {} });
  return { reports, sent };
}

it.each([
  ["every live node has received it", async () => 2],
  ["the broker does not count receivers", async () => undefined],
])("a report is sent once if %s", async (_when, count) => {
  const { reports, sent } = reportsTo(count);
  reports.send("hash", "ann");
  await pass(120_000);
  expect(sent).toEqual(["1z\ta\thash\tp\tann\n"]);
});

it.each([
  ["a live node has not received it", async () => 1],
  ["it may be lost", () => Promise.reject(new EngineError("lost", "unknown"))],
])("a report is repeated for a minute, ever more seldom, while %s", async (_when, count) => {
  const { reports, sent } = reportsTo(count);
  reports.send("hash", undefined);
  await pass(1_600);
  expect(sent).toHaveLength(3);
  await pass(60_000);
  expect(sent).toHaveLength(11);
  await pass(120_000);
  expect(sent).toEqual(Array.from(sent, () => "1z\ta\thash\t\t\n"));
  expect(sent).toHaveLength(11);
});

it("at most 1,000 reports are repeated, the newest, and none after the end", async () => {
  const before = countDeadlines().waiting;
  const { reports, sent } = reportsTo(async () => 1);
  for (let i = 1; i <= 1_001; i++) reports.send(String(i), undefined);
  await pass(0);
  expect(countDeadlines().waiting - before).toBe(1_000);
  await pass(500);
  expect(sent.slice(1_001)).toEqual(sent.slice(1, 1_001));
  reports.stop();
  expect(countDeadlines().waiting).toBe(before);
});
