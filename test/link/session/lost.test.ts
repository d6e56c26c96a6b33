/** Messages of a lost connection never reach the next connection, whenever the loss is noticed. */
import { describe, expect, it } from "vitest";
import { Peer, type AnyPeer } from "../../../src/index.js";
import type { Transport } from "../../../src/core/transport.js";
import { useFakeClock } from "../../support/clock.js";
import { heldBy } from "../../support/links.js";
import { notification, request } from "../../support/raw.js";
import { rejection } from "../../support/turns.js";
import { controls, message, numbers, packs, Rig, Told } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

/** Makes a rig whose messages flow without a session: a lost socket loses all of them. */
function flowing(): Rig {
  const rig = new Rig();
  rig.wire.client.inject('{"hello":{}}');
  return rig;
}

/** Closes the next connection as soon as the receiver gets it. */
function closeWhenLost(rig: Rig): void {
  const lost = (_error: Error, next: Transport): void => {
    next.start(rig.told);
    next.close(4003, "no more");
  };
  Object.assign(rig.told, { lost });
}

/** Three messages in one frame. */
const PACK = `[${[1, 2, 3].map((n) => message(n)).join(",")}]`;

describe("a loss in the middle of a pack", () => {
  it("discards the rest of the pack for the receiver and for the next connection", async () => {
    const rig = flowing();
    const next = new Told();
    rig.told.dispatch = (value) => {
      rig.told.messages.push(value);
      rig.client.link.giveUp("it is quiet");
    };
    Object.assign(rig.told, { lost: (_error: Error, link: Transport) => link.start(next) });
    rig.wire.client.inject(PACK);
    expect(numbers(rig.told)).toEqual([1]);
    expect(next.messages).toEqual([]);
    await rig.close();
  });

  it("dispatches nothing more of the pack to a peer, nor on the next connection", async () => {
    const rig = flowing();
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
    rig.reconnect();
    await rig.settle();
    expect(ran).toEqual([]);
    // The response to "leave" was lost with its connection.
    expect(packs(rig.wire.client.sent)).toEqual([]);
    rig.server.link.send(JSON.stringify(notification("run", [4])));
    await rig.settle();
    expect(ran).toEqual([[4]]);
    await rig.close();
  });

  it("loses nothing in a session: the rest of the pack has arrived", async () => {
    const rig = await Rig.live();
    rig.told.dispatch = (value) => {
      rig.told.messages.push(value);
      rig.client.link.giveUp("it is quiet");
    };
    for (const n of [1, 2, 3]) rig.server.link.send(message(n));
    await rig.settle();
    expect(packs(rig.wire.server.sent)).toEqual([PACK]);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.told)).toEqual([1, 2, 3]);
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    await rig.close();
  });

  it("discards the rest of the pack for the side that closed", async () => {
    const rig = await Rig.live();
    rig.told.dispatch = (value) => {
      rig.told.messages.push(value);
      rig.client.link.close();
    };
    rig.wire.client.inject(PACK);
    expect(numbers(rig.told)).toEqual([1]);
    await rig.close();
  });
});

describe("a receiver whose connection is lost", () => {
  it("sends nothing to the next connection: messages sent by a `suspended` hook belong to the lost one", async () => {
    const rig = await Rig.live();
    const { link } = rig.client;
    const taken: boolean[] = [];
    Object.assign(rig.told, { suspended: () => taken.push(link.send(message("of the old"))) });
    rig.cut({ code: 1008, reason: "" });
    expect(taken).toEqual([false]);
    expect([heldBy(link), heldBy(rig.client.link)]).toEqual([0, 0]);
    rig.client.link.send(message("of the new"));
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual(["of the new"]);
    await rig.close();
  });

  it("rejects a call that a peer's `suspend` listener makes as not sent, and does not send it", async () => {
    const rig = await Rig.live();
    const peer: AnyPeer = new Peer(rig.client.link, {});
    const calls: Promise<unknown>[] = [];
    peer.on("suspend", () => calls.push(rejection(peer.request("old"))));
    peer.on("lost", () => peer.notify("new"));
    rig.cut({ code: 1008, reason: "" });
    rig.reconnect();
    await rig.settle();
    expect(await Promise.all(calls)).toMatchObject([{ outcome: "not-sent" }]);
    expect(rig.server.told.messages).toEqual([notification("new")]);
    await rig.close();
  });

  it.each<[string, (rig: Rig) => void]>([
    ["that is refused", () => {}],
    ["whose server takes no sessions any more", (rig) => rig.wire.client.inject('{"hello":{}}')],
  ])("can close in its hook, %s: nothing is reported or sent after it", async (_name, answer) => {
    const rig = await Rig.live();
    rig.cut();
    rig.server.link.close();
    closeWhenLost(rig);
    const { client } = rig.reconnect();
    answer(rig);
    await rig.settle();
    expect(rig.told.notices).toEqual(["suspended", { closed: { code: 4003, reason: "no more" } }]);
    expect(rig.owner).toEqual(["suspended"]);
    expect(rig.client.link.endpoint.state.session).toBeUndefined();
    expect(controls(client.sent).filter((frame) => "hello" in (frame as object))).toEqual([]);
    await rig.close();
  });

  it("can close in its hook, on a link that turns out to be plain", async () => {
    const rig = await Rig.live();
    rig.cut();
    closeWhenLost(rig);
    const wire = rig.openBare();
    rig.client.attach(wire.client, "plain");
    wire.server.send(message("late"));
    await wire.settle();
    expect(rig.told.messages).toEqual([]);
    expect(rig.told.notices).toEqual(["suspended", { closed: { code: 4003, reason: "no more" } }]);
    expect(rig.owner).toEqual(["suspended"]);
    await rig.close();
  });
});
