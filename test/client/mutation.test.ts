/** What a mutation shows of its changes. That each is made once, whatever is lost, is a rule of the runs with faults (`test/support/stores.ts`). */
import { describe, expect, it, onTestFinished } from "vitest";
import { mutation, RpcError, type AnyPeer, type Mutation } from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { pass, useVirtualClock } from "../support/time.js";
import { gate, rejection } from "../support/turns.js";

type ServerApi = { put(p: { text: string; key: string }): number };

/** Starts a server whose `put` runs a change once, and connects a client. */
async function start() {
  const app = { runs: [] as string[], keys: [] as string[], answered: Promise.resolve() };
  const kit = testServer<ServerApi, object, string>({
    authenticate: () => "ann",
    principal: (name) => name,
    methods: {
      put({ key, text }, context) {
        app.keys.push(key);
        return context.server.runOnce(context, async () => {
          const count = app.runs.push(text);
          await app.answered;
          if (text === "bad") throw new RpcError(403, "not yours");
          return count;
        });
      },
    },
  });
  // A change that fails when its first caller is lost.
  kit.server.on("error", () => {});
  onTestFinished(() => kit.server.close());
  const peer = await kit.connect(kit.server.url, { reconnect: true });
  const store = mutation(peer, "put");
  /** What the store shows: the pending changes, and the one that failed with its error. */
  const shown = (): string => {
    const { pending, failed } = store.get();
    const end = failed === undefined ? "" : `!${failed.params.text}: ${(failed.error as Error).message}`;
    return `${pending.map(({ text }) => text).join(" ")}${end}`;
  };
  return { ...kit, app, peer, store, shown, settle: () => kit.network.settle() };
}

type Started = Awaited<ReturnType<typeof start>>;

describe("a mutation", () => {
  useVirtualClock();

  it("shows a change until it is confirmed or has failed, and notifies once for those of one microtask", async () => {
    const { app, settle, shown, store } = await start();
    let count = 0;
    const end = store.subscribe(() => count++);
    const [one, two] = [store.mutate({ text: "one" }), store.mutate({ text: "two" })];
    expect([shown(), store.get() === store.get()]).toEqual(["one two", true]);
    expect([await one, await two, shown(), app.runs]).toEqual([1, 2, "", ["one", "two"]]);
    expect(new Set(app.keys).size).toBe(2);
    expect(app.keys).toEqual([expect.stringMatching(/^[\w-]{21}$/), expect.anything()]);
    // Its promise is dropped.
    void store.mutate({ text: "bad" });
    const { pending } = store.get();
    await settle();
    expect([shown(), pending.length, count]).toEqual(["!bad: not yours", 1, 4]);
    void store.mutate({ text: "three" });
    expect(shown()).toBe("three");
    await settle();
    end();
    expect(await rejection(store.mutate({ text: "bad" }))).toMatchObject({ code: 403 });
    expect([shown(), count]).toEqual(["!bad: not yours", 6]);
  });

  it.each<[string, (of: Started) => Promise<unknown>, object, object]>([
    ["its time is over", () => pass(5_000), { timeoutMs: 5_000 }, { name: "TimeoutError", outcome: "unknown" }],
    ["it is aborted", async () => {}, { signal: AbortSignal.abort(new Error("no")) }, { message: "no" }],
    ["the peer closes", ({ peer }) => peer.close(), {}, { name: "ConnectionLostError", outcome: "unknown" }],
    ["the session is lost", async ({ network }) => network.lose(), { retry: "not-sent" }, { outcome: "unknown" }],
  ])("drops a change when %s", async (_why, act, options, error) => {
    const world = await start();
    world.app.answered = gate().promise;
    const made = rejection(world.store.mutate({ text: "one" }, options));
    await world.settle();
    await act(world);
    await pass(0);
    const failed = { params: { text: "one", key: expect.any(String) }, error };
    expect([await made, world.store.get()]).toMatchObject([error, { pending: [], failed }]);
  });

  it("takes a key, for a change that failed, or is made again later or by another page", async () => {
    const { app, connect, server, shown, store } = await start();
    const other: Mutation<ServerApi["put"]> = mutation((await connect(server.url)) as AnyPeer, "put");
    expect(await store.mutate({ text: "one", key: "k" })).toBe(1);
    expect(await other.mutate({ text: "one", key: "k" })).toBe(1);
    expect([app.runs, shown()]).toEqual([["one"], ""]);
    await rejection(store.mutate({ text: "bad" }));
    await rejection(store.mutate(store.get().failed!.params));
    expect([app.runs, shown()]).toEqual([["one", "bad"], "!bad: not yours"]);
  });

  it("rejects params without a JSON form, and emits what a listener throws as `error` of the peer", async () => {
    const { peer, settle, shown, store } = await start();
    const errors: unknown[] = [];
    peer.on("error", (error) => errors.push(error));
    store.subscribe(() => {
      throw new Error("render");
    });
    expect(await rejection(store.mutate({ text: new Map() as never }))).toBeInstanceOf(TypeError);
    await settle();
    expect(errors).toContainEqual(new Error("render"));
    expect(shown()).toMatch(/^!.*: .*Map/);
  });
});
