/** The behaviour that every third-party client must get from a reciproc server: one suite, and an adapter for each client. */
import { expect, it } from "vitest";
import type { AnyPeer } from "../../../src/node.js";
import { rejection, turn } from "../../support/turns.js";
import { Inbox, stateOf } from "../support/inbox.js";
import { ATTIC, startService, type Service } from "../support/service.js";

/** An open client behind the interface of this suite. Its errors have `code`, `message` and `data`. */
export interface ThirdPartyClient {
  call(method: string, params?: object): PromiseLike<unknown>;
  notify(method: string, params?: object): unknown;
  /** Sends one batch: the call `add` of [1, 2], the notification `note` of ["in a batch"], and the call `attic`. Resolves with both outcomes. */
  batch?(): Promise<[sum: unknown, error: unknown]>;
  /** Notifications from the server: `[method, params]`. */
  readonly pushed: Inbox;
  /** Ends the connection in the client's own way, and resolves when it has ended. */
  close(): Promise<unknown>;
}

/** The differences between clients. */
export interface Traits {
  /** Opens a client. */
  readonly open: (url: string) => Promise<ThirdPartyClient>;
  /** The expected ids. */
  readonly ids: (ids: unknown[]) => void;
  /** The outcome of its pending calls when it or the server closes. */
  readonly pending: "rejected" | "pending";
  /** Whether it sends batches. Default true. */
  readonly batches?: boolean;
  /** How it presents params of a notification. Default: unchanged. */
  readonly shows?: (params: unknown) => unknown;
}

/** Opens a service and a client of it. Both end with the test. */
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

/** Runs the suite. */
export function behavesAsClient({ open, ids, pending, batches = true, shows = (params) => params }: Traits): void {
  it("gets results, by position and by name", async () => {
    await using both = await meet(open);
    const { client } = both;
    expect(await client.call("add", [1, 2])).toBe(3);
    expect(await client.call("add", { a: 40, b: 2 })).toBe(42);
    const rich = [{ deep: [null, true, 1.5, "é😀", { "": [] }] }, "x".repeat(100_000)];
    expect(await client.call("echo", rich)).toEqual(rich);
  });

  it("gets falsy results unchanged, and null for undefined", async () => {
    await using both = await meet(open);
    const { client } = both;
    for (const value of [0, "", false, null]) expect(await client.call("echo", [value])).toEqual([value]);
    expect(await client.call("nothing", [])).toBe(null);
  });

  it("gets errors with code, message and data", async () => {
    await using both = await meet(open);
    const { client, service } = both;
    expect(await rejection(Promise.resolve(client.call("attic", [])))).toMatchObject(ATTIC);
    expect(await rejection(Promise.resolve(client.call("nope", [])))).toMatchObject({
      code: -32601,
      message: "Method not found",
    });
    const crash = await rejection(Promise.resolve(client.call("crash", [])));
    expect(crash).toMatchObject({ code: -32603, message: "Internal error" });
    expect(JSON.stringify(crash) + String(crash)).not.toContain("hunter2");
    expect(await service.errors.next()).toMatchObject({ message: "the password is hunter2" });
    expect(await client.call("add", [1, 2])).toBe(3);
  });

  it("keeps many calls in flight, answered in another order", async () => {
    await using both = await meet(open);
    const { client, service } = both;
    const names = Array.from({ length: 100 }, (_, i) => `call ${i}`);
    const order: string[] = [];
    const calls = names.map(async (name) => {
      const value = await client.call("wait", [name]);
      order.push(name);
      return value;
    });
    expect(await client.call("add", [1, 2])).toBe(3);
    const reversed = [...names].reverse();
    for (const name of reversed) service.gateOf(name).resolve(`answer to ${name}`);
    expect(await Promise.all(calls)).toEqual(names.map((name) => `answer to ${name}`));
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
    await client.call("nothing", []);
    expect(peer.stats().bytesSent).toBeGreaterThan(bytesSent);
  });

  it("is notified by the server, in order, while calls are pending", async () => {
    await using both = await meet(open);
    const { client, service, peer } = both;
    const call = client.call("wait", ["call"]);
    await client.call("nothing", []);
    for (let i = 0; i < 3; i++) expect(peer.notify("tick", { i })).toBe(true);
    for (let i = 0; i < 3; i++) expect(await client.pushed.next()).toEqual(["tick", shows({ i })]);
    service.gateOf("call").resolve("answered");
    expect(await call).toBe("answered");
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

  it("numbers its calls with ids that the server echoes", async () => {
    await using both = await meet(open);
    const { client, service } = both;
    for (let i = 0; i < 3; i++) await client.call("nothing", []);
    ids(service.ids);
  });

  it.each(["client", "server"] as const)(`leaves its pending calls ${pending} when the %s closes`, async (who) => {
    await using both = await meet(open);
    const { client, peer } = both;
    const call = client.call("wait", ["for ever"]);
    Promise.resolve(call).catch(() => {});
    await client.call("nothing", []);
    if (who === "server") await peer.close();
    await client.close();
    await peer.closed;
    await turn();
    expect(await stateOf(call)).toBe(pending);
  });
}
