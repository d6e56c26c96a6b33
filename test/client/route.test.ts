import { expect, it } from "vitest";
import { serve } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { pass, useVirtualClock } from "../support/time.js";
import { helloWith, live, network, openPage, says, URL, useNetwork } from "./attempts.js";

useVirtualClock();
useNetwork();

const REFUSED = '{"resumed":{"refused":"unknown-session"}}';

const added = (): string[] => network.attempts.map(({ url }) => url.slice(URL.length));

it("a client whose session has a route does not add it when the session has ended, and adds that of the next session", async () => {
  network.script = says(helloWith({ route: "n7" }));
  await live();
  network.dismiss({ code: 4001, reason: "" });
  await pass(10);
  network.script = says(helloWith({ route: "n8" }), REFUSED);
  network.cut();
  // This server does not have the session: its hello on the same socket begins another one.
  await pass(500);
  network.cut();
  await pass(1000);
  expect(added()).toEqual(["", "", "?node=n7", "?node=n8"]);
});

it("a client whose session has a route refuses one that no URL can carry as a breach of the protocol, and connects again", async () => {
  const routes = ["a\ud800", "\udc00", "n7"];
  network.script = (webSocket, attempt) => says(helloWith({ route: routes.shift()! }))(webSocket, attempt);
  openPage({ reconnect: { initial: true } });
  await pass(2000);
  expect(network.attempts.map(({ webSocket }) => webSocket.readyState)).toEqual([3, 3, 1]);
});

it("a server accepts every client, whatever its URL says about a route", async () => {
  await using server = testServer<any, any>({ session: { route: "n7" } });
  await using peer = await server.connect(`${URL}?node=n8`);
  expect(peer.state).toBe("open");
});

it("a server takes a route of 64 letters, digits and `.`, `_`, `-`, and refuses any other", async () => {
  for (const route of ["", "a b", "a&b", "x".repeat(65), 7, null])
    await expect(serve({ noServer: true, session: { route: route as string } })).rejects.toThrow("`session.route`");
  await using server = await serve({ noServer: true, session: { route: `A.z_-9${"x".repeat(58)}` } });
  expect(server.url).toBe("");
});
