/** Proves that the unchanged code of docs/guides/tracing.md makes the documented spans and measurements on both sides. */
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { context, metrics, propagation, SpanKind, SpanStatusCode, trace, type Attributes } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { CompositePropagator, W3CBaggagePropagator, W3CTraceContextPropagator } from "@opentelemetry/core";
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
  type Histogram,
} from "@opentelemetry/sdk-metrics";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type ReadableSpan,
  type SpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type * as Source from "../../src/node.js";
import type { AnyMethods, Around, Peer, Server } from "../../src/node.js";
import { clean, extract, folder, linkPackages } from "../readme/examples.js";
import type { AnyOptions } from "../support/pair.js";
import { gate, rejection, turn } from "../support/turns.js";

const spans = new InMemorySpanExporter();
/** The ids of all spans in the order of their start, which a millisecond clock cannot distinguish. */
const beginnings: string[] = [];
const noteBegin: SpanProcessor = {
  onStart: (span) => void beginnings.push(span.spanContext().spanId),
  onEnd() {},
  forceFlush: async () => {},
  shutdown: async () => {},
};
const measurements = new InMemoryMetricExporter(AggregationTemporality.DELTA);
const reader = new PeriodicExportingMetricReader({ exporter: measurements, exportIntervalMillis: 2 ** 31 - 1 });

type Package = typeof Source;
type Traced = (methods: object, options?: { meta?: boolean }) => Around;

/** The package as the guide's code imports it, because an error class of another copy would not match. */
let reciproc: Package;
let traced: Traced;
let server: Server;
let peer: Peer;

async function load<T>(path: string): Promise<T> {
  return (await import(pathToFileURL(path).href)) as T;
}

beforeAll(async () => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const propagators = [new W3CTraceContextPropagator(), new W3CBaggagePropagator()];
  propagation.setGlobalPropagator(new CompositePropagator({ propagators }));
  const spanProcessors = [noteBegin, new SimpleSpanProcessor(spans)];
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors }));
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
  await linkPackages(import.meta.dirname);
  await extract("docs/guides/tracing.md");
  reciproc = await load<Package>(fileURLToPath(new URL("../../dist/node.js", import.meta.url)));
  ({ traced } = await load<{ traced: Traced }>(join(folder, "tracing.js")));
  ({ server } = await load<{ server: Server }>(join(folder, "traced-server.js")));
  ({ peer } = await load<{ peer: Peer }>(join(folder, "traced-client.js")));
});

beforeEach(async () => {
  spans.reset();
  await reader.forceFlush();
  measurements.reset();
});

afterAll(async () => {
  await peer.close();
  await server.close();
  await reader.shutdown();
  await clean();
});

/** Returns the spans that ended since the test began, in the order of their start. */
async function ended(): Promise<ReadableSpan[]> {
  // The span of a notification may end slightly after a later answer.
  await turn();
  const byId = new Map(spans.getFinishedSpans().map((span) => [span.spanContext().spanId, span]));
  return beginnings.flatMap((id) => byId.get(id) ?? []);
}

/** Returns the spans as a tree, one per line, with children indented. */
function tree(all: ReadableSpan[], parent?: string, depth = 0): string[] {
  return all
    .filter(({ parentSpanContext }) => parentSpanContext?.spanId === parent)
    .flatMap((span) => [
      `${"  ".repeat(depth)}${span.name} ${SpanKind[span.kind]}`,
      ...tree(all, span.spanContext().spanId, depth + 1),
    ]);
}

function spanOf(all: ReadableSpan[], name: string, kind: SpanKind): ReadableSpan {
  const found = all.filter((span) => span.name === name && span.kind === kind);
  expect(found).toHaveLength(1);
  return found[0]!;
}

/** Two traced peers in memory that speak MCP. `b` makes the calls. */
function tracedPair(methods: AnyMethods, meta = true, ofB: AnyOptions = {}): [Peer, Peer] {
  const { mcp, pair } = reciproc;
  return pair<AnyMethods, AnyMethods>(
    { dialect: mcp, methods, around: traced(methods, { meta }) },
    { dialect: mcp, around: traced({}, { meta }), ...ofB },
  );
}

const COMMON = { "rpc.system.name": "jsonrpc", "jsonrpc.protocol.version": "2.0" };

