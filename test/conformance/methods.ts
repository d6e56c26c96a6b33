/* oxlint-disable unicorn/no-thenable -- what a handler may return by mistake is what these test */
/** The sets of methods that the peer under test serves, named by the cases. */
import { setImmediate as turn } from "node:timers/promises";
import { RpcError, type Context } from "../../src/index.js";
import { raising, untilAborted } from "../support/turns.js";
import type { WireOptions } from "./wires.js";

type Methods = WireOptions["methods"];

/** A case names one of these sets. Each case has a new copy. */
export const methodSets: Record<string, () => Methods> = { specification, mcp, fixtures, features };

/** Part of every set. Returns some ticks after the call, so that any frame sent by mistake precedes its answer. */
const sentinel = {
  async sentinel(): Promise<string> {
    await turn();
    await turn();
    return "sentinel";
  },
};

function specification(): Methods {
  return {
    ...sentinel,
    subtract: (params: [number, number] | { minuend: number; subtrahend: number }) =>
      Array.isArray(params) ? params[0] - params[1] : params.minuend - params.subtrahend,
    sum: (params: number[]) => params.reduce((total, value) => total + value, 0),
    get_data: () => ["hello", 5],
    update: () => "nobody may see this",
    notify_hello: () => "nobody may see this",
    notify_sum: (params: number[]) => params.length,
    notify: () => "notified",
    echo: ([text]: [unknown]) => text,
  };
}

function mcp(): Methods {
  let listed: () => void;
  const resourcesListed = new Promise<void>((resolve) => (listed = resolve));
  return {
    ...sentinel,
    initialize: ({ protocolVersion }: { protocolVersion: string }) => ({
      protocolVersion,
      capabilities: { tools: {}, resources: {} },
      serverInfo: { name: "filesystem", version: "1.0.0" },
    }),
    async "tools/list"() {
      await resourcesListed;
      await turn();
      return { tools: [{ name: "read" }] };
    },
    "resources/list"() {
      listed();
      return { resources: [] };
    },
    "tools/call": raising(new RpcError(-32602, "Invalid params ")),
    "notifications/initialized": () => {},
    "notifications/progress": () => {},
    "notifications/cancelled": () => {},
  };
}

function fixtures(): Methods {
  const waiting: (() => void)[] = [];
  return {
    ...sentinel,
    ...variants("return", returns, (value) => value()),
    ...variants("throw", throws, (value) => {
      throw value();
    }),
    echo: (params: unknown) => params,
    later: async (params: unknown) => (await turn(), params),
    /** Returns when `release` is called, in the order of the calls. */
    wait: (params: unknown) => new Promise((resolve) => waiting.push(() => resolve(params))),
    release: () => waiting.splice(0).forEach((answer) => answer()),
    text: ([length]: [number]) => "x".repeat(length),
    "rpc.registered": () => "on purpose",
    [Symbol.toStringTag]: () => "a symbol is no name",
  };
}

function features(): Methods {
  const waiting: (() => void)[] = [];
  const released = (): Promise<void> => new Promise((resolve) => waiting.push(resolve));
  return {
    ...sentinel,
    echo: (params: unknown) => params,
    "until cancelled": (_params: unknown, context: Context) => untilAborted(context),
    "fails when cancelled": (_params: unknown, context: Context) => untilAborted(context).catch(fail),
    /** Ignores a cancel, and returns when `release` is called. */
    stays: async (params: unknown) => (await released(), params),
    release: () => waiting.splice(0).forEach((resolve) => resolve()),
    initialize: async () => (await released(), "initialized"),
    async reports({ values }: { values: unknown[] }, { progress }: Context) {
      for (const value of values) progress(value);
      await turn();
      progress("last");
      return "done";
    },
    async *numbers([count]: [number]) {
      for (let i = 1; i <= count; i++) yield i;
    },
    *generated([count]: [number]) {
      for (let i = 1; i <= count; i++) yield i;
    },
    /** Yields each value but the first when `release` is called. */
    async *gated([...values]: unknown[]) {
      for (const [i, value] of values.entries()) {
        if (i > 0) await released();
        yield value;
      }
    },
    async *breaks([count]: [number]) {
      for (let i = 1; i <= count; i++) yield i;
      fail();
    },
    async *refuses() {
      yield 1;
      throw new RpcError(7, "no", { why: 1 });
    },
    nests: ([count]: [number], { peer }: Context) => ({
      some: peer.offer(Array.from({ length: count }, (_, i) => i)),
      none: [peer.offer([])],
    }),
    large: ([length]: [number], { peer }: Context) => [peer.offer([1]), "x".repeat(length)],
  };
}

