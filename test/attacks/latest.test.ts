/** What `latest` takes for many slow clients: one text, and one reference for each client. */
import { expect, it } from "vitest";
import { testServer } from "../../src/testing/index.js";

const CLIENTS = 100;
const MOVES = 30;
const TEXT_LENGTH = 100_000;
/** What a queued message counts besides its text. */
const MOST_EACH = 200;

it(`a cursor that moves ${MOVES} times counts once in \`suspendedBytes\`, beside ${CLIENTS} clients without a socket`, async () => {
  const { server, connect, network } = testServer({});
  await Promise.all(Array.from({ length: CLIENTS }, () => connect(server.url)));
  await network.settle();
  for (const peer of server.peers) server.topic("all").add(peer);
  network.stop();
  network.cut();
  expect(server.stats()).toMatchObject({ suspended: CLIENTS, suspendedBytes: 0 });
  const at = "x".repeat(TEXT_LENGTH);
  for (let i = 0; i < MOVES; i++) server.topic("all").notify("moved", [at, i], { latest: "ann" });
  const { suspendedBytes, dropped } = server.stats();
  expect(suspendedBytes).toBeGreaterThan(TEXT_LENGTH);
  expect(suspendedBytes).toBeLessThan(TEXT_LENGTH + 200 + CLIENTS * MOST_EACH);
  expect(dropped).toBe(0);
  await server.close();
});
