/** An `onOpen` that fails after the loss of the socket on which it began. */
import { expect, it } from "vitest";
import type { Admitted } from "../../src/client/open.js";
import { ClientDriver } from "../../src/client/driver.js";
import { defaultHooks } from "../../src/core/hooks.js";
import type { AnyPeer } from "../../src/index.js";
import { configOf } from "../../src/peer/config.js";
import { createPeer, openingOf, startPeer } from "../../src/peer/peer.js";
import { helloOf } from "../../src/session/frames.js";
import { PROTOCOL } from "../../src/session/link.js";
import { LIMITS, Rig } from "../link/session/rig.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { gate, rejection, turn } from "../support/turns.js";

useFakeClock();

it("closes the connection that it was to open, and begins on another", async () => {
  await using rig = await Rig.live();
  const opened = gate();
  const begun: Promise<unknown>[] = [];
  /** Makes a connection whose hello has been read, and is kept for the link. */
  const admit = (isResumable: boolean): Admitted => {
    const { client } = rig.open(isResumable);
    const hello = helloOf(client.inFlight[0] as string);
    return { socket: client, protocol: PROTOCOL, firstFrame: undefined, hello };
  };
  const driver = new ClientDriver(
    {
      limits: LIMITS,
      onOpen: (server) => {
        begun.push(rejection(server.request("initialize")));
        return begun.length === 1 ? opened.promise : undefined;
      },
      reconnects: undefined,
      heartbeat: undefined,
      openTimeoutMs: 10_000,
      connect: async (isResumable) => admit(isResumable),
    },
    admit(false),
  );
  driver.open();
  const peer: AnyPeer = createPeer(driver.link, configOf({}, true), defaultHooks());
  startPeer(peer);
  const told: unknown[] = [];
  for (const name of ["suspend", "lost", "resume"] as const) peer.on(name, () => told.push(name));
  peer.on("error", (error: unknown) => told.push(error));
  void driver.run(peer);
  openingOf(peer).release();
  await rig.settle();

  rig.cut({ code: 1008, reason: "" });
  await pass(0);
  await rig.settle();
  expect(begun).toHaveLength(1);
  // The new session loses its socket, and then `onOpen` fails.
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
  expectEmpty(peer);
});
