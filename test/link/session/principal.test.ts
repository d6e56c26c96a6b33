/** Rule 10, and the limits of suspended sessions. */
import { sendEncoded } from "../../support/links.js";
import { describe, expect, it } from "vitest";
import { TestClient } from "../../support/links.js";
import { EncodedMessage } from "../../../src/core/transport.js";
import { useFakeClock } from "../../support/clock.js";
import { LIMITS, message, resume, Rig, ToldLost, type RigOptions } from "./rig.js";
import { microtasks, type Wire } from "./wire.js";

useFakeClock();

const REFUSED = '{"resumed":{"refused":"unknown-session"}}';

describe("a principal (rule 10)", () => {
  it.each([
    ["alice", "mallory"],
    ["alice", undefined],
    [undefined, "mallory"],
    ["", undefined],
  ])("keeps a session of %j hidden from %j, and unchanged", async (owner, other) => {
    const rig = await Rig.live(owner === undefined ? {} : { principal: owner });
    rig.client.link.send(message(1));
    await microtasks();
    rig.cut();
    const wire = rig.openAs(other);
    wire.client.start({ frame() {}, closed() {} });
    wire.server.inject(resume("secret-1", 0, 99));
    expect(wire.server.sent.at(-1)).toBe(REFUSED);
    expect(rig.sessions.suspended).toBe(1);
    // Its attempt number does not count either.
    rig.reconnect();
    await rig.settle();
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    expect(rig.server.told.messages).toEqual([{ n: 1 }]);
    await rig.close();
  });
});

/** Makes `count` clients of one server, each with a session. */
async function many(
  count: number,
  options: RigOptions & { principals?: (i: number) => string | undefined },
): Promise<{
  rig: Rig;
  wires: Wire[];
}> {
  const rig = await Rig.live(options);
  const wires: Wire[] = [];
  for (let i = 0; i < count; i++) {
    const wire = rig.openFresh(options.principals?.(i));
    const client = new TestClient(wire.client, LIMITS, { over: () => false });
    client.link.start(new ToldLost());
    rig.others.push(client);
    await wire.settle();
    wires.push(wire);
  }
  return { rig, wires };
}

