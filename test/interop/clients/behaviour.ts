/** The behaviour that every third-party client must get from a reciproc server: one suite, and an adapter for each client. */
import { expect, it } from "vitest";
import type { AnyPeer } from "../../../src/node.js";
import { rejection, turn } from "../../support/turns.js";
import { stateOf, type Inbox } from "../../support/inbox.js";
import { ATTIC, startService, type Service } from "../support/service.js";

/** An open client behind the interface of this suite. Its errors have `code`, `message` and `data`. */
export interface ThirdPartyClient {
  call(method: string, params?: object): Promise<unknown>;
  notify(method: string, params?: object): unknown;
  /** Sends one batch: the call `add` of [1, 2], the notification `note` of ["in a batch"], and the call `attic`. Resolves with both outcomes. */
  batch?(): Promise<[sum: unknown, error: unknown]>;
  /** What the server sends to its methods `tick` and, if it serves no calls, `confirm`: `[method, params]`. */
  readonly pushed: Inbox;
  /** Ends the connection in the client's own way, and resolves when it has ended. */
  close(): Promise<unknown>;
}

export interface Traits {
  readonly open: (url: string) => Promise<ThirdPartyClient>;
  readonly ids: unknown[];
  /** The outcome of its pending calls when it or the server closes. */
  readonly pending: "rejected" | "pending";
  /** What it does with the server's calls: it answers `confirm` with "yes to <question>", or ignores them, or mistakes them for answers. */
  readonly called: "answers" | "ignores" | "mistakes";
  /** Whether it sends batches. Default true. */
  readonly batches?: boolean;
}

export async function meet<C extends ThirdPartyClient>(
  open: (url: string) => Promise<C>,
): Promise<{ service: Service; client: C; peer: AnyPeer } & AsyncDisposable> {
  const service = await startService();
  const client = await open(service.url);
  return {
    service,
    client,
    peer: await service.peers.next(),
    async [Symbol.asyncDispose]() {
      await client.close();
      await service[Symbol.asyncDispose]();
    },
  };
}

export function behavesAsClient({ open, ids, pending, called, batches = true }: Traits): void {
  it("gets results, by position and by name, by ids of its own", async () => {
    await using both = await meet(open);
    const { client, service } = both;
    expect(await client.call("add", [1, 2])).toBe(3);
    expect(await client.call("add", { a: 40, b: 2 })).toBe(42);
    expect(await client.call("nothing", [])).toBe(null);
    expect(service.ids).toEqual(ids);
    const rich = [{ deep: [null, true, 1.5, "é😀", { "": [] }] }, "x".repeat(100_000), 0, "", false, null];
    expect(await client.call("echo", rich)).toEqual(rich);
    for (const value of [0, "", false]) expect(await client.call("echo", [value])).toEqual([value]);
  });

  it("gets errors with code, message and data", async () => {
    await using both = await meet(open);
    const { client, service } = both;
    expect(await rejection(client.call("attic", []))).toMatchObject(ATTIC);
    expect(await rejection(client.call("nope", []))).toMatchObject({ code: -32601 });
    const crash = await rejection(client.call("crash", []));
    expect(crash).toMatchObject({ code: -32603, message: "Internal error" });
    expect(JSON.stringify(crash) + String(crash)).not.toContain("hunter2");
    expect(await service.errors.next()).toMatchObject({ message: "the password is hunter2" });
  });

  it("keeps many calls in flight, answered in another order", async () => {
    await using both = await meet(open);
    const { client } = both;
    const names = Array.from({ length: 100 }, (_, i) => `call ${i}`);
    const order: unknown[] = [];
    const calls = names.map((name) => client.call("wait", [name]).then((value) => order.push(value)));
    expect(await client.call("add", [1, 2])).toBe(3);
    const reversed = [...names].reverse();
    for (const name of reversed) await client.notify("release", [name]);
    await Promise.all(calls);
    expect(order).toEqual(reversed);
  });

  it("notifies the server, and gets no answer", async () => {
    await using both = await meet(open);
    const { client, service, peer } = both;
    const { bytesSent } = peer.stats();
    await client.notify("note", { by: "name" });
    await client.notify("note", ["by", "position"]);
    expect(await service.noted.next()).toEqual({ by: "name" });
    expect(await service.noted.next()).toEqual(["by", "position"]);
    await turn();
    expect(peer.stats().bytesSent).toBe(bytesSent);
    expect(service.ids).toEqual([]);
  });

  it("is notified by the server, in order, while calls are pending", async () => {
    await using both = await meet(open);
    const { client, peer } = both;
    const call = client.call("wait", ["call"]);
    await client.call("nothing", []);
    for (let i = 0; i < 3; i++) expect(peer.notify("tick", { i })).toBe(true);
    for (let i = 0; i < 3; i++) expect(await client.pushed.next()).toEqual(["tick", { i }]);
    await client.notify("release", ["call"]);
    expect(await call).toBe("call");
  });

  if (batches) {
    it("sends a batch and gets the answer to each call", async () => {
      await using both = await meet(open);
      const { client, service } = both;
      const [sum, error] = await client.batch!();
      expect(sum).toBe(3);
      expect(error).toMatchObject(ATTIC);
      expect(service.noted.all).toEqual([["in a batch"]]);
    });
  }

  if (called === "answers") {
    it("answers calls that the server makes during its own calls", async () => {
      await using both = await meet(open);
      const { client, peer } = both;
      const asked = ["a", "b", "c"].map((question) => client.call("ask", { question }));
      expect(await Promise.all(asked)).toEqual(["a", "b", "c"].map((question) => `you said yes to ${question}`));
      expect(await rejection(peer.request("nope"))).toMatchObject({ code: -32601 });
    });
  }

  if (called === "ignores") {
    it("does not answer the server's calls, and its own calls still work", async () => {
      await using both = await meet(open);
      const { client, peer } = both;
      const asked = peer.request("confirm", { question: "sure?" });
      expect(await client.pushed.next()).toEqual(["confirm", { question: "sure?" }]);
      expect(await client.call("add", [1, 2])).toBe(3);
      expect(await stateOf(asked)).toBe("pending");
      const lost = rejection(asked);
      await client.close();
      expect(await lost).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    });
  }

  it.each(["client", "server"] as const)(`leaves its pending calls ${pending} when the %s closes`, async (end) => {
    await using both = await meet(open);
    const { client, peer } = both;
    const call = client.call("wait", ["for ever"]);
    call.catch(() => {});
    await client.call("nothing", []);
    if (end === "server") await peer.close();
    await client.close();
    await peer.closed;
    // A client in another process rejects later than the server sees the close.
    if (pending === "rejected") await rejection(call);
    await turn();
    expect(await stateOf(call)).toBe(pending);
  });
}
