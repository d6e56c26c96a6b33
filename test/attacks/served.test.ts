import { expect, it, vi } from "vitest";
import { attacker } from "./support/attacker.js";
import { measure } from "./support/bystander.js";
import { bytesKept, MIB } from "./support/memory.js";
import { target } from "./support/server.js";

function spent(began: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(began);
  return (user + system) / 1000;
}

/** Keeps the whole process busy. */
function work(ms: number): void {
  for (const began = process.cpuUsage(); spent(began) < ms;);
}

it("the measure of these tests shows a server that an attack stalls", async () => {
  await using attack = await attacker();
  await using on = await target({ methods: { slow: () => work(60) } });
  const text = '{"jsonrpc":"2.0","method":"slow"}';
  await attack.start({ url: on.url, texts: [text], burst: 1, everyMs: 100 });
  // A machine that is busy with something else stalls as well, and then there is little to tell.
  const isShown = async (): Promise<void> => {
    const [quiet, attacked] = await measure(on.url, attack);
    expect(attacked.isWithinBound(quiet)).toBe(false);
  };
  await vi.waitFor(isShown, { timeout: 15_000 });
  expect((await attack.stop()).sent).toBeGreaterThan(2);
});

it("the measure of these tests shows what is kept, in the heap and in buffers", async () => {
  const before = await bytesKept();
  const kept: unknown[] = [Buffer.alloc(8 * MIB), Array.from({ length: MIB }, (_, i) => [i])];
  expect((await bytesKept()) - before).toBeGreaterThan(16 * MIB);
  expect(kept.splice(0)).toHaveLength(2);
  expect((await bytesKept()) - before).toBeLessThan(4 * MIB);
});