describe("the limits of suspended sessions", () => {
  it("evicts the oldest session first, and sessions without a principal before the others", async () => {
    const principals = ["alice", undefined, "bob", undefined, "alice"];
    const { rig, wires } = await many(5, { principals: (i) => principals[i] });
    const over = (): number[] => rig.servers.slice(1).flatMap(({ told }, i) => (told.notices.length === 2 ? [i] : []));
    // A session with a socket is never evicted.
    rig.sessions.evict("full");
    // The order of losing the sockets counts, not the order of opening the sessions.
    for (const i of [2, 3, 1, 4, 0]) wires[i]!.server.cut();
    await microtasks();
    const order: number[][] = [];
    for (let i = 0; i < 5; i++) {
      rig.sessions.evict("full");
      expect(rig.sessions.suspended).toBe(4 - i);
      await microtasks();
      order.push(over());
    }
    expect(order).toEqual([[3], [1, 3], [1, 2, 3], [1, 2, 3, 4], [0, 1, 2, 3, 4]]);
    expect(rig.servers[1]!.told.notices.at(-1)).toEqual({ closed: { code: 1013, reason: "full" } });
    rig.sessions.evict("full");
    expect(rig.sessions.held).toBe(0);
    await rig.close();
  });

  it("does not evict a session that was resumed", async () => {
    const rig = await Rig.live();
    await rig.cutAndResume();
    expect(rig.sessions.live).toBe(1);
    rig.sessions.evict("full");
    await microtasks();
    expect(rig.told.notices.at(-1)).toBe("resumed");
    await rig.close();
    expect(rig.sessions.live).toBe(0);
  });

  it("ends the oldest session of a principal beyond its limit, and no other principal's", async () => {
    const { rig, wires } = await many(5, {
      sessions: { maxSuspendedPerPrincipal: 2 },
      principals: (i) => (i === 1 ? "bob" : "alice"),
    });
    for (const { server } of wires) server.cut();
    await microtasks();
    const over = rig.servers.slice(1).map(({ told }) => told.notices.length === 2);
    expect(over).toEqual([true, false, true, false, false]);
    expect(rig.servers[1]!.told.notices.at(-1)).toMatchObject({ closed: { code: 1013 } });
    expect(rig.sessions.suspended).toBe(3);
    await rig.close();
  });

  it("does not count resumed sessions", async () => {
    const rig = await Rig.live({ principal: "alice", sessions: { maxSuspendedPerPrincipal: 1 } });
    for (let i = 0; i < 5; i++) await rig.cutAndResume();
    expect(rig.told.notices.at(-1)).toBe("resumed");
    await rig.close();
  });

  it("has no such limit without a principal", async () => {
    const { rig, wires } = await many(30, { sessions: { maxSuspendedPerPrincipal: 2 } });
    for (const { server } of wires) server.cut();
    await microtasks();
    expect(rig.sessions.suspended).toBe(30);
    await rig.close();
  });

  it("ends the session that holds most beyond the common byte limit", async () => {
    const { rig, wires } = await many(3, { sessions: { maxHeldLength: 9000 } });
    const [small, large, other] = rig.servers.slice(1);
    small!.link.send(message(1, 1000));
    large!.link.send(message(2, 4000));
    await microtasks();
    for (const { server } of wires) server.cut();
    expect(rig.sessions.held).toBeGreaterThan(5000);
    other!.link.send(message(3, 2000));
    await microtasks();
    expect(rig.sessions.suspended).toBe(3);
    other!.link.send(message(4, 2000));
    await microtasks();
    expect(rig.sessions.suspended).toBe(2);
    expect(rig.sessions.held).toBeLessThan(6000);
    const over = [small, large, other].map((end) => end!.told.notices.length === 2);
    // The other session holds 4013 and 64, the large session 4013. So the other session has grown to the largest.
    expect(over).toEqual([false, false, true]);
    await rig.close();
  });

  it("keeps its sessions despite broadcasts, which use a quarter of the common limit and leave all of it to other messages", async () => {
    const { rig, wires } = await many(4, { sessions: { maxHeldLength: 40_000 } });
    for (const { server } of wires) server.cut();
    const links = rig.servers.slice(1).map(({ link }) => link);
    const broadcast = new EncodedMessage(message("b", 1000));
    let taken = 0;
    for (let i = 0; i < 40; i++) for (const link of links) if (sendEncoded(link, broadcast)) taken++;
    expect(taken).toBe(9);
    expect(rig.sessions.held).toBeGreaterThan(9 * 1000);
    expect(rig.sessions.held).toBeLessThanOrEqual(40_000 / 4);
    for (let i = 0; i < 9; i++) expect(links[i % 4]!.send(message(i, 4000))).toBe(true);
    await microtasks();
    expect(rig.sessions.suspended).toBe(4);
    expect(links[0]!.send(message(9, 4000))).toBe(true);
    expect(rig.sessions.suspended).toBe(3);
    await rig.close();
  });

  it("counts the bytes that a session holds when it loses its socket", async () => {
    const rig = await Rig.live({ sessions: { maxHeldLength: 3000 } });
    rig.server.link.send(message(1, 4000));
    await microtasks();
    rig.cut();
    await microtasks();
    expect(rig.server.told.notices).toMatchObject(["suspended", { closed: { code: 1013 } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, held: 0 });
    await rig.close();
  });

  it("counts the bytes that peers hold, and ends the peer that holds most beyond the limit", async () => {
    const { rig, wires } = await many(2, { sessions: { maxHeldLength: 9000 } });
    const [quiet, streaming] = rig.servers.slice(1);
    quiet!.link.keeps(3000);
    streaming!.link.keeps(5000);
    for (const { server } of wires) server.cut();
    expect(rig.sessions.held).toBe(8000);
    streaming!.link.keeps(1001);
    await microtasks();
    expect(streaming!.told.notices).toMatchObject(["suspended", { closed: { code: 1013 } }]);
    expect(rig.sessions.held).toBe(3000);
    // The peer's streams end when it is closed.
    streaming!.link.keeps(-6001);
    expect(rig.sessions.held).toBe(3000);
    quiet!.link.keeps(-3000);
    await rig.close();
  });

  it("counts exactly after messages are sent, cancelled, resumed and discarded", async () => {
    const rig = await Rig.live();
    for (let i = 0; i < 10; i++) {
      rig.cut();
      const tickets = [1, 2, 3].map(() => ({ sent: true }));
      for (const ticket of tickets) rig.server.link.send(message(i, 100 * i), ticket);
      rig.server.link.cancel(tickets[1]!);
      sendEncoded(rig.server.link, new EncodedMessage(message(i, 50)));
      // Bytes that the peer holds, such as values that a stream has read ahead.
      rig.server.link.keeps(1000 * i);
      expect(rig.sessions.held).toBe(rig.server.link.heldLength + rig.server.link.heldBroadcastLength);
      rig.server.link.keeps(-300 * i);
      expect(rig.sessions.held).toBe(rig.server.link.heldLength + rig.server.link.heldBroadcastLength);
      expect(rig.sessions.held).toBeGreaterThanOrEqual(700 * i + 200 * i);
      rig.reconnect();
      await rig.settle();
      expect(rig.sessions).toMatchObject({ held: 0, suspended: 0 });
      rig.server.link.keeps(-700 * i);
    }
    await rig.close();
  });
});
