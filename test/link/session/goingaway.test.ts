/** A server that goes away: `bye` with `retryMs`, and those who have not said yet whether they return. */
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
  it("says so in its bye, and the other side's owner is told", async () => {
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

  it("is told as the end to a client that does not come back", async () => {
    const rig = await Rig.live({ comesBack: false });
    rig.server.link.close(1001, "going away", 5000);
    await rig.settle();
    expect(rig.ends).toEqual([END]);
    expect(rig.told.notices).toEqual([{ closed: END }]);
    await rig.close();
  });

  it("of 0 says that too: at once", async () => {
    const rig = await Rig.live();
    rig.server.link.close(1001, "", 0);
    await rig.settle();
    expect(rig.ends).toEqual([{ code: 1001, reason: "", retryMs: 0 }]);
    await rig.close();
  });

  it("says bye also where there is no session, to a client that may come back", async () => {
    const rig = new Rig();
    rig.wire.client.inject('{"hello":{}}');
    rig.wire.client.underWay.length = 0;
    rig.server.link.close(1001, "going away", 5000);
    expect(rig.wire.server.sent.slice(1)).toEqual([BYE]);
    await rig.settle();
    expect(rig.ends).toEqual([END]);
    expect(rig.told.notices).toMatchObject(["suspended", { lost: expect.stringContaining("1001") }]);
    await rig.close();
  });

  it("ends a link that takes no session with its close, whose bye is one frame more to be ignored", async () => {
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

  it("says no bye without it where there is no session, nor to whoever speaks plainly", async () => {
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

  it("is not heard by anybody while suspended, and settles at once", async () => {
    const rig = await Rig.live();
    rig.cut();
    rig.server.link.close(1001, "going away", 5000);
    expect(rig.server.told.notices.at(-1)).toEqual({ closed: { code: 1001, reason: "going away" } });
    await rig.close();
  });
});

describe("`retryMs` of a bye", () => {
  it.each([-1, 0.5, "5000", null, true, 2 ** 53])(
    "is a whole number, and %j is read as 1000 without a reason",
    async (retryMs) => {
      const rig = await Rig.live();
      rig.wire.client.inject(JSON.stringify({ bye: { code: 1001, reason: "going away", retryMs } }));
      rig.wire.client.cut();
      expect(rig.ends).toEqual([{ code: 1000, reason: "" }]);
      await rig.close();
    },
  );

  it("is believed where `resumed` was due", async () => {
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

describe("sessions that are shut", () => {
  it("close whoever has not said yet whether it returns, and read nothing more of it", async () => {
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

  it("close one that was refused, and has not begun anew", async () => {
    const rig = await Rig.live();
    const { client, server } = rig.open(true);
    client.start({ frame() {}, closed() {} });
    server.inject(resume("wrong"));
    rig.sessions.shut(1001, "");
    expect(server.closedWith).toMatchObject({ code: 1001 });
    await rig.close();
  });

  it("leave alone whoever resumed, began anew, failed or went away", async () => {
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
  it("is told once for each session that goes on, and not for fresh or refused ones", async () => {
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
