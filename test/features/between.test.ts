/** Calls made between `lost` and the next session. The features of the next server are unknown until they are sent. */
import { describe, expect, it, vi } from "vitest";
import { lsp } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { useNoChance } from "../support/chance.js";
import { useFakeClock } from "../support/clock.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { notification, request, result } from "../support/raw.js";
import { sessionPeer, type SessionPeer, type SessionPeerOptions } from "../support/session-peer.js";
import { rejection } from "../support/turns.js";

useFakeClock();
useNoChance();

/**
 * Returns a peer between `lost` and `resume`, whose last server was a reciproc peer. `resume` continues on a connection to a
 * reciproc peer or to another JSON-RPC peer.
 */
function between(
  options: AnyOptions = {},
  more: SessionPeerOptions = {},
): SessionPeer & { resume: (isReciproc: boolean) => void } {
  const ends = sessionPeer(options, { isReciproc: true, ...more });
  ends.transport.suspend();
  ends.transport.isReciproc = false;
  ends.transport.lose(new Error("the session is over"));
  const resume = (isReciproc: boolean): void => {
    ends.transport.isReciproc = isReciproc;
    ends.transport.resume();
  };
  return { ...ends, resume };
}

const onProgress = (): void => {};
const report = (token: unknown, value: unknown): object => notification("$/progress", { token, value });

describe("a call with onProgress that is made between two sessions", () => {
  it("asks for reports when it is sent, and receives them in order and before its result", async () => {
    const { peer, transport, take, resume } = between();
    const emitted: unknown[] = [];
    const params = { a: [1, { b: null }], text: "é\u2028" };
    const call = peer.request("work", params, { onProgress: (value) => emitted.push(value) });
    void call.then((value) => emitted.push(value));
    // Later changes of the params by the caller are not sent.
    params.text = "changed";
    const other = peer.request("other", [1]);
    expect(take()).toEqual([]);
    resume(true);
    expect(take()).toEqual([
      request(1, "work", { a: [1, { b: null }], text: "é\u2028", workDoneToken: 1 }),
      request(2, "other", [1]),
    ]);
    for (const value of ["one", "two"]) transport.feed(report(1, value));
    transport.feed(result(1, "done"));
    transport.feed(result(2, null));
    await Promise.all([call, other]);
    expect(emitted).toEqual(["one", "two", "done"]);
  });

  it("asks for nothing when the next server is not a reciproc peer", async () => {
    const { peer, transport, take, resume } = between();
    const calls = [{ a: 1 }, [1], undefined].map((params) => peer.request("work", params, { onProgress: () => {} }));
    resume(false);
    expect(take()).toEqual([request(1, "work", { a: 1 }), request(2, "work", [1]), request(3, "work")]);
    for (const id of [1, 2, 3]) transport.feed(result(id, id));
    expect(await Promise.all(calls)).toEqual([1, 2, 3]);
  });

  it.each([true, false])("asks by the configured dialect, for any next server (%s)", async (isReciproc) => {
    const { peer, transport, take, resume } = between({ dialect: lsp });
    const call = peer.request("work", {}, { onProgress: () => {} });
    resume(isReciproc);
    expect(take()).toEqual([request(1, "work", { workDoneToken: 1 })]);
    transport.feed(result(1, null));
    await call;
  });

  it("asks by its own token, if its params hold one", async () => {
    const { peer, transport, take, resume } = between();
    const reports: unknown[] = [];
    const note = (value: unknown): void => void reports.push(value);
    const own = peer.request("work", { workDoneToken: 2 }, { onProgress: note });
    const second = peer.request("work", {}, { onProgress: note });
    resume(true);
    expect(take()).toEqual([request(1, "work", { workDoneToken: 2 }), request(2, "work", { workDoneToken: 1 })]);
    transport.feed(report(1, "of the second"));
    transport.feed(report(2, "of the first"));
    for (const id of [1, 2]) transport.feed(result(id, null));
    await Promise.all([own, second]);
    expect(reports).toEqual(["of the second", "of the first"]);
  });

  it("asks in a batch as well, beside members without onProgress", async () => {
    const { peer, transport, take, resume } = between();
    const reports: unknown[] = [];
    const batch = peer.batch();
    const calls = [
      batch.request("work", { a: 1 }, { onProgress: (value) => reports.push(value) }),
      batch.request("echo", [1]),
    ];
    batch.notify("note", { text: "n" });
    batch.send();
    resume(true);
    expect(take()).toEqual([
      [request(1, "work", { a: 1, workDoneToken: 1 }), request(2, "echo", [1]), notification("note", { text: "n" })],
    ]);
    transport.feed(report(1, "half"));
    transport.feed([result(1, "done"), result(2, [1])]);
    expect(await Promise.all(calls)).toEqual(["done", [1]]);
    expect(reports).toEqual(["half"]);
  });

  it("rejects as not sent if its params have no place for the token", async () => {
    const { peer, transport, take, resume } = between();
    const alone = rejection(peer.request("work", [1], { onProgress }));
    const batch = peer.batch();
    const member = rejection(batch.request("work", [2], { onProgress }));
    const stays = batch.request("echo", [3]);
    batch.send();
    const sole = peer.batch();
    const only = rejection(sole.request("work", [4], { onProgress }));
    sole.send();
    resume(true);
    for (const error of await Promise.all([alone, member, only])) {
      expect(error).toBeInstanceOf(TypeError);
      expect(error.message).toContain("an object or absent with `onProgress`");
    }
    expect(take()).toEqual([[request(3, "echo", [3])]]);
    transport.feed([result(3, [3])]);
    expect(await stays).toEqual([3]);
    expect(inspect(peer)).toMatchObject({ pending: 0, openBatches: 0, progress: 0 });
  });

  it("leaves no state when it is aborted, or the connection is lost again, before it is sent", async () => {
    const { peer, transport, take, resume } = between();
    const controller = new AbortController();
    const given = rejection(peer.request("work", {}, { onProgress, signal: controller.signal }));
    controller.abort("enough");
    expect(await given).toBe("enough");
    const lost = rejection(peer.request("work", {}, { onProgress }));
    transport.lose(new Error("lost again"));
    expect(await lost).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent" });
    resume(true);
    expect(take()).toEqual([]);
  });
});

