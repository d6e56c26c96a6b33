import { inspect, isDeepStrictEqual } from "node:util";
import { describe, expect, it } from "vitest";
import { pair, Peer, type Receiver } from "../../src/index.js";
import { expectEmpty } from "../support/pair.js";
import { request, result } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";

describe("pair", () => {
  it("joins two peers that call each other, typed on both sides", async () => {
    interface A {
      add(params: [a: number, b: number]): number;
    }
    interface B {
      greet(params: { name: string }): string;
    }
    const [a, b] = pair<A, B>(
      { methods: { add: ([x, y]) => x + y } },
      { methods: { greet: ({ name }) => `hi ${name}` } },
    );
    const sum: number = await b.remote.add([1, 2]);
    const greeting: string = await a.request("greet", { name: "x" });
    expect([sum, greeting]).toEqual([3, "hi x"]);
    await a.close();
    expect((await b.closed).code).toBe(1000);
    expectEmpty(a);
    expectEmpty(b);
  });

  it("passes text, so that the peers share no object", async () => {
    const sent = { list: [1], at: new Date(0) };
    let got: unknown;
    const [a, b] = pair({ methods: { m: (params) => void (got = params) } }, {});
    await b.request("m", sent);
    expect(got).toEqual({ list: [1], at: "1970-01-01T00:00:00.000Z" });
    expect(got).not.toBe(sent);
    await a.close();
  });

  it("delivers in a microtask, never inside the call", async () => {
    const log: string[] = [];
    const [a, b] = pair({ methods: { m: () => void log.push("handler") } }, {});
    b.notify("m");
    log.push("notified");
    await Promise.resolve();
    expect(log).toEqual(["notified", "handler"]);
    await a.close();
  });

  it("enforces each side's maxMessageBytes, and closes both with 1009", async () => {
    const [a, b] = pair({ limits: { maxMessageBytes: 100 } }, {});
    const call = b.request("m", ["x".repeat(100)]);
    expect(await rejection(call)).toMatchObject({ outcome: "unknown" });
    expect((await a.closed).code).toBe(1009);
    expect((await b.closed).code).toBe(1009);
  });
});

describe("two peers", () => {
  it("are different for test matchers, and a peer equals itself", async () => {
    const [a, b] = pair({}, {});
    for (const peer of [a, b]) Object.assign(peer.data as object, { room: "den" });
    expect(a).not.toEqual(b);
    expect(isDeepStrictEqual(a, b)).toBe(false);
    expect(new Set([[a], [a]].map(([peer]) => peer))).toEqual(new Set([a]));
    expect({ peer: a }).toEqual({ peer: a });
    expect(inspect(a)).toContain(a.id);
    await a.close();
  });
});

describe("a transport that parses its messages", () => {
  it("delivers values, and the peer treats them like text", async () => {
    let receiver!: Receiver;
    const sent: unknown[] = [];
    const peer = new Peer(
      {
        start: (given) => (receiver = given),
        send: (text) => sent.push(JSON.parse(text)) > 0,
        close: (code = 1000, reason = "") => receiver.closed({ code, reason }),
      },
      { methods: { m: ([n]) => n } },
    );
    receiver.dispatch(request(1, "m", ["one"]));
    receiver.dispatch([request(2, "m", ["two"]), 5]);
    receiver.dispatch(null);
    const call = peer.request("x");
    receiver.dispatch(result(1, "answer"));
    expect(await call).toBe("answer");
    expect(sent).toMatchObject([
      result(1, "one"),
      [result(2, "two"), { id: null, error: { code: -32600 } }],
      { id: null, error: { code: -32600 } },
      request(1, "x"),
    ]);
    await peer.close();
    receiver.dispatch(request(3, "m", ["late"]));
    await turn();
    expect(sent).toHaveLength(4);
  });
});
