/** What was in a lost connection stays there: none of it reaches the one that goes on, whenever the loss comes. */
import { describe, expect, it } from "vitest";
import { Peer, type AnyPeer } from "../../../src/index.js";
import type { Transport } from "../../../src/core/transport.js";
import { useFakeClock } from "../../support/clock.js";
import { notification, request } from "../../support/raw.js";
import { rejection } from "../../support/turns.js";
import { controls, message, numbers, packs, Rig, Told } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

/** A rig on which messages flow without a session: its loss is the loss of everything. */
function flowing(): Rig {
  const rig = new Rig();
  rig.wire.client.inject('{"hello":{}}');
  return rig;
}

/** The receiver takes over the connection that follows, and closes it at once. */
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
  it("keeps the rest of it from the receiver, and from the one that goes on", async () => {
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

  it("runs nothing more of it above a peer, on the connection that goes on neither", async () => {
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
    // The answer that "leave" owed went down with its connection.
    expect(packs(rig.wire.client.sent)).toEqual([]);
    rig.server.link.send(JSON.stringify(notification("run", [4])));
    await rig.settle();
    expect(ran).toEqual([[4]]);
    await rig.close();
  });

  it("does not cost a session anything: its rest has come", async () => {
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

  it("by a close keeps the rest of it from whoever closed", async () => {
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

describe("a receiver that is told of its loss", () => {
  it("sends nothing to the connection that follows: what it sent when it was suspended is lost with it", async () => {
    const rig = await Rig.live();
    const { link } = rig.client;
    const taken: boolean[] = [];
    Object.assign(rig.told, { suspended: () => taken.push(link.send(message("of the old"))) });
    rig.cut({ code: 1008, reason: "" });
    expect(taken).toEqual([false]);
    expect([link.heldLength, rig.client.link.heldLength]).toEqual([0, 0]);
    rig.client.link.send(message("of the new"));
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual(["of the new"]);
    await rig.close();
  });

  it("above a peer: a call that is made in a `suspend` listener rejects as not sent, and is not", async () => {
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
  ])("may close there, %s: nothing is told or sent after it", async (_name, answer) => {
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

  it("may close there, on a link that is plain after all", async () => {
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
