/** A server that goes away: `bye` with `retryMs`, and sockets that have not sent hello or `resume` yet. */
import { describe, expect, it } from "vitest";
import { plain } from "../../../src/link/plain.js";
import { useFakeClock } from "../../support/clock.js";
import { clientLink, serverLink } from "../../support/links.js";
import { message, numbers, resume, Rig, Told } from "./rig.js";
import { Wire } from "./wire.js";

useFakeClock();

const BYE = '{"bye":{"code":1001,"reason":"going away","retryMs":5000}}';
const END = { code: 1001, reason: "going away", retryMs: 5000 };

describe("a close with `retryMs`", () => {
  it.each([5000, 0])("sends it in its bye, and the other side reports it to its owner: %i", async (retryMs) => {
    await using rig = await Rig.live();
    rig.server.link.send(message(1));
    rig.server.link.close(1001, "going away", retryMs);
    expect(rig.wire.server.sent.slice(-2)).toEqual(['[{"n":1}]', JSON.stringify({ bye: { ...END, retryMs } })]);
    await rig.settle();
    expect(numbers(rig.emitted)).toEqual([1]);
    expect(rig.ends).toEqual([{ ...END, retryMs }]);
    expect(rig.emitted.notices).toEqual(["suspended", { lost: "the session ended with 1001 (going away)" }]);
  });

  it("sends bye also without a session, to a client that can reconnect", async () => {
    await using rig = new Rig();
    rig.wire.client.inject('{"hello":{}}');
    rig.wire.client.inFlight.length = 0;
    rig.server.link.close(1001, "going away", 5000);
    expect(rig.wire.server.sent.slice(1)).toEqual([BYE]);
    await rig.settle();
    expect(rig.ends).toEqual([END]);
    expect(rig.emitted.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1001") }]);
  });

  it("ends a link without sessions by its close, because that link ignores bye", async () => {
    const wire = new Wire();
    const [server, client] = [serverLink(wire.server), clientLink(wire.client)];
    const emitted = new Told();
    server.start(new Told());
    client.start(emitted);
    await wire.settle();
    server.close(1001, "going away", 5000);
    await wire.settle();
    expect(wire.server.sent.at(-1)).toBe(BYE);
    expect(emitted.notices).toEqual([{ closed: { code: 1001, reason: "going away" } }]);
  });

  it("sends no bye without `retryMs` and without a session, nor over a plain link", async () => {
    await using rig = new Rig();
    const declined = rig.arrival(false);
    declined.inject('{"hello":{}}');
    rig.server.link.close(1001, "going away");
    expect(declined.sent).toHaveLength(1);
    expect(declined.closedWith).toEqual({ code: 1001, reason: "going away" });
    const wire = new Wire();
    const client = clientLink(wire.client);
    client.start(new Told());
    plain(wire.server).start(new Told());
    client.close(1001, "going away", 5000);
    expect(wire.client.sent).toEqual([]);
  });
});

describe("closing all pending sockets", () => {
  it("closes sockets that have sent neither hello nor `resume`, or were refused, and reads nothing more from them", async () => {
    await using rig = await Rig.live();
    rig.cut();
    const servers = [rig.reconnect().server, rig.arrival(), rig.arrival()];
    servers[2]!.inject(resume("wrong"));
    rig.sessions.shut({ code: 1001, reason: "the server is closing" });
    for (const server of servers) {
      const { length } = server.sent;
      expect(server.closedWith).toEqual({ code: 1001, reason: "the server is closing" });
      server.inject(resume("secret-1"));
      server.inject('{"hello":{}}');
      expect(server.sent).toHaveLength(length);
    }
    expect(rig.servers).toHaveLength(1);
    expect(rig.sessions.suspended).toBe(1);
  });

  it("spares sockets that resumed, began a new session, failed or were closed", async () => {
    await using rig = await Rig.live();
    await rig.cutAndResume();
    const [fresh, failed, gone] = [rig.arrival(), rig.arrival(), rig.arrival()];
    fresh.inject('{"hello":{}}');
    failed.inject("nonsense");
    gone.cut();
    rig.sessions.shut({ code: 1001, reason: "" });
    expect(rig.wires[1]!.server.open).toBe(true);
    expect(fresh.open).toBe(true);
    expect(failed.closedWith).toMatchObject({ code: 1002 });
    expect(gone.closedWith).toBeUndefined();
  });
});
