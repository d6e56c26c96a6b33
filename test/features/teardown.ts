/** Ends a busy connection at any moment. No state and no unhandled rejection may remain. */
import { setMaxListeners } from "node:events";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { AnyPeer, Context } from "../../src/index.js";
import { readAll, type AnyOptions } from "../support/pair.js";
import { turn, useVirtualClock } from "../support/time.js";
import { expectIdle, Fed, inPair, inSession, plainPeers, type Join } from "./kit.js";

/** Messages of every kind at once, and the sources that must be ended. */
class Session {
  readonly sources: Fed[] = [];
  readonly options: AnyOptions = {
    methods: {
      tail: () => this.source(1, 2),
      empty: () => this.source(),
      open: (_params, { peer }: Context) => [peer.offer(this.source(1)), { deep: peer.offer(this.source(1)) }],
      take: ({ of }, { peer }: Context) => readAll(peer.iterate(of)),
      async work({ steps }, { progress, signal }: Context) {
        for (let i = 0; i < steps && !signal.aborted; i++) {
          await turn();
          progress(i);
        }
      },
    },
  };

  source(...values: unknown[]): Fed {
    const source = new Fed().give(...values);
    this.sources.push(source);
    return source;
  }

  /** Starts calls of every kind from one side, and resolves when all are settled. */
  start(peer: AnyPeer, signal: AbortSignal): Promise<unknown> {
    setMaxListeners(50, signal);
    const options = { signal };
    const batch = peer.batch();
    const work = [
      readAll(peer.stream("tail", [], options)),
      readAll(peer.stream("empty", [], options)),
      peer
        .request("open", [], options)
        .then(([first, { deep }]: any) => Promise.all([readAll(peer.iterate(first)), readAll(peer.iterate(deep))])),
      peer.request("take", { of: peer.offer(this.source(1, 2)) }, options),
      peer.request("work", { steps: 5 }, { ...options, onProgress: () => {} }),
      batch.request("work", { steps: 1 }, { ...options, onProgress: () => {} }),
      batch.request("take", { of: peer.offer(this.source(1)) }, options),
      batch.request("tail", [], options),
    ];
    batch.send();
    return Promise.allSettled(work);
  }
}

/** Waits for this number of microtasks, and one tick for every ten after the first hundred. */
async function momentPasses(moment: number): Promise<void> {
  for (let i = 0; i < Math.min(moment, 100); i++) await Promise.resolve();
  for (let i = 100; i < moment; i += 10) await turn();
}

const ways: [string, Join][] = [
  ["in a pair", inPair],
  ["in a session", inSession],
  ["between plain peers", plainPeers()],
];

/** Runs the tests at each `step`th of 160 moments. */
export function teardownSuite(step: number): void {
  useVirtualClock();
  const moments = Array.from({ length: Math.ceil(160 / step) }, (_, i) => i * step);

  const unseen: unknown[] = [];
  const onUnseen = (error: unknown): void => void unseen.push(error);
  beforeAll(() => void process.on("unhandledRejection", onUnseen));
  afterAll(() => void process.off("unhandledRejection", onUnseen));

  describe.each(ways)("a busy connection %s", (_name, join) => {
    it.each(["a", "b"] as const)("leaves no state when %s closes it, after any number of microtasks", async (side) => {
      for (const moment of moments) {
        const session = new Session();
        await using both = await join(session.options, session.options);
        const { signal } = new AbortController();
        const settled = [session.start(both.a, signal), session.start(both.b, signal)];
        await momentPasses(moment);
        await both[side].close();
        await Promise.all(settled);
        await turn();
        expectIdle(both);
        // Handlers may report that their source or stream ended, because no cancel was sent.
        for (const error of both.takeErrors()) expect(error).toMatchObject({ code: "CONNECTION_LOST" });
        expect(session.sources.filter(({ returned, asked }) => returned !== 1 && asked > 0)).toEqual([]);
        expect(unseen).toEqual([]);
      }
    });

    it("leaves no state when all calls are aborted, after any number of microtasks, and stays open", async () => {
      // Without a dialect the calls keep running, and keep their streams.
      const isTold = join === inPair || join === inSession;
      for (const moment of moments) {
        const session = new Session();
        await using both = await join(session.options, session.options);
        const controller = new AbortController();
        const settled = [session.start(both.a, controller.signal), session.start(both.b, controller.signal)];
        await momentPasses(moment);
        controller.abort(new Error("enough"));
        // The reader ends the streams inside a result, as it would by its own signal.
        if (isTold) for (const source of session.sources) source.finish();
        if (isTold) await Promise.all(settled);
        await both.settled();
        if (isTold) expectIdle(both);
        expect(await both.b.request("work", { steps: 1 })).toBe(null);
        // A handler that reads an aborted stream receives an error, and does not catch it.
        for (const error of both.takeErrors()) expect(error).toMatchObject({ cause: { code: -32001 } });
        expect(unseen).toEqual([]);
        if (!isTold) await both.b.close();
        await Promise.all(settled);
      }
    });
  });
}
