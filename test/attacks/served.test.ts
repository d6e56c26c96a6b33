import { expect, it } from "vitest";
import { attacker } from "./support/attacker.js";
import { measure } from "./support/bystander.js";
import { bytesKept, MIB } from "./support/memory.js";
import { target } from "./support/server.js";

/** Stops the whole process. */
function block(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end;);
}

it("the measure of these tests shows a server that an attack stalls", async () => {
  await using attack = await attacker();
  await using on = await target({ methods: { slow: () => block(15) } });
  const text = '{"jsonrpc":"2.0","method":"slow"}';
  await attack.start({ url: on.url, texts: [text], burst: 1, everyMs: 40 });
  const [quiet, attacked] = await measure(on.url, attack);
  expect(attacked).toBeGreaterThan(Math.max(2 * quiet, quiet + 5));
  expect((await attack.stop()).sent).toBeGreaterThan(10);
});

it("the measure of these tests shows what is kept, in the heap and in buffers", async () => {
  const before = await bytesKept();
  const kept: unknown[] = [Buffer.alloc(8 * MIB), Array.from({ length: MIB }, (_, i) => [i])];
  expect((await bytesKept()) - before).toBeGreaterThan(16 * MIB);
  expect(kept.splice(0)).toHaveLength(2);
  expect((await bytesKept()) - before).toBeLessThan(4 * MIB);
});
