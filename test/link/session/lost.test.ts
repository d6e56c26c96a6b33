/** Messages of a lost connection never reach the next connection, whenever the loss is noticed. */
import { describe, expect, it } from "vitest";
import { Peer, type AnyPeer } from "../../../src/index.js";
import { useFakeClock } from "../../support/clock.js";
import { heldBy } from "../../support/links.js";
import { notification, request } from "../../support/raw.js";
import { message, numbers, packs, Rig } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

/** Three messages in one frame. */
const PACK = `[${[1, 2, 3].map((n) => message(n)).join(",")}]`;

/** Calls `act` when the client's receiver gets a message. */
function onMessage(rig: Rig, act: () => void): void {
  rig.emitted.dispatch = (value) => {
    rig.emitted.messages.push(value);
    act();
  };
}

describe("a loss in the middle of a pack", () => {
  it("dispatches nothing more of the pack to a peer, nor on the next connection", async () => {
    await using rig = new Rig();
    // Without a session, a lost socket loses all messages.
    rig.wire.client.inject('{"hello":{}}');
    const ran: unknown[] = [];
    const peer: AnyPeer = new Peer(rig.client.link, {
      methods: {
        leave: () => rig.client.link.giveUp("it is quiet"),
        run: (params: unknown) => void ran.push(params),
      },
    });
    rig.wire.client.inject(JSON.stringify([request(1, "leave"), request(2, "run", [2]), notification("run", [3])]));
    await microtasks();
    expect(peer.state).toBe("suspended");
    await rig.comeBack();
    expect(ran).toEqual([]);
    // The response to "leave" was lost with its connection.
    expect(packs(rig.wire.client.sent)).toEqual([]);
    rig.server.link.send(JSON.stringify(notification("run", [4])));
    await rig.settle();
    expect(ran).toEqual([[4]]);
  });

  it("loses nothing in a session: the rest of the pack has arrived", async () => {
    await using rig = await Rig.live();
    onMessage(rig, () => rig.client.link.giveUp("it is quiet"));
    for (const n of [1, 2, 3]) rig.server.link.send(message(n));
    await rig.settle();
    expect(packs(rig.wire.server.sent)).toEqual([PACK]);
    await rig.comeBack();
    expect(numbers(rig.emitted)).toEqual([1, 2, 3]);
    expect(rig.emitted.notices).toEqual(["suspended", "resumed"]);
  });

  it("discards the rest of the pack for the side that closed", async () => {
    await using rig = await Rig.live();
    onMessage(rig, () => rig.client.link.close());
    rig.wire.client.inject(PACK);
    expect(numbers(rig.emitted)).toEqual([1]);
  });
});

describe("a receiver whose connection is lost", () => {
  it("sends nothing to the next connection: messages sent by a `suspended` hook belong to the lost one", async () => {
    await using rig = await Rig.live();
    const { link } = rig.client;
    const taken: boolean[] = [];
    Object.assign(rig.emitted, { suspended: () => taken.push(link.send(message("of the old"))) });
    rig.cut({ code: 1008, reason: "" });
    expect(taken).toEqual([false]);
    expect([heldBy(link), heldBy(rig.client.link)]).toEqual([0, 0]);
    rig.client.link.send(message("of the new"));
    await rig.comeBack();
    expect(numbers(rig.server.emitted)).toEqual(["of the new"]);
  });
});
