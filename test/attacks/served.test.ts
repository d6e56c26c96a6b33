import { expect, it, vi } from "vitest";
import { attacker } from "./support/attacker.js";
import { measure } from "./support/bystander.js";
import { bytesKept, MIB } from "./support/memory.js";
import { target } from "./support/server.js";

function spent(began: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(began);
  return (user + system) / 1000;
}

/** Blocks the whole process. */
function work(ms: number): void {
  for (const began = process.cpuUsage(); spent(began) < ms;);
}

it("detects a server that an attack stalls, by the measure of these tests", async () => {
  await using attack = await attacker();
  await using on = await target({ methods: { slow: () => work(60) } });
  const text = '{"jsonrpc":"2.0","method":"slow"}';
  await attack.start({ url: on.url, texts: [text], burst: 1, everyMs: 100 });
  // A machine that is busy with other work stalls as well, and then the measure shows little.
  const isShown = async (): Promise<void> => {
    const [quiet, attacked] = await measure(on.url, attack);
    expect(attacked.isWithinBound(quiet)).toBe(false);
  };
  await vi.waitFor(isShown, { timeout: 15_000 });
  expect((await attack.stop()).sent).toBeGreaterThan(2);
});

it("detects memory that is kept, in the heap and in buffers, by the measure of these tests", async () => {
  const before = await bytesKept();
  const kept: unknown[] = [Buffer.alloc(8 * MIB), Array.from({ length: MIB }, (_, i) => [i])];
  expect((await bytesKept()) - before).toBeGreaterThan(16 * MIB);
  expect(kept.splice(0)).toHaveLength(2);
  expect((await bytesKept()) - before).toBeLessThan(4 * MIB);
});
