/** Cancelling, from the handler's side, if no answer may be sent: under mcp, and in batches. */
import { describe, expect, it } from "vitest";
import { mcp, RpcError } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { useFakeClock } from "../support/clock.js";
import { failure, notification, request, result } from "../support/raw.js";
import { turn, type Gate } from "../support/turns.js";
import { cancel, CANCELLED, waiting } from "./waiting.js";

useFakeClock();

describe("a member of a batch that is cancelled", () => {
  it("is answered in its place if the dialect answers cancelled requests", async () => {
    const raw = waiting();
    raw.feed([request(1, "wait"), request(2, "now"), cancel(1), request(3, "stay")]);
    raw.open.resolve("ran");
    await turn();
    expect(raw.messages()).toEqual([[failure(1, ...CANCELLED), result(2, "at once"), result(3, "ran")]]);
  });

  it("is omitted if the dialect does not answer cancelled requests", async () => {
    const raw = waiting({ dialect: mcp });
    raw.feed([request(1, "wait"), request(2, "now"), request(3, "stay")]);
    raw.feed(notification("notifications/cancelled", { requestId: 1 }));
    raw.feed(notification("notifications/cancelled", { requestId: 3 }));
    raw.open.resolve("nobody wants it");
    await turn();
    expect(raw.messages()).toEqual([[result(2, "at once")]]);
  });

  it("causes no frame when all of them are omitted", async () => {
    const raw = waiting({ dialect: mcp });
    raw.feed([request(1, "wait"), request(2, "wait"), notification("now")]);
    for (const requestId of [2, 1]) raw.feed(notification("notifications/cancelled", { requestId }));
    await turn();
    expect(raw.sent).toEqual([]);
    expect(inspect(raw.peer).running).toBe(0);
  });
});

const cancelled = (requestId: unknown): object => notification("notifications/cancelled", { requestId });

describe("under mcp", () => {
  it.each<[string, string, (open: Gate<unknown>) => void, number]>([
    ["ends by its signal", "wait", () => {}, 0],
    ["has a result", "stay", (open) => open.resolve("unwanted"), 0],
    ["has a result that cannot be sent", "stay", (open) => open.resolve(5n), 1],
    ["fails", "stay", (open) => open.reject(new Error("secret")), 1],
    ["refuses", "stay", (open) => open.reject(new RpcError(1, "no")), 1],
  ])("nothing is sent for a cancelled call whose handler %s", async (_name, method, end, errors) => {
    const raw = waiting({ dialect: mcp });
    raw.feed(request(1, method));
    raw.feed(cancelled(1));
    end(raw.open);
    await turn();
    expect(raw.contexts[0]!.signal.aborted).toBe(true);
    expect(raw.sent).toEqual([]);
    expect(raw.errors).toHaveLength(errors);
    expect(inspect(raw.peer).running).toBe(0);
  });

  it("`initialize` is never cancelled and is answered", async () => {
    const raw = waiting({
      dialect: mcp,
      methods: { initialize: async (_params, { signal }) => (await turn(), signal.aborted) },
    });
    raw.feed(request(1, "initialize"));
    raw.feed(cancelled(1));
    await turn();
    await turn();
    expect(raw.messages()).toEqual([result(1, false)]);
  });

  it("a cancel with the id null or positional params is ignored, and any reason is accepted", async () => {
    const raw = waiting({ dialect: mcp });
    raw.feed(request(null, "stay"));
    raw.feed(cancelled(null));
    raw.feed(notification("notifications/cancelled", [null]));
    expect(raw.contexts[0]!.signal.aborted).toBe(false);
    raw.feed(request("a", "stay"));
    raw.feed(notification("notifications/cancelled", { requestId: "a", reason: { any: 1 } }));
    expect(raw.contexts[1]!.signal.aborted).toBe(true);
    raw.open.resolve("ran");
    await turn();
    expect(raw.messages()).toEqual([result(null, "ran")]);
  });
});