/** Each value twice: at once, and later by a promise. */
function variants(verb: string, values: object, act: (value: () => unknown) => unknown): Methods {
  const both = Object.entries(values).map(([name, value]) => ({
    [`${verb} ${name}`]: () => act(value),
    [`${verb} ${name} later`]: async () => (await turn(), act(value)),
  }));
  return Object.assign({}, ...both) as Methods;
}

function cyclic(): object {
  const ring = { self: {} };
  return Object.assign(ring, { self: ring });
}

const fail = raising(new Error("secret"));

const failing = (name: string): object => Object.defineProperty({}, name, { get: fail, enumerable: true });

const hostile = (): object => new Proxy({}, { get: fail, getPrototypeOf: fail, ownKeys: fail, has: fail });

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

const returns: Record<string, () => unknown> = {
  undefined: () => undefined,
  function: () => () => "secret",
  symbol: () => Symbol("secret"),
  NaN: () => NaN,
  infinity: () => -Infinity,
  null: () => null,
  false: () => false,
  zero: () => 0,
  empty: () => "",
  "toJSON undefined": () => ({ toJSON: () => undefined }),
  date: () => new Date(0),
  holes: () => ({ a: undefined, b: () => 1, c: [undefined, NaN, Symbol("s")] }),
  then: () => ({ then: 1 }),
  thenable: () => ({ then: (resolve: (value: string) => void) => resolve("kept") }),
  cyclic,
  bigint: () => 1n,
  "throwing toJSON": () => ({ toJSON: fail }),
  "throwing getter": () => failing("secret"),
  "throwing then": () => failing("then"),
  "thenable that throws": () => ({ then: fail }),
  "broken promise": () => Object.assign(Promise.resolve("never read"), { then: fail }),
  hostile,
  revoked,
  deep: () => JSON.parse("[".repeat(20_000) + "]".repeat(20_000)) as unknown,
};

const throws: Record<string, () => unknown> = {
  null: () => null,
  undefined: () => undefined,
  string: () => "secret",
  number: () => -32601,
  error: () => new Error("secret"),
  lookalike: () => ({ code: -32601, message: "secret", data: 1 }),
  "error with a code": () => Object.assign(new Error("secret"), { code: -32601 }),
  "throwing getter": () => failing("message"),
  hostile,
  revoked,
  rpc: () => new RpcError(404, "no such room"),
  "rpc with data": () => new RpcError(-32050, "no", { room: 7, none: undefined }),
  "rpc with null": () => new RpcError(0, "", null),
  "rpc with a function": () => new RpcError(1, "no", () => "secret"),
  "rpc with a cycle": () => new RpcError(1, "no", cyclic()),
  "rpc with a bigint": () => new RpcError(1, "no", 1n),
  "rpc with throwing toJSON": () => new RpcError(1, "no", { toJSON: fail }),
  "rpc without a code": () => Object.create(RpcError.prototype) as unknown,
  "rpc with an odd code": () => Object.assign(new RpcError(1, "no"), { code: "secret" }),
  "rpc with half a code": () => Object.assign(new RpcError(1, "no"), { code: 0.5 }),
  "rpc with an odd message": () => Object.assign(new RpcError(1, "no"), { message: { secret: 1 } }),
};
