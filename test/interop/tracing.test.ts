/** Proves that the unchanged code of docs/guides/tracing.md makes the documented spans and measurements on both sides. */
import { join } from "node:path";
import { pathToFileURL } from "node:url";
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
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import type { ReadableSpan } from "@opentelemetry/sdk-trace-base";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type * as Source from "../../src/node.js";
import type { AnyMethods, Around, Peer, Server } from "../../src/node.js";
import { virtualClock, type VirtualClock } from "../../src/testing/index.js";
import { clean, extract, folder, linkPackages } from "../readme/examples.js";
import type { AnyOptions } from "../support/pair.js";
import { gate, raising, rejection, turn, untilAborted } from "../support/turns.js";

const spans = new InMemorySpanExporter();
const measurements = new InMemoryMetricExporter(AggregationTemporality.DELTA);
const reader = new PeriodicExportingMetricReader({ exporter: measurements, exportIntervalMillis: 2 ** 31 - 1 });

/** The package as the guide's code imports it, because an error class of another copy would not match. */
let reciproc: typeof Source;
let traced: (methods: object, options?: { meta?: boolean }) => Around;
let server: Server;
let peer: Peer;

beforeAll(async () => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const propagators = [new W3CTraceContextPropagator(), new W3CBaggagePropagator()];
  propagation.setGlobalPropagator(new CompositePropagator({ propagators }));
  const spanProcessors = [new SimpleSpanProcessor(spans)];
  trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors }));
  metrics.setGlobalMeterProvider(new MeterProvider({ readers: [reader] }));
  await linkPackages(import.meta.dirname);
  await extract("docs/guides/tracing.md");
  const load = (path: string): Promise<any> => import(pathToFileURL(path).href);
  reciproc = await load(join(import.meta.dirname, "../../dist/node.js"));
  ({ traced } = await load(join(folder, "tracing.js")));
  ({ server } = await load(join(folder, "traced-server.js")));
  ({ peer } = await load(join(folder, "traced-client.js")));
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

async function ended(): Promise<ReadableSpan[]> {
  // The span of a notification may end slightly after a later answer.
  await turn();
  return spans.getFinishedSpans();
}

/** Returns the spans as a tree, one per line, with children indented and in the order of their names. */
function tree(all: ReadableSpan[], parent?: string, indent = ""): string[] {
  return all
    .filter(({ parentSpanContext }) => parentSpanContext?.spanId === parent)
    .sort((a, b) => a.name.localeCompare(b.name))
    .flatMap((span) => [
      `${indent}${span.name} ${SpanKind[span.kind]}`,
      ...tree(all, span.spanContext().spanId, `${indent}  `),
    ]);
}

function spanOf(all: ReadableSpan[], name: string, kind: SpanKind): ReadableSpan {
  const found = all.filter((span) => span.name === name && span.kind === kind);
  expect(found).toHaveLength(1);
  return found[0]!;
}

/** Joins two traced peers in memory that speak MCP. Returns the one that makes the calls. */
function tracedPair(methods: AnyMethods, meta = true, ofCaller: AnyOptions = {}): Peer {
  const { mcp, pair } = reciproc;
  const [, caller] = pair<AnyMethods, AnyMethods>(
    { dialect: mcp, methods, around: traced(methods, { meta }) },
    { dialect: mcp, around: traced({}, { meta }), ...ofCaller },
  );
  return caller;
}

async function measured(): Promise<{ name: string; unit: string; attributes: Attributes; value: Histogram }[]> {
  await turn();
  await reader.forceFlush();
  const scopes = measurements.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics);
  return scopes
    .flatMap((scope) => scope.metrics)
    .flatMap(({ descriptor: { name, unit }, dataPoints }) =>
      dataPoints.map(({ attributes, value }) => ({ name, unit, attributes, value: value as Histogram })),
    );
}

const COMMON = { "rpc.system.name": "jsonrpc", "jsonrpc.protocol.version": "2.0" };

/** The attributes of a span or a measurement of a call that ended by an answered error. */
function answeredBy(code: string): Attributes {
  return { "error.type": code, "rpc.response.status_code": code };
}

