/** The default limits under attack. `reaching.test.ts` reaches each limit by every path. */
import { expect, it, vi } from "vitest";
import { z } from "zod";
import type { ServerContext } from "../../src/node.js";
import { inspect } from "../../src/peer/peer.js";
import { stranger } from "../support/network.js";
import { request } from "../support/raw.js";
import { MIB } from "./support/memory.js";
import { target } from "./support/server.js";

const EMPTY = { pending: 0, openBatches: 0, running: 0, streams: 0, progress: 0 };
const BUSY = { code: -32009, message: "Server is busy" };

it("runs 1,024 slow calls at once, and the rest get -32009; all of them are aborted when the connection ends", async () => {
  const seen = { started: 0, aborted: 0 };
  const hang = (_params: unknown, { signal }: ServerContext): Promise<void> =>
    new Promise((resolve) => {
      seen.started++;
      signal.addEventListener("abort", () => resolve(void seen.aborted++));
    });
  await using on = await target({ methods: { hang } });
  using client = await stranger(on.url);
  for (let id = 1; id <= 5000; id++) client.webSocket.send(JSON.stringify(request(id, "hang")));
  await vi.waitFor(() => expect(client.received).toHaveLength(3976));
  const answers = client.received.map((text) => JSON.parse(text) as unknown);
  expect(answers).toEqual(Array.from({ length: 3976 }, (_, i) => ({ jsonrpc: "2.0", id: 1025 + i, error: BUSY })));
  const [peer] = on.peers;
  expect(peer!.stats()).toMatchObject({ requestsReceived: 5000, refusedBusy: 3976, running: 1024 });
  client.webSocket.terminate();
  await peer!.closed;
  expect(seen).toEqual({ started: 1024, aborted: 1024 });
  await vi.waitFor(() => expect(inspect(peer!)).toMatchObject(EMPTY));
});

it("answers a call with 500,000 errors in its params by one -32602 that names the first hundred", async () => {
  await using on = await target({ methods: { m: () => 1 }, schemas: { m: z.array(z.string()) } });
  using client = await stranger(on.url);
  client.webSocket.send(`{"jsonrpc":"2.0","id":1,"method":"m","params":[${"1,".repeat(499_999)}1]}`);
  const { error } = (await client.next()) as { error: { code: number; data: { issues: { path: number[] }[] } } };
  expect(error.code).toBe(-32602);
  expect(error.data.issues.map(({ path }) => path[0])).toEqual(Array.from({ length: 100 }, (_, i) => i));
});

it("opens 256 endless streams, each read 64 KiB ahead; further ones get -32009, and all are returned when the connection ends", async () => {
  const seen = { begun: 0, read: 0, returned: 0 };
  async function* count(): AsyncGenerator<string> {
    seen.begun++;
    try {
      for (;;) {
        seen.read++;
        yield "x".repeat(100);
      }
    } finally {
      seen.returned++;
    }
  }
  // The first values of 256 streams are 16 MiB in one tick.
  await using on = await target({ methods: { count }, limits: { maxUnsentBytes: 64 * MIB } });
  using client = await stranger(on.url);
  for (let id = 1; id <= 1000; id++) client.webSocket.send(JSON.stringify(request(id, "count")));
  await vi.waitFor(() => expect(client.received).toHaveLength(1000), 10_000);
  expect(client.received.filter((text) => text.includes("-32009"))).toHaveLength(744);
  const [peer] = on.peers;
  expect(inspect(peer!)).toMatchObject({ streams: 256, running: 0 });
  const { read } = seen;
  // The first reply, and the next 64 KiB.
  expect(read).toBeLessThanOrEqual(256 * 2 * (65_536 / 102 + 2));
  client.webSocket.terminate();
  await peer!.closed;
  await vi.waitFor(() => expect(seen).toEqual({ begun: 256, read, returned: 256 }));
  expect(inspect(peer!)).toMatchObject(EMPTY);
});