describe("a call of a batch that is aborted between two sessions", () => {
  it.each([
    ["to a reciproc peer, behind the batch", true, [notification("$/cancelRequest", { id: 1 })]],
    ["to no other", false, []],
  ])("is cancelled %s", async (_name, isReciproc, cancels) => {
    const { peer, transport, take, resume } = between();
    const controller = new AbortController();
    const batch = peer.batch();
    const gone = rejection(batch.request("gone", [], { signal: controller.signal }));
    const stays = batch.request("stays");
    batch.send();
    controller.abort("enough");
    expect(await gone).toBe("enough");
    resume(isReciproc);
    expect(take()).toEqual([[request(1, "gone", []), request(2, "stays")], ...cancels]);
    transport.feed([result(2, 2)]);
    expect(await stays).toBe(2);
  });
});

describe("a stream that is offered between two sessions", () => {
  it("has a token that names no stream of the previous session", async () => {
    vi.spyOn(Math, "random").mockReturnValue(0.5);
    const { peer, take, resume } = between();
    const call = rejection(peer.request("take", { of: peer.offer([1]) }));
    resume(true);
    vi.restoreAllMocks();
    expect(take()).toEqual([request(1, "take", { of: { token: 2 ** 31 + 1 } })]);
    await peer.close();
    expect(await call).toMatchObject({ outcome: "unknown" });
    expectEmpty(peer);
  });
});

describe("a message queued between two sessions", () => {
  it("is sent in order and before `resume`, and before messages that a `resume` listener sends", async () => {
    const { peer, take, events, resume } = between();
    peer.on("resume", () => peer.notify("resumed"));
    peer.notify("first");
    const call = rejection(peer.request("second"));
    peer.notify("third");
    resume(true);
    expect(take().map(({ method }) => method)).toEqual(["first", "second", "third", "resumed"]);
    expect(events).toEqual(["suspend (suspended)", "lost (suspended)", "resume (open)"]);
    await peer.close();
    expect(await call).toMatchObject({ outcome: "unknown" });
  });
});