describe("the tracing guide's two peers", () => {
  it("make one trace of a call, the call back inside it, and the notification, in that of the caller", async () => {
    const outer = trace.getTracer("test").startSpan("outer");
    await context.with(trace.setSpan(context.active(), outer), async () => {
      expect(await peer.request("plan", { city: "Rome" })).toEqual({ city: "Rome", day: "Monday" });
    });
    outer.end();
    const all = await ended();
    expect(tree(all)).toEqual([
      "outer INTERNAL",
      "  plan CLIENT",
      "    plan SERVER",
      "      calendar CLIENT",
      "        calendar SERVER",
      "      planned CLIENT",
      "        planned SERVER",
    ]);
    expect(new Set(all.map((span) => span.spanContext().traceId)).size).toBe(1);
    expect(all.map(({ status }) => status.code)).toEqual(all.map(() => SpanStatusCode.UNSET));
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
    expect(tree(all)).toEqual(["calendar CLIENT", "  calendar SERVER", "news CLIENT", "  jsonrpc SERVER"]);
    expect(spanOf(all, "calendar", SpanKind.CLIENT).attributes).toEqual({ ...COMMON, "rpc.method": "calendar" });
  });

  it("mark an error on both sides, and measure each call in seconds, by method and error", async () => {
    expect(await rejection(peer.request("plan", { city: "Bonn" }))).toMatchObject({ code: 409 });
    const all = await ended();
    for (const kind of [SpanKind.CLIENT, SpanKind.SERVER]) {
      const { status, attributes } = spanOf(all, "plan", kind);
      expect(status).toEqual({ code: SpanStatusCode.ERROR, message: "no day is free" });
      expect(attributes).toMatchObject(answeredBy("409"));
      expect(spanOf(all, "calendar", kind).status.code).toBe(SpanStatusCode.UNSET);
    }
    for (let i = 0; i < 2; i++) await peer.request("plan", { city: "Rome" });
    const found = await measured();
    const row = (method: string, count: number, more: Attributes = {}): object => ({
      unit: "s",
      attributes: { "rpc.system.name": "jsonrpc", "rpc.method": method, ...more },
      value: expect.objectContaining({ count }) as object,
    });
    const rows = [row("plan", 2), row("plan", 1, answeredBy("409")), row("calendar", 3), row("planned", 2)];
    expect(found).toHaveLength(2 * rows.length);
    for (const name of ["rpc.client.call.duration", "rpc.server.call.duration"])
      for (const expected of rows) expect(found).toContainEqual({ name, ...expected });
    for (const { value } of found) expect(value.sum).toBeGreaterThan(0);
  });
});

type Handler = (params: unknown, context: { peer: Peer; signal: AbortSignal }) => unknown;

