import { expect, it } from "vitest";
import { Peer, type AnyPeer, type Receiver, type Transport } from "../../src/index.js";
import { rejection } from "../support/turns.js";

/** A peer whose other side has stopped reading. */
function stuffed(): AnyPeer {
  let receiver!: Receiver;
  const transport: Transport = {
    unsentBytes: 11,
    start: (given) => (receiver = given),
    send: () => true,
    close: (code = 1000, reason = "") => receiver.closed({ code, reason }),
  };
  return new Peer(transport, { limits: { maxUnsentBytes: 10 } });
}

it("says of a call that found no room, and closed the connection, that it was not sent", async () => {
  expect(await rejection(stuffed().request("m"))).toMatchObject({ outcome: "not-sent" });
});

it("says so of the calls of a batch", async () => {
  const batch = stuffed().batch();
  const call = rejection(batch.request("m"));
  batch.send();
  expect(await call).toMatchObject({ outcome: "not-sent" });
});
