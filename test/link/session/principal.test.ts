/** Rule 10, and the limits of suspended sessions. */
import { describe, expect, it } from "vitest";
import { sendEncoded, TestClient } from "../../support/links.js";
import { EncodedMessage } from "../../../src/core/transport.js";
import { useFakeClock } from "../../support/clock.js";
import { LIMITS, message, REFUSED, resume, Rig, ToldLost, type ServerSide } from "./rig.js";
import { microtasks } from "./wire.js";

useFakeClock();

describe("a principal (rule 10)", () => {
  it.each([
    ["alice", "mallory"],
    ["alice", undefined],
    [undefined, "mallory"],
    ["", undefined],
  ])("keeps a session of %j hidden from %j, and unchanged", async (owner, other) => {
    await using rig = await Rig.live(owner === undefined ? {} : { principal: owner });
    rig.client.link.send(message(1));
    await microtasks();
    rig.cut();
    const server = rig.arrival(true, { principal: other });
    server.inject(resume("secret-1", 0, 99));
    expect(server.sent.at(-1)).toBe(REFUSED);
    expect(rig.sessions.suspended).toBe(1);
    // Its attempt number does not count either.
    await rig.comeBack();
    expect(rig.emitted.notices).toEqual(["suspended", "resumed"]);
    expect(rig.server.emitted.messages).toEqual([{ n: 1 }]);
  });
});

/** Opens sessions of other clients, one for each principal. Returns the server's end of each. */
async function open(rig: Rig, principals: readonly (string | undefined)[]): Promise<(ServerSide & { cut(): void })[]> {
  const ends = [];
  for (const principal of principals) {
    const wire = rig.open(false, { principal });
    const client = new TestClient(wire.client, LIMITS, { over: () => false });
    client.link.start(new ToldLost());
    rig.others.push(client);
    await wire.settle();
    ends.push({ ...rig.server, cut: () => wire.server.cut() });
  }
  return ends;
}

const hasEnded = ({ emitted }: ServerSide): boolean => emitted.notices.length === 2;

