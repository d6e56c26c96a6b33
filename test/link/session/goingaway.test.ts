/** A server that goes away: `bye` with `retryMs`, and sockets that have not sent hello or `resume` yet. */
import { describe, expect, it } from "vitest";
import { plain } from "../../../src/link/plain.js";
import { useFakeClock } from "../../support/clock.js";
import { clientLink, serverLink } from "../../support/links.js";
import { controls, message, numbers, resume, Rig, Told } from "./rig.js";
import { Wire } from "./wire.js";

useFakeClock();

const BYE = '{"bye":{"code":1001,"reason":"going away","retryMs":5000}}';
const END = { code: 1001, reason: "going away", retryMs: 5000 };

describe("a close with `retryMs`", () => {
  it("sends `retryMs` in its bye, and the other side reports it to its owner", async () => {
    const rig = await Rig.live();
    rig.server.link.send(message(1));
    rig.server.link.close(1001, "going away", 5000);
    expect(rig.wire.server.sent.slice(-2)).toEqual(['[{"n":1}]', BYE]);
    await rig.settle();
    expect(numbers(rig.told)).toEqual([1]);
    expect(rig.ends).toEqual([END]);
    expect(rig.told.notices).toEqual(["suspended", { lost: "the session ended with 1001 (going away)" }]);
    await rig.close();
  });

  it("is reported as the close by a client that does not reconnect", async () => {
    const rig = await Rig.live({ reconnects: false });
    rig.server.link.close(1001, "going away", 5000);
    await rig.settle();
    expect(rig.ends).toEqual([END]);
    expect(rig.told.notices).toEqual([{ closed: END }]);
    await rig.close();
  });

  it("sends 0 too, which means at once", async () => {
    const rig = await Rig.live();
    rig.server.link.close(1001, "", 0);
    await rig.settle();
    expect(rig.ends).toEqual([{ code: 1001, reason: "", retryMs: 0 }]);
    await rig.close();
  });

  it("sends bye also without a session, to a client that can reconnect", async () => {
    const rig = new Rig();
    rig.wire.client.inject('{"hello":{}}');
    rig.wire.client.inFlight.length = 0;
    rig.server.link.close(1001, "going away", 5000);
    expect(rig.wire.server.sent.slice(1)).toEqual([BYE]);
    await rig.settle();
    expect(rig.ends).toEqual([END]);
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1001") }]);
    await rig.close();
  });

  it("ends a link without sessions by its close, because that link ignores bye", async () => {
    const wire = new Wire();
    const [server, client] = [serverLink(wire.server), clientLink(wire.client)];
    const told = new Told();
    server.start(new Told());
    client.start(told);
    await wire.settle();
    server.close(1001, "going away", 5000);
    await wire.settle();
    expect(wire.server.sent.at(-1)).toBe(BYE);
    expect(told.notices).toEqual([{ closed: { code: 1001, reason: "going away" } }]);
  });

  it("sends no bye without `retryMs` and without a session, nor over a plain link", async () => {
    const rig = new Rig();
    const declined = rig.open(false);
    declined.server.inject('{"hello":{}}');
    rig.server.link.close(1001, "going away");
    expect(declined.server.sent).toHaveLength(1);
    expect(declined.server.closedWith).toEqual({ code: 1001, reason: "going away" });
    const wire = new Wire();
    const client = clientLink(wire.client);
    client.start(new Told());
    plain(wire.server).start(new Told());
    client.close(1001, "going away", 5000);
    expect(wire.client.sent).toEqual([]);
    await rig.close();
  });

  it("sends nothing while suspended, and settles at once", async () => {
    const rig = await Rig.live();
    rig.cut();
    rig.server.link.close(1001, "going away", 5000);
    expect(rig.server.told.notices.at(-1)).toEqual({ closed: { code: 1001, reason: "going away" } });
    await rig.close();
  });
});

describe("`retryMs` of a bye", () => {
  it.each([-1, 0.5, "5000", null, true, 2 ** 53])(
    "is a whole number: %j is read as 1000 without a reason",
    async (retryMs) => {
      const rig = await Rig.live();
      rig.wire.client.inject(JSON.stringify({ bye: { code: 1001, reason: "going away", retryMs } }));
      rig.wire.client.cut();
      expect(rig.ends).toEqual([{ code: 1000, reason: "" }]);
      await rig.close();
    },
  );

  it("is accepted in place of `resumed`", async () => {
    const rig = await Rig.live();
    rig.cut();
    const { client } = rig.reconnect();
    client.deliver();
    client.inject(BYE);
    client.cut();
    expect(rig.ends).toEqual([END]);
    await rig.close();
  });
});

describe("closing all pending sockets", () => {
  it("closes sockets that have sent neither hello nor `resume`, and reads nothing more from them", async () => {
    const rig = await Rig.live();
    rig.cut();
    const [first, second] = [rig.reconnect(), rig.open(true)];
    second.client.start({ frame() {}, closed() {} });
    rig.sessions.shut(1001, "the server is closing");
    for (const { server } of [first, second]) {
      expect(server.closedWith).toEqual({ code: 1001, reason: "the server is closing" });
      server.inject(resume("secret-1"));
      server.inject('{"hello":{}}');
      expect(server.sent).toHaveLength(1);
    }
    expect(rig.servers).toHaveLength(1);
    expect(rig.sessions.suspended).toBe(1);
    await rig.close();
  });

  it("closes a socket whose `resume` was refused and that has not sent hello", async () => {
    const rig = await Rig.live();
    const { client, server } = rig.open(true);
    client.start({ frame() {}, closed() {} });
    server.inject(resume("wrong"));
    rig.sessions.shut(1001, "");
    expect(server.closedWith).toMatchObject({ code: 1001 });
    await rig.close();
  });

  it("spares sockets that resumed, began a new session, failed or were closed", async () => {
    const rig = await Rig.live();
    await rig.cutAndResume();
    const [anew, failed, gone] = [rig.open(true), rig.open(true), rig.open(true)];
    for (const { client } of [anew, failed, gone]) client.start({ frame() {}, closed() {} });
    anew.server.inject('{"hello":{}}');
    failed.server.inject("nonsense");
    gone.server.cut();
    rig.sessions.shut(1001, "");
    expect(rig.wires[1]!.server.open).toBe(true);
    expect(anew.server.open).toBe(true);
    expect(failed.server.closedWith).toMatchObject({ code: 1002 });
    expect(gone.server.closedWith).toBeUndefined();
    await rig.close();
  });
});

describe("`resumed` of the options", () => {
  it("is called once for each resumed session, and not for new or refused ones", async () => {
    let resumed = 0;
    const rig = await Rig.live({ sessions: { resumed: () => resumed++ } });
    expect(resumed).toBe(0);
    await rig.cutAndResume();
    await rig.cutAndResume();
    expect(resumed).toBe(2);
    rig.cut();
    rig.server.link.close();
    rig.reconnect();
    await rig.settle();
    expect(controls(rig.wire.server.sent)[1]).toEqual({ resumed: { refused: "unknown-session" } });
    expect(resumed).toBe(2);
    await rig.close();
  });
});
