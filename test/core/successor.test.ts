/** The calls, handlers and streams of a lost connection end, and its peer continues on a new connection. */
import { describe, expect, it } from "vitest";
import { ConnectionLostError, TimeoutError, type Context } from "../../src/index.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { inspect } from "../../src/peer/peer.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { notification, request, result } from "../support/raw.js";
import { restless } from "../support/restless.js";
import { gate, Outcomes, rejection, turn, type Gate } from "../support/turns.js";

useFakeClock();

const GONE = new Error("the server has no such session");

describe("a peer that is suspended", () => {
  it("has the state suspended, and continues unchanged after the resume", async () => {
    const { peer, transport, take, events } = restless({ methods: { add: ([a, b]: number[]) => a! + b! } });
    const call = peer.request("before");
    transport.suspend();
    expect(peer.state).toBe("suspended");
    const waits = peer.request("meanwhile");
    expect(peer.notify("said")).toBe(true);
    take();
    transport.resume();
    expect(peer.state).toBe("open");
    expect(take()).toEqual([request(2, "meanwhile"), notification("said")]);
    transport.feed(result(1, "a"));
    transport.feed(result(2, "b"));
    transport.feed(request(1, "add", [1, 2]));
    expect(await Promise.all([call, waits])).toEqual(["a", "b"]);
    expect(take()).toEqual([result(1, 3)]);
    expect(events).toEqual(["suspend (suspended)", "resume (open)"]);
  });

  it("keeps handlers running, and queues their answers", async () => {
    const opened = gate<string>();
    const { transport, take } = restless({ methods: { wait: () => opened.promise } });
    transport.feed(request(7, "wait"));
    transport.suspend();
    opened.resolve("done");
    await turn();
    expect(take()).toEqual([]);
    transport.resume();
    expect(take()).toEqual([result(7, "done")]);
  });

  it("cancels a queued call that times out, as not sent", async () => {
    const { peer, transport, take } = restless({}, { isReciproc: true });
    transport.suspend();
    const error = rejection(peer.request("late", [], { timeoutMs: 100 }));
    await pass(100);
    expect(await error).toBeInstanceOf(TimeoutError);
    expect(await error).toMatchObject({ outcome: "not-sent", message: '"late" was not sent within 100 ms' });
    expect(transport.waiting).toEqual([]);
    transport.resume();
    // Nor its cancel.
    expect(take()).toEqual([]);
  });

  it("cancels a queued call that is aborted", async () => {
    const { peer, transport, take } = restless({}, { isReciproc: true });
    transport.suspend();
    const { signal } = new AbortController();
    const controller = new AbortController();
    const error = rejection(peer.request("late", [], { signal: controller.signal }));
    const stays = peer.request("stays", [], { signal });
    controller.abort("enough");
    expect(await error).toBe("enough");
    transport.resume();
    expect(take()).toEqual([request(2, "stays", [])]);
    transport.feed(result(2, 1));
    expect(await stays).toBe(1);
  });

  it("sends the cancel of a sent call behind the queued messages", async () => {
    const { peer, transport, take } = restless({}, { isReciproc: true });
    const error = rejection(peer.request("left", [], { timeoutMs: 100 }));
    take();
    transport.suspend();
    peer.notify("waits");
    await pass(100);
    expect(await error).toMatchObject({ outcome: "unknown", message: '"left" was not answered within 100 ms' });
    transport.resume();
    expect(take()).toEqual([notification("waits"), notification("$/cancelRequest", { id: 1 })]);
  });
});

