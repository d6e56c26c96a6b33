import { describe, expect, it } from "vitest";
import { ConnectionLostError } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { rawPeer, type RawBehaviour } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";

useFakeClock();

const BROKEN: RawBehaviour = {
  onSend: () => {
    throw new Error("broken transport");
  },
};

describe("losing the connection", () => {
  it("rejects every pending call with outcome unknown and the cause", async () => {
    const { peer, cut } = rawPeer();
    const error = new Error("ECONNRESET");
    const calls = ["a", "b", "c"].map((method) => rejection(peer.request(method)));
    cut({ code: 1006, error });
    for (const [i, reason] of (await Promise.all(calls)).entries()) {
      expect(reason).toBeInstanceOf(ConnectionLostError);
      expect(reason).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown", cause: error });
      expect(reason.message).toBe(`"${"abc"[i]}" may have run: the connection was lost`);
    }
    expectEmpty(peer);
  });

  it("has the close code and reason as the cause if there is no error", async () => {
    const { peer, cut } = rawPeer();
    const call = peer.request("m");
    cut({ code: 1001, reason: "going away" });
    expect((await rejection(call)).cause).toMatchObject({ message: "closed with 1001 (going away)" });
  });

  it("rejects pending calls at once on close(), before the transport has ended", async () => {
    const { peer, cut } = rawPeer({}, { endsOnClose: false });
    const call = peer.request("m");
    const closing = peer.close(4000, "done here");
    expect(await rejection(call)).toMatchObject({ outcome: "unknown" });
    expect((await rejection(call)).cause).toMatchObject({ message: "closed on this side with 4000 (done here)" });
    cut();
    await closing;
  });
});

describe("a request on a closed peer", () => {
  it.each<[string, (raw: ReturnType<typeof rawPeer>) => unknown, string]>([
    ["this side", (raw) => raw.peer.close(), "closed on this side with 1000"],
    ["the other", (raw) => raw.cut({ code: 1001 }), "closed with 1001"],
  ])("rejects as not sent when %s closed", async (_name, end, cause) => {
    const raw = rawPeer();
    void end(raw);
    const error = await rejection(raw.peer.request("m"));
    expect(error).toBeInstanceOf(ConnectionLostError);
    expect(error).toMatchObject({ outcome: "not-sent", cause: { message: cause } });
    expect(error.message).toBe('"m" was not sent: no connection');
    expect(raw.sent).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("rejects for its invalid arguments first", async () => {
    const raw = rawPeer();
    void raw.peer.close();
    expect(await rejection(raw.peer.request("m", 5))).toBeInstanceOf(TypeError);
    expect(await rejection(raw.peer.request("m", [], { signal: AbortSignal.abort("gone") }))).toBe("gone");
  });

  it("is not sent while the transport is still closing", async () => {
    const raw = rawPeer({}, { endsOnClose: false });
    void raw.peer.close();
    expect(await rejection(raw.peer.request("m"))).toMatchObject({ outcome: "not-sent" });
    raw.cut();
    expect(raw.sent).toEqual([]);
  });
});

describe("a transport that refuses a message", () => {
  it("makes the call fail as not sent, with a cause", async () => {
    const { peer } = rawPeer({}, { onSend: () => false });
    const error = await rejection(peer.request("m"));
    expect(error).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent" });
    expect(error.cause).toBeInstanceOf(Error);
    expectEmpty(peer);
  });

  it("makes the call fail as not sent when it throws, and emits what it threw", async () => {
    const { peer, errors } = rawPeer({}, BROKEN);
    expect(await rejection(peer.request("m"))).toMatchObject({ outcome: "not-sent" });
    expect(errors).toEqual([new Error("broken transport")]);
    expect(peer.state).toBe("open");
    expect(inspect(peer).pending).toBe(0);
  });

  it("drops only the reply if it refuses a reply", async () => {
    const raw = rawPeer({ methods: { m: () => 1 } }, BROKEN);
    raw.feed({ jsonrpc: "2.0", id: 1, method: "m" });
    await turn();
    expect(raw.errors).toHaveLength(1);
    expect(raw.peer.state).toBe("open");
  });
});

describe("notify", () => {
  it("returns false when the transport refused it or threw", () => {
    expect(rawPeer({}, { onSend: () => false }).peer.notify("said")).toBe(false);
    const { peer, errors } = rawPeer({}, BROKEN);
    expect(peer.notify("said")).toBe(false);
    expect(errors).toHaveLength(1);
  });

  it("returns false inside a transport that closes", async () => {
    const { peer, cut } = rawPeer({}, { endsOnClose: false });
    const outcomes = new Outcomes().watch("close", peer.close());
    expect(peer.notify("said")).toBe(false);
    cut();
    await turn();
    expect(outcomes.names).toEqual(["close"]);
  });
});