/** One row of a histogram: the attributes and the count. */
function row(method: string, count: number, more: Attributes = {}): unknown[] {
  return [{ "rpc.system.name": "jsonrpc", "rpc.method": method, ...more }, count];
}

describe("the tracing guide's two peers", () => {
  it("make one trace of a call, the call back inside it, and the notification", async () => {
    expect(await peer.request("plan", { city: "Rome" })).toEqual({ city: "Rome", day: "Monday" });
    const all = await ended();
    expect(tree(all)).toEqual([
      "plan CLIENT",
      "  plan SERVER",
      "    calendar CLIENT",
      "      calendar SERVER",
      "    planned CLIENT",
      "      planned SERVER",
    ]);
    expect(new Set(all.map((span) => span.spanContext().traceId)).size).toBe(1);
    expect(all.map(({ status }) => status.code)).toEqual(all.map(() => SpanStatusCode.UNSET));
  });

  it("set the attributes of the conventions on each span, without an id for a notification", async () => {
    await peer.request("plan", { city: "Rome" });
    const all = await ended();
    const plan = spanOf(all, "plan", SpanKind.CLIENT).attributes;
    const id = plan["jsonrpc.request.id"];
    expect(id).toMatch(/^\d+$/);
    expect(plan).toEqual({ ...COMMON, "rpc.method": "plan", "jsonrpc.request.id": id });
    expect(spanOf(all, "plan", SpanKind.SERVER).attributes).toEqual(plan);
    for (const kind of [SpanKind.CLIENT, SpanKind.SERVER]) {
      expect(spanOf(all, "planned", kind).attributes).toEqual({ ...COMMON, "rpc.method": "planned" });
    }
  });

  it("make one span of a message to all peers of a server, whose receivers are its children", async () => {
    const heard = gate();
    peer.once("notification", () => heard.resolve());
    server.peers.notify("news", { n: 1 });
    await heard.promise;
    const [outcome] = await server.peers.request("calendar", { city: "Rome" });
    expect(outcome).toMatchObject({ status: "fulfilled", value: { days: ["Monday"] } });
    const all = await ended();
    expect(tree(all)).toEqual(["news CLIENT", "  jsonrpc SERVER", "calendar CLIENT", "  calendar SERVER"]);
    expect(spanOf(all, "calendar", SpanKind.CLIENT).attributes).toEqual({ ...COMMON, "rpc.method": "calendar" });
  });

  it("join the active trace of the caller", async () => {
    const outer = trace.getTracer("test").startSpan("outer");
    await context.with(trace.setSpan(context.active(), outer), () => peer.request("plan", { city: "Rome" }));
    outer.end();
    const all = await ended();
    expect(tree(all).slice(0, 3)).toEqual(["outer INTERNAL", "  plan CLIENT", "    plan SERVER"]);
  });

  it("mark an error on both sides, with its code", async () => {
    expect(await rejection(peer.request("plan", { city: "Bonn" }))).toMatchObject({ code: 409 });
    const all = await ended();
    for (const kind of [SpanKind.CLIENT, SpanKind.SERVER]) {
      const { status, attributes } = spanOf(all, "plan", kind);
      expect(status).toEqual({ code: SpanStatusCode.ERROR, message: "no day is free" });
      expect(attributes).toMatchObject({ "error.type": "409", "rpc.response.status_code": "409" });
      expect(spanOf(all, "calendar", kind).status.code).toBe(SpanStatusCode.UNSET);
    }
  });

  it("measure each call in seconds, by method and error, on both sides", async () => {
    await peer.request("plan", { city: "Rome" });
    await peer.request("plan", { city: "Rome" });
    await rejection(peer.request("plan", { city: "Bonn" }));
    await turn();
    await reader.forceFlush();
    const found = measurements
      .getMetrics()
      .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics));
    expect(Object.fromEntries(found.map(({ descriptor }) => [descriptor.name, descriptor.unit]))).toEqual({
      "rpc.client.call.duration": "s",
      "rpc.server.call.duration": "s",
    });
    const failed = { "error.type": "409", "rpc.response.status_code": "409" };
    for (const { dataPoints } of found) {
      const counts = dataPoints.map(({ attributes, value }) => [attributes, (value as Histogram).count]);
      expect(counts).toHaveLength(4);
      expect(counts).toEqual(
        expect.arrayContaining([row("plan", 2), row("plan", 1, failed), row("calendar", 3), row("planned", 2)]),
      );
      for (const { value } of dataPoints) {
        expect((value as Histogram).sum).toBeGreaterThan(0);
        expect((value as Histogram).sum).toBeLessThan(20);
      }
    }
  });
});

