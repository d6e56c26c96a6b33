/** Calls made between `lost` and the next session. The features of the next server are unknown until they are sent. */
import { beforeEach, describe, expect, it, vi } from "vitest";
import { lsp, type Dialect } from "../../src/index.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { notification, request, result, sessionPeer, type SessionPeer } from "../support/raw.js";
import { rejection, useVirtualClock } from "../support/time.js";
import { cancel, report } from "./kit.js";

useVirtualClock();
// The progress tokens of each connection count from 1.
beforeEach(() => void vi.spyOn(Math, "random").mockReturnValue(0));

/** Returns a peer between `lost` and `resume`, whose last server was a reciproc peer. `resume` says whether the next one is. */
function between(options: AnyOptions = {}): SessionPeer & { resume: (isReciproc: boolean) => void } {
  const ends = sessionPeer(options, { isReciproc: true });
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
    for (const message of [report(1, "one"), report(1, "two"), result(1, "done"), result(2, null)])
      transport.feed(message);
    await Promise.all([call, other]);
    expect(emitted).toEqual(["one", "two", "done"]);
  });

  it("asks for nothing when the next server is not a reciproc peer", async () => {
    const { peer, transport, take, resume } = between();
    const calls = [{ a: 1 }, [1], undefined].map((params) => peer.request("work", params, { onProgress }));
    resume(false);
    expect(take()).toEqual([request(1, "work", { a: 1 }), request(2, "work", [1]), request(3, "work")]);
    for (const id of [1, 2, 3]) transport.feed(result(id, id));
    expect(await Promise.all(calls)).toEqual([1, 2, 3]);
  });

  it.each<[string, Dialect | undefined, object, boolean, number, number]>([
    ["by the configured dialect, of a reciproc peer", lsp, {}, true, 1, 2],
    ["by its own token, if its params hold one", undefined, { workDoneToken: 2 }, true, 2, 1],
  ])("asks %s", async (_how, dialect, params, isReciproc, ...tokens) => {
    const { peer, transport, take, resume } = between({ dialect });
    const reports: unknown[] = [];
    const call = peer.request("work", params, { onProgress: (value) => reports.push(value) });
    const second = peer.request("work", {}, { onProgress });
    resume(isReciproc);
    expect(take()).toEqual(tokens.map((workDoneToken, i) => request(i + 1, "work", { workDoneToken })));
    transport.feed(report(tokens[0], "half"));
    for (const id of [1, 2]) transport.feed(result(id, null));
    await Promise.all([call, second]);
    expect(reports).toEqual(["half"]);
  });

  it("rejects as not sent if its params have no place for the token", async () => {
    const { peer, transport, take, resume } = between();
    const single = rejection(peer.request("work", [1], { onProgress }));
    const batch = peer.batch();
    const member = rejection(batch.request("work", [2], { onProgress }));
    const stays = batch.request("echo", { a: 3 }, { onProgress });
    batch.notify("note");
    batch.send();
    const sole = peer.batch();
    const only = rejection(sole.request("work", [4], { onProgress }));
    sole.send();
    resume(true);
    for (const error of await Promise.all([single, member, only])) expect(error).toBeInstanceOf(TypeError);
    expect(take()).toEqual([[request(3, "echo", { a: 3, workDoneToken: 3 }), notification("note")]]);
    transport.feed([result(3, [3])]);
    expect(await stays).toEqual([3]);
    expectEmpty(peer);
  });
});

it.each([
  ["to a reciproc peer, behind the batch", true, [cancel(1)]],
  ["to no other", false, []],
])("a call of a batch that is aborted between two sessions is cancelled %s", async (_name, isReciproc, cancels) => {
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

it("a stream that is offered between two sessions has a token that names no stream of the previous session", async () => {
  vi.mocked(Math.random).mockReturnValue(0.5);
  const { peer, take, resume } = between();
  const call = rejection(peer.request("take", { of: peer.offer([1]) }));
  resume(true);
  expect(take()).toEqual([request(1, "take", { of: { token: 2 ** 31 + 1 } })]);
  await peer.close();
  expect(await call).toMatchObject({ outcome: "unknown" });
  expectEmpty(peer);
});