describe("a loss", () => {
  it("rejects sent calls as unknown and queued calls as not sent, with its error as the cause", async () => {
    const { peer, transport, events } = restless();
    const left = rejection(peer.request("left"));
    transport.suspend();
    const waited = rejection(peer.request("waited"));
    transport.lose(GONE);
    for (const reason of [await left, await waited]) expect(reason).toBeInstanceOf(ConnectionLostError);
    expect(await left).toMatchObject({ outcome: "unknown", method: "left", cause: GONE });
    expect(await waited).toMatchObject({ outcome: "not-sent", method: "waited", cause: GONE });
    expectEmpty(peer);
    expect(peer.state).toBe("suspended");
    transport.resume();
    expect(events).toEqual(["suspend (suspended)", "lost (suspended)", "resume (open)"]);
  });

  it("is emitted with its error, after every pending call is settled", async () => {
    const { peer, transport } = restless();
    const outcomes = new Outcomes().watch("call", peer.request("m"));
    transport.suspend();
    const emitted: unknown[] = [];
    peer.on("lost", (error) => emitted.push(error, inspect(peer).pending));
    transport.lose(GONE);
    expect(emitted).toEqual([GONE, 0]);
    await turn();
    expect(outcomes.names).toEqual(["call"]);
  });

  it("leaves no timeout", async () => {
    const { peer, transport } = restless();
    const lost = rejection(peer.request("m", [], { timeoutMs: 1000, maxTotalTimeoutMs: 5000 }));
    transport.suspend();
    transport.lose(GONE);
    expect(countDeadlines().waiting).toBe(0);
    expect(await lost).toBeInstanceOf(ConnectionLostError);
  });

  it("does not reset ids, so that a late answer settles no call of the next connection", async () => {
    const { peer, transport, take } = restless();
    const before = rejection(peer.request("before"));
    transport.suspend();
    transport.lose(GONE);
    await before;
    take();
    const after = peer.request("after");
    transport.resume();
    expect(take()).toEqual([request(2, "after")]);
    transport.feed(result(1, "late"));
    expect(inspect(peer)).toMatchObject({ pending: 1, unmatched: 1 });
    transport.feed(result(2, "now"));
    expect(await after).toBe("now");
  });

  it("keeps the counts, and the handlers of this peer", async () => {
    const { peer, transport, take } = restless({ methods: { of: () => "all" } });
    const undo = peer.handle("of", () => "this one");
    transport.feed(request(1, "of"));
    peer.notify("said");
    transport.suspend();
    transport.lose(GONE);
    transport.resume();
    take();
    transport.feed(request(1, "of"));
    expect(take()).toEqual([result(1, "this one")]);
    expect(() => peer.handle("of", () => "another")).toThrow("has a handler already");
    undo();
    transport.feed(request(2, "of"));
    expect(take()).toEqual([result(2, "all")]);
    expect(peer.stats()).toMatchObject({ requestsReceived: 3, notificationsSent: 1 });
  });

  it("may occur repeatedly before messages are sent", async () => {
    const { peer, transport, events } = restless();
    transport.suspend();
    const outcomes = [];
    for (let i = 0; i < 3; i++) {
      outcomes.push(rejection(peer.request("m")));
      transport.lose(new Error(`loss ${i}`));
    }
    transport.resume();
    for (const [i, reason] of (await Promise.all(outcomes)).entries()) {
      expect(reason).toMatchObject({ outcome: "not-sent", cause: { message: `loss ${i}` } });
    }
    const lost = "lost (suspended)";
    expect(events).toEqual(["suspend (suspended)", lost, lost, lost, "resume (open)"]);
  });

  it("lets a listener prepare the next connection, even if another one throws", async () => {
    const { peer, transport, take, errors } = restless();
    transport.suspend();
    peer.on("lost", () => {
      throw new Error("a listener of somebody's");
    });
    let call: Promise<unknown> | undefined;
    peer.on("lost", () => (call = peer.request("initialize")));
    transport.lose(GONE);
    transport.resume();
    expect(take()).toEqual([request(1, "initialize")]);
    transport.feed(result(1, {}));
    expect(await call).toEqual({});
    expect(errors).toMatchObject([{ message: "a listener of somebody's" }]);
  });
});