describe("the tracing guide's around", () => {
  it("records a handler's own failure as -32603 on both sides, and its message only locally", async () => {
    const [a, b] = tracedPair({
      fail() {
        throw new Error("hunter2");
      },
    });
    await rejection(b.request("fail"));
    const all = await ended();
    const failed = { "error.type": "-32603", "rpc.response.status_code": "-32603" };
    const inner = spanOf(all, "fail", SpanKind.SERVER);
    expect(inner.attributes).toMatchObject(failed);
    expect(inner.status.message).toBe("hunter2");
    const outer = spanOf(all, "fail", SpanKind.CLIENT);
    expect(outer.attributes).toMatchObject(failed);
    expect(outer.status.message).toBe("Internal error");
    await a.close();
  });

  it("records a received error that a handler does not catch as -32603 on both sides", async () => {
    const [a, b] = tracedPair({
      ask: (_params: unknown, call: { peer: Peer }) => call.peer.request("missing"),
    } as never);
    expect(await rejection(b.request("ask"))).toMatchObject({ code: -32603 });
    const all = await ended();
    for (const kind of [SpanKind.CLIENT, SpanKind.SERVER]) {
      expect(spanOf(all, "ask", kind).attributes["rpc.response.status_code"]).toBe("-32603");
    }
    await a.close();
  });

  it("records an abort as the end of an unanswered call, on both sides", async () => {
    const begun = gate();
    const stopped = gate();
    const [a, b] = tracedPair({
      slow: (_params: unknown, { signal }: { signal: AbortSignal }) =>
        new Promise((_resolve, reject) => {
          begun.resolve();
          signal.addEventListener("abort", () => (reject(signal.reason), stopped.resolve()));
        }),
    } as never);
    const abort = new AbortController();
    const outcome = rejection(b.request("slow", {}, { signal: abort.signal }));
    await begun.promise;
    abort.abort();
    await outcome;
    await stopped.promise;
    const all = await ended();
    for (const kind of [SpanKind.CLIENT, SpanKind.SERVER]) {
      const { attributes, status } = spanOf(all, "slow", kind);
      expect(status.code).toBe(SpanStatusCode.ERROR);
      expect(attributes["error.type"]).toBe("AbortError");
      expect(attributes).not.toHaveProperty("rpc.response.status_code");
    }
    await a.close();
  });

  it.each<[string, (b: Peer) => unknown, string]>([
    ["a timeout", (b) => rejection(b.request("stuck", {}, { timeoutMs: 1 })), "TimeoutError"],
    [
      "the end of the connection",
      (b) => {
        const outcome = rejection(b.request("stuck"));
        return Promise.all([b.close(), outcome]);
      },
      "ConnectionLostError",
    ],
  ])("names what ended a call that was not answered: %s", async (_name, end, type) => {
    const finish = gate();
    const [a, b] = tracedPair({ stuck: () => finish.promise });
    await end(b);
    finish.resolve();
    const { attributes } = spanOf(await ended(), "stuck", SpanKind.CLIENT);
    expect(attributes["error.type"]).toBe(type);
    expect(attributes).not.toHaveProperty("rpc.response.status_code");
    await a.close();
  });

  it("marks a notification whose handler fails, without a code, because none crosses the wire", async () => {
    const [a, b] = tracedPair({
      fail() {
        throw new RangeError("too far");
      },
    });
    b.notify("fail", { far: true });
    const all = await ended();
    expect(tree(all)).toEqual(["fail CLIENT", "  fail SERVER"]);
    const { attributes, status } = spanOf(all, "fail", SpanKind.SERVER);
    expect(status.code).toBe(SpanStatusCode.ERROR);
    expect(attributes["error.type"]).toBe("RangeError");
    expect(attributes).not.toHaveProperty("rpc.response.status_code");
    expect(spanOf(all, "fail", SpanKind.CLIENT).status.code).toBe(SpanStatusCode.UNSET);
    await a.close();
  });

  it("counts all unknown methods under one name", async () => {
    const [a, b] = tracedPair({});
    await rejection(b.request("toString"));
    b.notify("a1b2c3");
    const all = (await ended()).filter(({ kind }) => kind === SpanKind.SERVER);
    expect(all.map(({ name }) => name)).toEqual(["jsonrpc", "jsonrpc"]);
    expect(all[0]!.attributes).toMatchObject({
      "rpc.method": "_OTHER",
      "rpc.method_original": "toString",
      "error.type": "-32601",
    });
    expect(all[1]!.attributes).toMatchObject({ "rpc.method": "_OTHER", "rpc.method_original": "a1b2c3" });
    await reader.forceFlush();
    const measured = measurements.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics[0]!.metrics);
    const incoming = measured.find(({ descriptor }) => descriptor.name === "rpc.server.call.duration")!;
    expect(incoming.dataPoints.map(({ attributes }) => attributes["rpc.method"])).toEqual(["_OTHER", "_OTHER"]);
    await a.close();
  });

  it("keeps other members of params, including the progress token, and does not change the caller's object", async () => {
    const seen: unknown[] = [];
    const [a, b] = tracedPair({ run: (params: unknown) => void seen.push(params) });
    const params = { x: 1, _meta: { tag: 7 } };
    await b.request("run", params, { onProgress: () => {} });
    const traceparent = expect.stringMatching(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    expect(seen).toEqual([{ x: 1, _meta: { tag: 7, progressToken: expect.any(Number), traceparent } }]);
    expect(params).toEqual({ x: 1, _meta: { tag: 7 } });
    await a.close();
  });

  it("does not change positional params, which have no place for the context", async () => {
    const seen: unknown[] = [];
    const [a, b] = tracedPair({ run: (params: unknown) => void seen.push(params) });
    await b.request("run", [1, 2]);
    expect(seen).toEqual([[1, 2]]);
    expect(tree(await ended())).toEqual(["run CLIENT", "run SERVER"]);
    await a.close();
  });

  it("neither sends nor accepts a trace context without `meta`", async () => {
    const seen: unknown[] = [];
    const [a, b] = tracedPair({ run: (params: unknown) => void seen.push(params) }, false);
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    await b.request("run");
    await b.request("run", { _meta: { traceparent } });
    expect(seen).toEqual([undefined, { _meta: { traceparent } }]);
    const served = (await ended()).filter(({ kind }) => kind === SpanKind.SERVER);
    expect(served.map(({ parentSpanContext }) => parentSpanContext)).toEqual([undefined, undefined]);
    await a.close();
  });

  it("uses neither an invalid context nor the active context of the receiver as a parent", async () => {
    const [a, b] = tracedPair({ run: () => null }, true, { around: undefined });
    const outer = trace.getTracer("test").startSpan("outer");
    await context.with(trace.setSpan(context.active(), outer), async () => {
      await b.request("run");
      for (const garbage of [5, null, "traceparent", [], { traceparent: 7, tracestate: {}, baggage: 5 }]) {
        await b.request("run", { _meta: garbage });
      }
      await b.request("run", [{ _meta: {} }]);
    });
    outer.end();
    const served = (await ended()).filter(({ kind }) => kind === SpanKind.SERVER);
    expect(served).toHaveLength(7);
    for (const { parentSpanContext, status } of served) {
      expect(parentSpanContext).toBeUndefined();
      expect(status.code).toBe(SpanStatusCode.UNSET);
    }
    await a.close();
  });

  it("passes the baggage to the handler", async () => {
    const seen: unknown[] = [];
    const [a, b] = tracedPair({
      run: () => void seen.push(propagation.getActiveBaggage()?.getEntry("tenant")?.value),
    });
    const baggage = propagation.createBaggage({ tenant: { value: "ada" } });
    await context.with(propagation.setBaggage(context.active(), baggage), () => b.request("run"));
    expect(seen).toEqual(["ada"]);
    await a.close();
  });

  it("sends at once, and returns whether a notification was accepted", async () => {
    const seen: unknown[] = [];
    const [a, b] = tracedPair({ run: ({ n }: { n: number }) => void seen.push(n) });
    const call = b.request("run", { n: 1 });
    expect(b.notify("run", { n: 2 })).toBe(true);
    await call;
    // A message sent before a close is delivered. A delayed one would be lost.
    expect(b.notify("run", { n: 3 })).toBe(true);
    await b.close();
    expect(seen).toEqual([1, 2, 3]);
    expect(b.notify("run", { n: 4 })).toBe(false);
    await a.closed;
  });
});