describe("the tracing guide's around", () => {
  const fail: Handler = raising(new Error("hunter2"));
  const forward: Handler = (_params, context) => context.peer.request("missing");
  /** Lets the test continue, and fails when its signal aborts. */
  const wait: Handler = (_params, context) => (onWait(), untilAborted(context));
  let onWait = (): void => {};

  it.each<[string, Handler, (b: Peer, abort: AbortController, clock: VirtualClock) => void, object, string, string[]]>([
    ["a handler's failure", fail, () => {}, {}, "-32603", ["Internal error", "hunter2"]],
    ["a received error that a handler does not catch", forward, () => {}, {}, "-32603", []],
    ["an abort", wait, (_b, abort) => abort.abort(), {}, "AbortError", []],
    ["a timeout", wait, (_b, _abort, clock) => void clock.pass(1), { timeoutMs: 1 }, "TimeoutError", []],
    ["the end of the connection", wait, (b) => void b.close(), {}, "ConnectionLostError", []],
  ])("records %s, with a code only if it was answered", async (_name, run, act, options, type, messages) => {
    using clock = virtualClock();
    await using b = tracedPair({ run } as never);
    const abort = new AbortController();
    onWait = () => setImmediate(act, b, abort, clock);
    await rejection(b.request("run", {}, { signal: abort.signal, ...options }));
    const all = await ended();
    const [ofCall, ofHandler] = [SpanKind.CLIENT, SpanKind.SERVER].map((kind) => spanOf(all, "run", kind));
    expect([ofCall!.status.code, ofHandler!.status.code]).toEqual([SpanStatusCode.ERROR, SpanStatusCode.ERROR]);
    const answered = type.startsWith("-") ? [answeredBy(type), answeredBy(type)] : [{ "error.type": type }, {}];
    expect([ofCall!.attributes, ofHandler!.attributes]).toMatchObject(answered);
    expect("rpc.response.status_code" in ofCall!.attributes).toBe(type.startsWith("-"));
    // Only the side of the handler knows the message of its failure.
    if (messages.length > 0) expect([ofCall!.status.message, ofHandler!.status.message]).toEqual(messages);
  });

  it("marks a notification whose handler fails, without a code, because none crosses the wire", async () => {
    await using b = tracedPair({ fail } as never);
    b.notify("fail", { far: true });
    const all = await ended();
    expect(tree(all)).toEqual(["fail CLIENT", "  fail SERVER"]);
    expect(all.map(({ status }) => status.code).sort()).toEqual([SpanStatusCode.UNSET, SpanStatusCode.ERROR]);
    const { attributes } = spanOf(all, "fail", SpanKind.SERVER);
    expect(attributes).toMatchObject({ "error.type": "Error" });
    expect(attributes).not.toHaveProperty("rpc.response.status_code");
  });

  it("counts all unknown methods under one name", async () => {
    await using b = tracedPair({});
    await rejection(b.request("toString"));
    b.notify("a1b2c3");
    const all = (await ended()).filter(({ kind }) => kind === SpanKind.SERVER);
    expect(all.map(({ name, attributes }) => [name, attributes])).toMatchObject([
      ["jsonrpc", { "rpc.method": "_OTHER", "rpc.method_original": "toString", "error.type": "-32601" }],
      ["jsonrpc", { "rpc.method": "_OTHER", "rpc.method_original": "a1b2c3" }],
    ]);
    const served = (await measured()).filter(({ name }) => name === "rpc.server.call.duration");
    expect(served.map(({ attributes }) => attributes["rpc.method"])).toEqual(["_OTHER", "_OTHER"]);
  });

  it("adds the context and the baggage to params by name, without changing the caller's object, and not to positional params", async () => {
    const seen: unknown[] = [];
    const tenants: unknown[] = [];
    await using b = tracedPair({
      run(received: unknown) {
        seen.push(received);
        tenants.push(propagation.getActiveBaggage()?.getEntry("tenant")?.value);
      },
    });
    const params = { x: 1, _meta: { tag: 7 } };
    const baggage = propagation.createBaggage({ tenant: { value: "ada" } });
    await context.with(propagation.setBaggage(context.active(), baggage), () =>
      b.request("run", params, { onProgress: () => {} }),
    );
    await b.request("run", [1, 2]);
    expect(tenants).toEqual(["ada", undefined]);
    const traceparent = expect.stringMatching(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    const sent = { x: 1, _meta: { tag: 7, progressToken: expect.any(Number), traceparent, baggage: "tenant=ada" } };
    expect(seen).toEqual([sent, [1, 2]]);
    expect(params).toEqual({ x: 1, _meta: { tag: 7 } });
  });

  it("uses neither an invalid context, nor any without `meta`, nor the active context of the receiver as a parent", async () => {
    const seen: unknown[] = [];
    await using untrusting = tracedPair({ run: (params: unknown) => void seen.push(params) }, false);
    await using b = tracedPair({ run: () => null }, true, { around: undefined });
    const _meta = { traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" };
    const outer = trace.getTracer("test").startSpan("outer");
    await untrusting.request("run");
    await untrusting.request("run", { _meta });
    expect(seen).toEqual([undefined, { _meta }]);
    await context.with(trace.setSpan(context.active(), outer), async () => {
      await b.request("run");
      for (const garbage of [5, null, "traceparent", [], { traceparent: 7, tracestate: {}, baggage: 5 }]) {
        await b.request("run", { _meta: garbage });
      }
      await b.request("run", [{ _meta: {} }]);
    });
    outer.end();
    const served = (await ended()).filter(({ kind }) => kind === SpanKind.SERVER);
    expect(served).toHaveLength(9);
    for (const { parentSpanContext, status } of served) {
      expect(parentSpanContext).toBeUndefined();
      expect(status.code).toBe(SpanStatusCode.UNSET);
    }
  });

  it("sends at once, and returns whether a notification was accepted", async () => {
    const seen: unknown[] = [];
    await using b = tracedPair({ run: ({ n }: { n: number }) => void seen.push(n) });
    // A message sent before a close is delivered. A delayed one would be lost.
    expect(b.notify("run", { n: 1 })).toBe(true);
    await b.close();
    expect(seen).toEqual([1]);
    expect(b.notify("run", { n: 2 })).toBe(false);
  });
});