/** Returns a peer with a handler that runs until the test releases it. */
function running(): ReturnType<typeof restless> & { contexts: Context[]; opened: ReturnType<typeof gate<unknown>> } {
  const contexts: Context[] = [];
  const opened = gate<unknown>();
  const ends = restless({
    methods: {
      wait: (_params: unknown, context: Context) => {
        contexts.push(context);
        void context.signal;
        return opened.promise;
      },
    },
  });
  ends.transport.feed(request(1, "wait", { _meta: { progressToken: 1 } }));
  return { ...ends, contexts, opened };
}

describe("a handler that runs when its connection is lost", () => {
  it.each<[string, (opened: Gate<unknown>) => void]>([
    ["answer", (opened) => opened.resolve("too late")],
    ["error", (opened) => opened.reject(GONE)],
  ])("is aborted with the loss, and sends no %s", async (_what, end) => {
    const { peer, transport, take, contexts, opened, errors } = running();
    transport.suspend();
    expect(contexts[0]!.signal.aborted).toBe(false);
    transport.lose(GONE);
    expect(contexts[0]!.signal.reason).toBe(GONE);
    transport.resume();
    end(opened);
    await turn();
    expect([take(), errors]).toEqual([[], []]);
    expect(inspect(peer).running).toBe(0);
  });

  it("is not confused with a request of the same id on the next connection", async () => {
    const { peer, transport, take, contexts, opened } = running();
    transport.suspend();
    transport.lose(GONE);
    transport.resume();
    transport.feed(request(1, "wait"));
    expect(inspect(peer).running).toBe(1);
    transport.feed(notification("$/cancelRequest", { id: 1 }));
    expect(contexts[1]!.signal.reason).toMatchObject({ name: "AbortError" });
    expect(contexts[0]!.signal.reason).toBe(GONE);
    opened.resolve("one answer");
    await turn();
    expect(take()).toEqual([result(1, "one answer")]);
  });

  it("can call and notify on the next connection", async () => {
    const { transport, take, contexts, opened } = running();
    const [context] = contexts;
    context!.signal.addEventListener("abort", () => context!.peer.notify("aborted"));
    transport.suspend();
    transport.lose(GONE);
    transport.resume();
    expect(take()).toEqual([notification("aborted")]);
    context!.progress(50);
    expect(take()).toEqual([]);
    opened.resolve(undefined);
    await turn();
  });

  it("may close its peer when it is aborted, which then emits no loss", async () => {
    const { peer, transport, contexts, events, opened } = running();
    contexts[0]!.signal.addEventListener("abort", () => void peer.close(4001, "no more"));
    transport.suspend();
    transport.lose(GONE);
    expect(peer.state).toBe("closed");
    expect(transport.closes).toEqual([{ code: 4001, reason: "no more" }]);
    expect(await peer.closed).toEqual({ code: 4001, reason: "no more" });
    expect(events).toEqual(["suspend (suspended)", "close (closed)"]);
    opened.resolve(undefined);
    await turn();
    expectEmpty(peer);
  });
});

