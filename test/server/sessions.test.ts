/** Sessions of a server, over a network in memory. `test/session` tests their frames. */
import { expect, it } from "vitest";
import { connect, serving } from "./by-hand.js";

it("a client resumes at a server whose longest message is shorter than its `resume`", async () => {
  const { server, url, cut } = await serving({ limits: { maxMessageBytes: 50 }, methods: { add: () => 3 } });
  let refreshed = 0;
  server.on("refresh", () => refreshed++);
  const client = await connect(url);
  for (let i = 0; i < 2; i++) expect(await client.request("add")).toBe(3);
  const back = client.waitFor("resume");
  cut();
  await back;
  expect(await client.request("add")).toBe(3);
  expect(server.stats()).toMatchObject({ opened: 1, resumed: 1 });
  // There is no `authenticate` that could refresh anything.
  expect(refreshed).toBe(0);
});
