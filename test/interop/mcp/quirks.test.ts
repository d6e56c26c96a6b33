/** Proves the faults of the MCP SDK that docs/INTEROP.md lists. If a test fails here, its line there can be removed. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import {
  CallToolResultSchema,
  InitializeResultSchema,
  ListRootsRequestSchema,
  type JSONRPCMessage,
} from "@modelcontextprotocol/sdk/types.js";
import { afterEach, describe, expect, it } from "vitest";
import { TimeoutError } from "../../../src/node.js";
import { gate, rejection } from "../../support/turns.js";
import { answersTo } from "../support/sdk.js";
import { initialize, sdkClient, sdkServer, startClocks, stopClocks } from "./sdk.js";

afterEach(startClocks);

const DONE = { content: [{ type: "text", text: "done" }] };

describe("the MCP SDK 1.32.2", () => {
  it("drops a whole batch, so that the calls in it time out", async () => {
    await using sdk = await sdkServer(() => {});
    const clock = stopClocks();
    const batch = sdk.peer.batch();
    const ping = rejection(batch.request("ping", undefined, { timeoutMs: 100 }));
    batch.send();
    // The answer proves that the SDK has read the batch before it.
    await sdk.peer.request("ping");
    await clock.pass(100);
    expect(await ping).toBeInstanceOf(TimeoutError);
    expect(sdk.takeComplaints()).toHaveLength(1);
  });

  it("drops a message with a member at its top level that it does not know", async () => {
    await using sdk = await sdkServer(() => {});
    const known = { jsonrpc: "2.0", method: "notifications/initialized" };
    const traced = { ...known, traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" };
    sdk.wire.emit("message", Buffer.from(JSON.stringify(known)), false);
    expect(sdk.takeComplaints()).toEqual([]);
    sdk.wire.emit("message", Buffer.from(JSON.stringify(traced)), false);
    expect(sdk.takeComplaints()).toHaveLength(1);
  });

  it("drops an answer with the result null, as of a handler without a result, so that the call stays pending", async () => {
    await using sdk = await sdkClient({ "tools/call": () => {} });
    const clock = stopClocks();
    const outcome = rejection(sdk.client.callTool({ name: "any" }, undefined, { timeout: 100 }));
    const { id } = sdk.wire.sent.at(-1);
    await sdk.client.ping();
    expect(answersTo(id, sdk.wire.received)).toMatchObject([{ result: null }]);
    expect(sdk.takeComplaints()).toHaveLength(1);
    await clock.pass(100);
    expect(await outcome).toMatchObject({ code: -32001 });
  });

  it("drops an error whose id is null, the answer to malformed JSON", async () => {
    await using sdk = await sdkClient({});
    sdk.wire.send("{}");
    await sdk.client.ping();
    sdk.malformed = 1;
    expect(answersTo(null, sdk.wire.received)).toMatchObject([{ error: { code: -32600 } }]);
    expect(sdk.takeComplaints()).toHaveLength(1);
  });

  it("loses a report of progress that is read together with the answer", async () => {
    const [ours, theirs] = InMemoryTransport.createLinkedPair();
    const client = new Client({ name: "sdk", version: "1" });
    const errors: Error[] = [];
    client.onerror = (error) => errors.push(error);
    // No handshake, because the test concerns two messages in one tick.
    ours.onmessage = (message) => {
      const { id, method } = message as { id: number; method: string };
      const say = (rest: object): unknown => ours.send({ jsonrpc: "2.0", ...rest } as JSONRPCMessage);
      if (method === "initialize") return say({ id, result: initialize({ protocolVersion: "2025-11-25" }) });
      if (method !== "tools/call") return undefined;
      say({ method: "notifications/progress", params: { progressToken: id, progress: 1 } });
      return say({ id, result: DONE });
    };
    await client.connect(theirs);
    const seen: unknown[] = [];
    await client.request({ method: "tools/call", params: { name: "any" } }, CallToolResultSchema, {
      onprogress: (report) => seen.push(report),
    });
    await client.close();
    expect(seen).toEqual([]);
    expect(errors.map(({ message }) => message)).toEqual([expect.stringContaining("unknown token")]);
  });

  it("does not stop its handler when request 0 is cancelled, and answers it", async () => {
    const begun = gate();
    const finish = gate();
    const aborted: boolean[] = [];
    await using sdk = await sdkClient({}, { roots: {} });
    sdk.client.setRequestHandler(ListRootsRequestSchema, async (_request, { signal }) => {
      begun.resolve();
      await finish.promise;
      aborted.push(signal.aborted);
      return { roots: [] };
    });
    const say = (message: object): boolean =>
      sdk.wire.emit("message", Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message })), false);
    say({ id: 0, method: "roots/list" });
    await begun.promise;
    say({ method: "notifications/cancelled", params: { requestId: 0 } });
    finish.resolve();
    await sdk.client.ping();
    expect(aborted).toEqual([false]);
    expect(answersTo(0, sdk.wire.sent)).toHaveLength(1);
  });

  it("rejects an aborted call with code -32001, and not with the signal's reason", async () => {
    await using sdk = await sdkClient({
      "tools/call": async () => new Promise((resolve) => setImmediate(resolve, DONE)),
    });
    const reason = new Error("never mind");
    const abort = new AbortController();
    const outcome = rejection(sdk.client.callTool({ name: "any" }, undefined, { signal: abort.signal }));
    abort.abort(reason);
    expect(await outcome).toMatchObject({ code: -32001, message: expect.stringContaining("never mind") });
    expect(await outcome).not.toBe(reason);
  });

  it("cancels an answered call when its signal aborts later, which reciproc ignores", async () => {
    await using sdk = await sdkClient({ "tools/call": () => DONE });
    const abort = new AbortController();
    await sdk.client.callTool({ name: "any" }, undefined, { signal: abort.signal });
    abort.abort();
    expect(sdk.wire.sent.at(-1)).toMatchObject({ method: "notifications/cancelled" });
    await sdk.client.ping();
  });

  it("cancels initialize, which MCP forbids and reciproc ignores", async () => {
    const finish = gate();
    const aborted: boolean[] = [];
    await using sdk = await sdkClient({
      initialize: async (params, { id, signal }) => {
        if (id !== 0) await finish.promise;
        aborted.push(signal.aborted);
        return initialize(params);
      },
    });
    const abort = new AbortController();
    const { params } = sdk.wire.sent.find(({ method }) => method === "initialize");
    const again = sdk.client.request({ method: "initialize", params }, InitializeResultSchema, {
      signal: abort.signal,
    });
    const { id } = sdk.wire.sent.at(-1);
    abort.abort();
    await rejection(again);
    expect(sdk.wire.sent.at(-1)).toMatchObject({ method: "notifications/cancelled", params: { requestId: id } });
    // Answered after the cancel was read.
    await sdk.client.ping();
    finish.resolve();
    await sdk.client.ping();
    expect(aborted).toEqual([false, false]);
    expect(answersTo(id, sdk.wire.received)).toHaveLength(1);
    expect(sdk.takeComplaints()).toEqual([expect.stringContaining("unknown message ID")]);
  });

  it("sends no cancel when maxTotalTimeout ends a call, and checks it only when a report arrives", async () => {
    const begun = gate<(value: unknown) => void>();
    const stopped = gate();
    await using sdk = await sdkClient({
      "tools/call": async (_params, { progress, signal }) => {
        begun.resolve(progress);
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        stopped.resolve();
      },
    });
    const clock = stopClocks();
    const outcome = rejection(
      sdk.client.callTool({ name: "any" }, undefined, {
        timeout: 1000,
        maxTotalTimeout: 100,
        resetTimeoutOnProgress: true,
        onprogress: () => {},
      }),
    );
    const progress = await begun.promise;
    await clock.pass(500);
    await sdk.client.ping();
    progress(1);
    expect(await outcome).toMatchObject({ code: -32001, data: { totalElapsed: 500 } });
    await sdk.client.ping();
    expect(sdk.wire.sent.filter(({ method }) => method === "notifications/cancelled")).toEqual([]);
    // Only the end of the connection stops the handler.
    await sdk.client.close();
    await stopped.promise;
  });
});
