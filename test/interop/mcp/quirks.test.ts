/** Proves the faults of the MCP SDK that docs/INTEROP.md lists. If a test fails here, its line there can be removed. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import {
  CallToolResultSchema,
  InitializeResultSchema,
  ListRootsRequestSchema,
  type JSONRPCMessage,
} from "@modelcontextprotocol/sdk/types.js";
import { describe, expect, it, vi } from "vitest";
import { TimeoutError } from "../../../src/node.js";
import { gate, pass, rejection, useVirtualClock } from "../../support/time.js";
import { aborted, answersTo, type Joined } from "../support/sdk.js";
import { initialize, sdkClient, sdkServer } from "./sdk.js";

useVirtualClock();

const DONE = { content: [{ type: "text", text: "done" }] };

/** Lets the SDK read a message that reciproc never sends. */
function receive({ wire }: Joined, message: object): void {
  wire.emit("message", Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message })), false);
}

describe("the MCP SDK 1.32.2", () => {
  it("drops a whole batch, so that the calls in it time out", async () => {
    await using sdk = await sdkServer(() => {});
    const batch = sdk.peer.batch();
    const ping = rejection(batch.request("ping", undefined, { timeoutMs: 100 }));
    batch.send();
    // The answer proves that the SDK has read the batch before it.
    await sdk.peer.request("ping");
    await pass(100);
    expect(await ping).toBeInstanceOf(TimeoutError);
    expect(sdk.takeComplaints()).toHaveLength(1);
  });

  it("drops a message with a member at its top level that it does not know", async () => {
    await using sdk = await sdkServer(() => {});
    const known = { method: "notifications/initialized" };
    receive(sdk, known);
    expect(sdk.takeComplaints()).toEqual([]);
    receive(sdk, { ...known, traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" });
    expect(sdk.takeComplaints()).toHaveLength(1);
  });

  it("drops an answer with the result null, as of a handler without a result, so that the call stays pending", async () => {
    await using sdk = await sdkClient({ "tools/call": () => {} });
    const outcome = rejection(sdk.theirs.callTool({ name: "any" }, undefined, { timeout: 100 }));
    const { id } = sdk.wire.sent.at(-1);
    await sdk.theirs.ping();
    expect(answersTo(id, sdk.wire.received)).toMatchObject([{ result: null }]);
    expect(sdk.takeComplaints()).toHaveLength(1);
    await pass(100);
    expect(await outcome).toMatchObject({ code: -32001 });
  });

  it("drops an error whose id is null, the answer to a malformed message", async () => {
    await using sdk = await sdkClient({});
    sdk.wire.send("{}");
    await sdk.theirs.ping();
    expect(answersTo(null, sdk.wire.received.splice(0))).toMatchObject([{ error: { code: -32600 } }]);
    expect(sdk.takeComplaints()).toHaveLength(1);
  });

  it("loses a report of progress that is read together with the answer", async () => {
    const [ours, theirs] = InMemoryTransport.createLinkedPair();
    const client = new Client({ name: "sdk", version: "1" });
    const errors: Error[] = [];
    client.onerror = (error) => errors.push(error);
    // In memory, because the test concerns two messages in one tick.
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
    const call = { method: "tools/call", params: { name: "any" } } as const;
    await client.request(call, CallToolResultSchema, { onprogress: (report) => seen.push(report) });
    await client.close();
    expect(seen).toEqual([]);
    expect(errors.map(({ message }) => message)).toEqual([expect.stringContaining("unknown token")]);
  });

  it("does not stop its handler when request 0 is cancelled, and answers it", async () => {
    const [begun, finish] = [gate(), gate()];
    const stopped: boolean[] = [];
    await using sdk = await sdkClient({}, { roots: {} });
    sdk.theirs.setRequestHandler(ListRootsRequestSchema, async (_request, { signal }) => {
      begun.resolve();
      await finish.promise;
      stopped.push(signal.aborted);
      return { roots: [] };
    });
    receive(sdk, { id: 0, method: "roots/list" });
    await begun.promise;
    receive(sdk, { method: "notifications/cancelled", params: { requestId: 0 } });
    finish.resolve();
    await sdk.theirs.ping();
    expect(stopped).toEqual([false]);
    expect(answersTo(0, sdk.wire.sent)).toHaveLength(1);
  });

  it("rejects an aborted call with code -32001, and cancels an answered one when its signal aborts later", async () => {
    await using sdk = await sdkClient({ "tools/call": () => DONE });
    const abort = new AbortController();
    const call = (): Promise<unknown> => sdk.theirs.callTool({ name: "any" }, undefined, { signal: abort.signal });
    await call();
    const outcome = rejection(call());
    abort.abort(new Error("never mind"));
    expect(await outcome).toMatchObject({ code: -32001, message: expect.stringContaining("never mind") });
    await sdk.theirs.ping();
    const cancels = sdk.wire.sent.filter(({ method }) => method === "notifications/cancelled");
    expect(cancels).toMatchObject([{ params: { requestId: 1 } }, { params: { requestId: 2 } }]);
    sdk.takeComplaints();
  });

  it("cancels initialize, which MCP forbids and reciproc ignores", async () => {
    const finish = gate();
    const stopped: boolean[] = [];
    await using sdk = await sdkClient({
      initialize: async (params, { id, signal }) => {
        if (id !== 0) await finish.promise;
        stopped.push(signal.aborted);
        return initialize(params);
      },
    });
    const abort = new AbortController();
    const { params } = sdk.wire.sent.find(({ method }) => method === "initialize");
    const { signal } = abort;
    const again = sdk.theirs.request({ method: "initialize", params }, InitializeResultSchema, { signal });
    const { id } = sdk.wire.sent.at(-1);
    abort.abort();
    await rejection(again);
    expect(sdk.wire.sent.at(-1)).toMatchObject({ method: "notifications/cancelled", params: { requestId: id } });
    // Answered after the cancel was read.
    await sdk.theirs.ping();
    finish.resolve();
    await sdk.theirs.ping();
    expect(stopped).toEqual([false, false]);
    expect(answersTo(id, sdk.wire.received)).toHaveLength(1);
    expect(sdk.takeComplaints()).toEqual([expect.stringContaining("unknown message ID")]);
  });

  it("sends no cancel when maxTotalTimeout ends a call, and checks it only when a report arrives", async () => {
    const begun = gate<(value: unknown) => void>();
    const stopped = gate<unknown>();
    await using sdk = await sdkClient({
      "tools/call": (_params, { progress, signal }) => {
        begun.resolve(progress);
        return aborted(signal).then(stopped.resolve);
      },
    });
    const options = { timeout: 1000, maxTotalTimeout: 100, resetTimeoutOnProgress: true, onprogress: () => {} };
    const outcome = rejection(sdk.theirs.callTool({ name: "any" }, undefined, options));
    const progress = await begun.promise;
    await pass(500);
    vi.spyOn(Date, "now").mockReturnValue(Date.now() + 500);
    await sdk.theirs.ping();
    progress(1);
    expect(await outcome).toMatchObject({ code: -32001, data: { maxTotalTimeout: 100 } });
    await sdk.theirs.ping();
    expect(sdk.wire.sent.filter(({ method }) => method === "notifications/cancelled")).toEqual([]);
    // Only the end of the connection stops the handler.
    await sdk.theirs.close();
    await stopped.promise;
  });
});