describe("the limits of suspended sessions", () => {
  it("evicts the oldest session first, and sessions without a principal before the others", async () => {
    await using rig = await Rig.live();
    const ends = await open(rig, ["alice", undefined, "bob", undefined, "alice"]);
    // A session with a socket is never evicted.
    rig.sessions.evict("full");
    // The order of losing the sockets counts, not the order of opening the sessions.
    for (const i of [2, 3, 1, 4, 0]) ends[i]!.cut();
    await microtasks();
    const order: number[][] = [];
    for (let i = 0; i < 5; i++) {
      rig.sessions.evict("full");
      expect(rig.sessions.suspended).toBe(4 - i);
      await microtasks();
      order.push([...ends.keys()].filter((one) => hasEnded(ends[one]!)));
    }
    expect(order).toEqual([[3], [1, 3], [1, 2, 3], [1, 2, 3, 4], [0, 1, 2, 3, 4]]);
    expect(ends[0]!.emitted.notices.at(-1)).toEqual({ closed: { code: 1013, reason: "full" } });
    rig.sessions.evict("full");
    expect(rig.sessions.held).toBe(0);
  });

  it("does not evict a session that was resumed", async () => {
    await using rig = await Rig.live();
    await rig.cutAndResume();
    expect(rig.sessions.live).toBe(1);
    rig.sessions.evict("full");
    await microtasks();
    expect(rig.emitted.notices.at(-1)).toBe("resumed");
    rig.server.link.close();
    expect(rig.sessions.live).toBe(0);
  });

  it("ends the oldest session of a principal beyond its limit, and no other principal's", async () => {
    await using rig = await Rig.live({ sessions: { maxSuspendedPerPrincipal: 2 } });
    const ends = await open(rig, ["alice", "bob", "alice", "alice", "alice"]);
    for (const end of ends) end.cut();
    await microtasks();
    expect(ends.map(hasEnded)).toEqual([true, false, true, false, false]);
    expect(ends[0]!.emitted.notices.at(-1)).toMatchObject({ closed: { code: 1013 } });
    expect(rig.sessions.suspended).toBe(3);
  });

  it("does not count resumed sessions", async () => {
    await using rig = await Rig.live({ principal: "alice", sessions: { maxSuspendedPerPrincipal: 1 } });
    for (let i = 0; i < 5; i++) await rig.cutAndResume();
    expect(rig.emitted.notices.at(-1)).toBe("resumed");
  });

  it("has no such limit without a principal", async () => {
    await using rig = await Rig.live({ sessions: { maxSuspendedPerPrincipal: 2 } });
    for (const end of await open(rig, Array(30).fill(undefined))) end.cut();
    await microtasks();
    expect(rig.sessions.suspended).toBe(30);
  });

  it("ends the session that holds most beyond the common byte limit", async () => {
    await using rig = await Rig.live({ sessions: { maxHeldLength: 9000 } });
    const ends = await open(rig, Array(3).fill(undefined));
    const [small, large, other] = ends;
    small!.link.send(message(1, 1000));
    large!.link.send(message(2, 4000));
    await microtasks();
    for (const end of ends) end.cut();
    expect(rig.sessions.held).toBeGreaterThan(5000);
    other!.link.send(message(3, 2000));
    await microtasks();
    expect(rig.sessions.suspended).toBe(3);
    other!.link.send(message(4, 2000));
    await microtasks();
    expect(rig.sessions.suspended).toBe(2);
    expect(rig.sessions.held).toBeLessThan(6000);
    // The other session holds 4013 and 64, the large session 4013. So the other session has grown to the largest.
    expect(ends.map(hasEnded)).toEqual([false, false, true]);
  });

  it("keeps its sessions despite broadcasts, which use a quarter of the common limit and leave all of it to other messages", async () => {
    await using rig = await Rig.live({ sessions: { maxHeldLength: 40_000 } });
    const ends = await open(rig, Array(4).fill(undefined));
    for (const end of ends) end.cut();
    const links = ends.map(({ link }) => link);
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
  });

  it("counts the bytes that a session holds when it loses its socket", async () => {
    await using rig = await Rig.live({ sessions: { maxHeldLength: 3000 } });
    rig.server.link.send(message(1, 4000));
    await microtasks();
    rig.cut();
    await microtasks();
    expect(rig.server.emitted.notices).toMatchObject(["suspended", { closed: { code: 1013 } }]);
    expect(rig.sessions).toMatchObject({ suspended: 0, held: 0 });
  });

  it("counts the bytes that peers hold, and ends the peer that holds most beyond the limit", async () => {
    await using rig = await Rig.live({ sessions: { maxHeldLength: 9000 } });
    const ends = await open(rig, Array(2).fill(undefined));
    const [quiet, streaming] = ends;
    quiet!.link.keeps(3000);
    streaming!.link.keeps(5000);
    for (const end of ends) end.cut();
    expect(rig.sessions.held).toBe(8000);
    streaming!.link.keeps(1001);
    await microtasks();
    expect(streaming!.emitted.notices).toMatchObject(["suspended", { closed: { code: 1013 } }]);
    expect(rig.sessions.held).toBe(3000);
    // The peer's streams end when it is closed.
    streaming!.link.keeps(-6001);
    expect(rig.sessions.held).toBe(3000);
    quiet!.link.keeps(-3000);
  });

  it("counts exactly after messages are sent, cancelled, resumed and discarded", async () => {
    await using rig = await Rig.live();
    const { link } = rig.server;
    for (let i = 0; i < 10; i++) {
      rig.cut();
      const handles = [1, 2, 3].map(() => ({ sent: true }));
      for (const handle of handles) link.send(message(i, 100 * i), handle);
      link.cancel(handles[1]!);
      sendEncoded(link, new EncodedMessage(message(i, 50)));
      // Bytes that the peer holds, such as values that a stream has read ahead.
      for (const by of [1000 * i, -300 * i]) {
        link.keeps(by);
        expect(rig.sessions.held).toBe(link.heldLength + link.heldBroadcastLength);
      }
      expect(rig.sessions.held).toBeGreaterThanOrEqual(700 * i + 200 * i);
      await rig.comeBack();
      expect(rig.sessions).toMatchObject({ held: 0, suspended: 0 });
      link.keeps(-700 * i);
    }
  });
});
