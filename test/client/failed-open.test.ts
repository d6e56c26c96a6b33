/** An `onOpen` that fails when the socket, on which it began, is lost already. */
import { expect, it } from "vitest";
import type { Dial } from "../../src/client/open.js";
import { Reconnector } from "../../src/client/reconnect.js";
import { NOBODY } from "../../src/core/settings.js";
import { Peer, type AnyPeer } from "../../src/index.js";
import { TestClient } from "../support/links.js";
import { openingOf } from "../../src/peer/peer.js";
import { settingsOf } from "../../src/peer/settings.js";
import { LIMITS, Rig } from "../link/session/rig.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { gate, rejection, turn } from "../support/turns.js";

useFakeClock();

it("gives up the connection that it was to open, and begins on another", async () => {
  const rig = await Rig.live();
  const opened = gate();
  const begun: Promise<unknown>[] = [];
  const reconnector = new Reconnector({
    onOpen: (server) => {
      begun.push(rejection(server.request("initialize")));
      return begun.length === 1 ? opened.promise : undefined;
    },
    comesBack: undefined,
    heartbeat: undefined,
    openTimeoutMs: 10_000,
    dial: (isResumable) => {
      const connect = async (): Promise<object> => ({ socket: rig.open(isResumable).client, hello: {} });
      return { connect, abandon: () => {} } as unknown as Dial;
    },
  });
  const client = new TestClient(rig.open(false).client, LIMITS, reconnector);
  client.hello({ session: true });
  const peer: AnyPeer = new Peer(client.link, settingsOf({}, { ...NOBODY, opensFirst: true }) as never);
  const told: unknown[] = [];
  for (const name of ["suspend", "lost", "resume"] as const) peer.on(name, () => told.push(name));
  peer.on("error", (error: unknown) => told.push(error));
  reconnector.begin(client, peer);
  openingOf(peer).release();
  await rig.settle();

  rig.cut({ code: 1008, reason: "" });
  await pass(0);
  await rig.settle();
  expect(begun).toHaveLength(1);
  // The session of which that is the beginning loses its socket, and then it fails.
  rig.cut();
  const why = new Error("not now");
  opened.reject(why);
  await turn();
  expect(await begun[0]).toMatchObject({ outcome: "unknown" });
  await pass(1000);
  await rig.settle();
  expect(begun).toHaveLength(2);
  expect(told).toEqual(["suspend", "lost", why, "lost", "resume"]);
  expect(peer.state).toBe("open");
  const closing = peer.close();
  await rig.settle();
  await closing;
  await rig.close();
  expectEmpty(peer);
});