describe("a batch", () => {
  it("whose connection is lost rejects its calls and ignores late answers", async () => {
    const { peer, transport, take } = restless();
    const batch = peer.batch();
    const calls = [rejection(batch.request("a")), rejection(batch.request("b"))];
    batch.send();
    transport.suspend();
    transport.lose(GONE);
    for (const reason of await Promise.all(calls)) expect(reason).toMatchObject({ outcome: "unknown", cause: GONE });
    expect(inspect(peer)).toMatchObject({ pending: 0, openBatches: 0 });
    transport.resume();
    transport.feed([result(1, 1), result(2, 2)]);
    expect(inspect(peer).unmatched).toBe(2);
    take();
    const next = peer.batch();
    const call = next.request("c");
    next.send();
    expect(take()).toEqual([[request(3, "c")]]);
    transport.feed([result(3, 3)]);
    expect(await call).toBe(3);
  });

  it("that was queued rejects as not sent", async () => {
    const { peer, transport, take } = restless();
    transport.suspend();
    const batch = peer.batch();
    const call = rejection(batch.request("a"));
    batch.send();
    transport.lose(GONE);
    expect(await call).toMatchObject({ outcome: "not-sent" });
    transport.resume();
    expect(take()).toEqual([]);
  });

  it("that is not sent yet rejects its calls, later ones included", async () => {
    const { peer, transport, take } = restless();
    const batch = peer.batch();
    const before = rejection(batch.request("a"));
    batch.notify("b");
    transport.suspend();
    transport.lose(GONE);
    transport.resume();
    expect(await before).toMatchObject({ outcome: "not-sent", cause: GONE });
    expect(await rejection(batch.request("c"))).toMatchObject({ outcome: "not-sent", cause: GONE });
    expect(batch.notify("d")).toBe(false);
    batch.send();
    expect(take()).toEqual([]);
  });

  it("of the other side that is not fully answered gets no answer at all", async () => {
    const opened = gate<number>();
    const { transport, take } = restless({ methods: { now: () => 1, wait: () => opened.promise } });
    transport.feed([request(1, "now"), request(2, "wait")]);
    transport.suspend();
    transport.lose(GONE);
    transport.resume();
    opened.resolve(2);
    await turn();
    expect(take()).toEqual([]);
  });
});

describe("a stream", () => {
  it("that is served ends with its connection, and does not exist on the next one", async () => {
    let returned = 0;
    async function* endless(): AsyncGenerator<number> {
      try {
        for (let i = 0; ; i++) {
          yield i;
          await turn();
        }
      } finally {
        returned++;
      }
    }
    const { peer, transport, take } = restless({ methods: { tail: () => endless() } });
    transport.feed(request(1, "tail"));
    await turn();
    const [answer] = take();
    const { token } = answer.result;
    expect(inspect(peer).streams).toBe(1);
    transport.suspend();
    transport.lose(GONE);
    await turn();
    await turn();
    expect(returned).toBe(1);
    expect(inspect(peer).streams).toBe(0);
    transport.resume();
    transport.feed(request(2, "$/enumerator/next", { token }));
    await turn();
    expect(take()).toMatchObject([{ id: 2, error: { code: -32001 } }]);
  });
});

describe("progress", () => {
  it("of a call before the loss is ignored", async () => {
    const { peer, transport } = restless({}, { isReciproc: true });
    const reports: unknown[] = [];
    const lost = rejection(peer.request("m", {}, { onProgress: (value) => reports.push(value) }));
    transport.suspend();
    transport.lose(GONE);
    await lost;
    transport.resume();
    transport.feed(notification("$/progress", { token: 1, value: 50 }));
    expect(reports).toEqual([]);
    expect(inspect(peer).progress).toBe(0);
  });
});

describe("a peer that is closed inside", () => {
  it.each<["suspend" | "lost" | "resume", string[]]>([
    ["suspend", ["suspend (suspended)", "close (closed)"]],
    ["lost", ["suspend (suspended)", "lost (suspended)", "close (closed)"]],
    ["resume", ["suspend (suspended)", "lost (suspended)", "resume (open)", "close (closed)"]],
  ])("a listener of `%s` stays closed, and emits nothing more", async (event, emitted) => {
    const { peer, transport, events } = restless();
    const closing = new Promise<void>((resolve) => peer.on(event, () => resolve(peer.close(4001, "no more"))));
    const call = rejection(peer.request("m"));
    transport.suspend();
    if (event !== "suspend") transport.lose(GONE);
    if (event === "resume") transport.resume();
    await closing;
    expect(events).toEqual(emitted);
    expect(peer.state).toBe("closed");
    expect(transport.closes).toEqual([{ code: 4001, reason: "no more" }]);
    expect(await call).toBeInstanceOf(ConnectionLostError);
    expect(await rejection(peer.request("m"))).toMatchObject({ outcome: "not-sent" });
    expectEmpty(peer);
  });
});
