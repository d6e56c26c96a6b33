import { describe, expect, it } from "vitest";
import type { Context } from "../../src/index.js";
import { connectedPair, expectEmpty } from "../support/pair.js";
import { notification, rawPeer, request } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";

describe("context", () => {
  it("has peer, method and id, and can be destructured", async () => {
    const seen: unknown[] = [];
    const method = "m";
    await using pair = connectedPair({
      methods: {
        m: (_params, { peer, method: called, id, signal, progress }) => {
          seen.push(peer, called, id, signal.aborted, progress(1));
        },
      },
    });
    await pair.b.request(method);
    pair.b.notify(method);
    await turn();
    expect(seen).toEqual([pair.a, "m", 1, false, undefined, pair.a, "m", undefined, false, undefined]);
  });
});

describe("context.signal", () => {
  it.each<[string, (raw: ReturnType<typeof rawPeer>) => unknown, string]>([
    ["is closed here", (raw) => raw.peer.close(3001, "enough"), "closed on this side with 3001 (enough)"],
    ["is cut", (raw) => raw.cut({ code: 1006 }), "closed with 1006"],
  ])("aborts, with the reason, in every handler that runs when the peer %s", async (_name, end, reason) => {
    const open = gate();
    const contexts: Context[] = [];
    const m = (_params: unknown, context: Context): Promise<void> => (contexts.push(context), open.promise);
    const raw = rawPeer({
      methods: { read: (params, context) => (void context.signal, m(params, context)), unread: m },
    });
    raw.feed(request(1, "read"));
    raw.feed(request(2, "unread"));
    raw.feed(notification("unread"));
    void end(raw);
    for (const { signal } of contexts) {
      expect(signal.aborted).toBe(true);
      expect(signal.reason).toMatchObject({ message: reason });
    }
    expect(contexts).toHaveLength(3);
    open.resolve();
    await turn();
    expect(raw.sent).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("aborts in a handler that closed the peer before it first read the signal", async () => {
    let seen: AbortSignal | undefined;
    const raw = rawPeer({
      methods: {
        m: async (_params, { peer, signal }) => {
          seen = signal;
          void peer.close();
          await turn();
          return signal.aborted;
        },
      },
    });
    raw.feed(request(1, "m"));
    expect(seen!.aborted).toBe(true);
    await turn();
    await turn();
    expectEmpty(raw.peer);
  });

  it("does not change after the handler has ended", async () => {
    let context: Context | undefined;
    const raw = rawPeer({ methods: { m: async (_params, given) => void (context = given) } });
    raw.feed(request(1, "m"));
    await turn();
    await raw.peer.close();
    expect(context!.signal.aborted).toBe(false);
  });
});
