/** Mutated cancels, reports and streams against a peer that is busy with all of them. */
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect } from "vitest";
import { acp, lsp, mcp, type AnyPeer, type Context, type Dialect } from "../../src/index.js";
import { plainWire, transportWire, type WireOptions } from "../conformance/wires.js";
import { expectEmpty } from "../support/pair.js";
import { gate, useVirtualClock, type Gate } from "../support/time.js";
import { Mutator } from "./mutate.js";
import { it, seed, untilQuiet } from "./run.js";
import { asList, expectReplies, owedTo, waysToWait } from "./reference.js";

const MAX_BATCH_ENTRIES = 16;
const limits = {
  maxBatchEntries: MAX_BATCH_ENTRIES,
  maxMalformedPerMinute: Infinity,
  maxInFlight: Infinity,
  maxStreams: 30,
};

let openSources = 0;

async function* endless(until: Promise<void>): AsyncGenerator {
  openSources++;
  try {
    for (let i = 0; i < 2000; i++) yield i;
    // Otherwise `return()` would wait forever behind a pending `next`.
    await until;
  } finally {
    openSources--;
  }
}

/** The served methods. All pending handlers end with `open`, or when they are aborted. */
function methodsOf(open: Gate<void>): WireOptions["methods"] {
  const done = (signal: AbortSignal): Promise<void> =>
    new Promise((resolve) => {
      signal.addEventListener("abort", () => resolve());
      void open.promise.then(resolve);
    });
  return {
    echo: (params: unknown) => params,
    stay: async (_params: unknown, { signal }: Context) => (await done(signal), "stayed"),
    async wait(_params: unknown, { signal, progress }: Context) {
      progress("begun");
      await done(signal);
      signal.throwIfAborted();
      progress("done");
    },
    tail: () => endless(open.promise),
    slow: async (_params: unknown, { signal }: Context) => (await done(signal), endless(open.promise)),
    nest: (_params: unknown, { peer }: Context) => ({ a: peer.offer(endless(open.promise)), b: [peer.offer([1, 2])] }),
    async read(params: any, { peer, signal }: Context) {
      const reading = (async (): Promise<string> => {
        for await (const _ of peer.iterate(params?.of)) await turn();
        return "read";
      })().catch(() => "failed");
      return Promise.race([reading, done(signal)]);
    },
  };
}

const CANCELS = ["$/cancelRequest", "$/cancel_request", "notifications/cancelled"];
const OTHERS = ["$/progress", "notifications/progress", "$/enumerator/next", "$/enumerator/abort"];

const METHODS = ["echo", "stay", "wait", "wait", "tail", "tail", "slow", "nest", "read"];

/** Returns a message for one of the extensions, valid or almost valid. */
function control(mutator: Mutator): unknown {
  const number = 1 + mutator.below(8);
  const token = mutator.below(4) === 0 ? mutator.odd() : number;
  const id = mutator.below(4) === 0 ? mutator.pick([null, "1", "", 0, -1, 1.5]) : number;
  const values = mutator.below(4) === 0 ? mutator.odd() : Array.from({ length: mutator.below(4) }, (_, i) => i);
  const tokens = { workDoneToken: token, _meta: { progressToken: token }, of: { token, values } };
  switch (mutator.below(8)) {
    case 0:
      return { jsonrpc: "2.0", id, result: mutator.pick([{ token, values }, { token }, { values }, { values, finished: number > 4 }, {}]) };
    case 1:
      return { jsonrpc: "2.0", id, error: { code: mutator.pick([-32001, -32009, 5]), message: "m" } };
    case 2:
    case 3:
      return { jsonrpc: "2.0", id, method: mutator.pick(METHODS), params: mutator.pick([tokens, tokens, { of: { token } }, [token], undefined]) };
    case 4:
      return { jsonrpc: "2.0", id, method: "$/enumerator/next", params: mutator.pick([{ token }, { token }, [token]]) };
    case 5:
      return { jsonrpc: "2.0", method: mutator.pick(CANCELS), params: { id, requestId: id, reason: mutator.odd() } };
    case 6:
      return { jsonrpc: "2.0", method: mutator.pick(OTHERS), params: { token, value: 1, progressToken: token, progress: 1 } };
    default:
      return { jsonrpc: "2.0", id, method: mutator.pick([...CANCELS, ...OTHERS]), params: mutator.pick([[id], [token, 1], mutator.odd(), undefined]) };
  }
} // prettier-ignore

type Json = Record<string, unknown>;

/** Returns a text as a dialect reads it whose null params mean none. Such a message may be a lone id without its params. */
function withoutNullParams(text: string): string {
  const messages = asList(text);
  if (messages.length === 0) return text;
  for (const message of messages) if (message?.["params"] === null) delete message["params"];
  // JSON has no text for the number of `1e400`, and would write null, which is an id of another kind.
  return JSON.stringify(text.trimStart().startsWith("[") ? messages : messages[0], (_name, member: unknown) =>
    typeof member === "number" && Math.abs(member) === Infinity ? {} : member,
  );
}

/** Returns the ids, as JSON, under which a text must be answered, in each way. */
function idsOwedTo(text: string): string[][] {
  return waysToWait(text, (id) => id >= 1).map((waiting) => {
    const reply = owedTo(text, () => ({ result: null }), MAX_BATCH_ENTRIES, waiting);
    return [reply ?? []].flat().map((one) => JSON.stringify((one as Json)["id"]));
  });
}

function cancelledBy(text: string): string[] {
  return asList(text).flatMap((member) => {
    const { method, params } = (member ?? {}) as { method?: string; params?: Json };
    return method === mcp.cancel.method ? (JSON.stringify(params?.["requestId"]) ?? []) : [];
  });
}

/** Asserts that every answer was expected once, and that every expected answer was sent, except for calls cancelled under mcp. */
function expectOwed(frames: string[], got: string[], dialect: Dialect | undefined): void {
  const texts = dialect?.readsNullParams === true ? frames.map(withoutNullParams) : frames;
  const answers = got.flatMap(asList).filter((message) => message!["method"] === undefined) as Json[];
  for (const { result, error } of answers) expect(result === undefined).toBe(error !== undefined);
  const ids = answers.map(({ id }) => JSON.stringify(id));
  expectReplies(texts, ids, idsOwedTo, new Set(dialect === mcp ? texts.flatMap(cancelledBy) : []));
}

/** Makes the peer's own calls: it reads a stream, offers two and awaits reports. Ids from 1. Resolves when all are settled. */
function busy(peer: AnyPeer, open: Gate<void>): Promise<unknown> {
  const read = async (): Promise<void> => {
    for await (const value of peer.stream("theirs")) if (value === 3) break;
  };
  const options = { onProgress: () => {}, resetTimeoutOnProgress: true };
  return Promise.allSettled([
    read(),
    peer.request("take", { of: peer.offer(endless(open.promise)) }, options),
    peer.request("take", { of: [peer.offer([1, 2, 3])], workDoneToken: "t", _meta: { progressToken: 7 } }, options),
    read(),
    peer.request("plain", undefined, options),
  ]);
}

const CANCELLED = "-32800";

/** The texts that the answers of a complete run contain. */
const SIGNS = [
  CANCELLED,
  '"result":{"token":',
  '"finished":false',
  '"finished":true',
  "-32001",
  "-32600",
  '/progress"',
];

export function controlsSuite(share: number): void {
  describe.each<[string, Dialect?]>([["no dialect"], ["lsp", lsp], ["mcp", mcp], ["acp", acp]])(
    "a busy peer of %s",
    (_name, dialect) => {
      useVirtualClock();
      it("sends every expected answer and keeps no state, by a transport and over a WebSocket", async () => {
        const mutator = new Mutator(seed, control);
        openSources = 0;
        const reached = new Set<string>();
        const wires = [
          ...Array.from({ length: 60 * share }, () => ({ open: transportWire, chunk: 250 })),
          ...Array.from({ length: 6 * share }, () => ({ open: plainWire, chunk: 400 })),
        ];
        for (const { open, chunk } of wires) {
          const end = gate();
          const wire = await open({ methods: methodsOf(end), limits, dialect });
          const settled = busy(wire.peer, end);
          await turn();
          const frames: string[] = [];
          for (let n = 0; n < chunk; n++) {
            const frame = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.from(mutator.frame()));
            frames.push(frame);
            wire.send(frame);
            if (mutator.below(10) === 0) await turn();
          }
          const last = '{"jsonrpc":"2.0","method":"echo","id":"the last","params":[]}';
          wire.send(last);
          const got: string[] = [];
          while (!got.some((text) => text.includes('"the last"'))) got.push(await wire.receive());
          end.resolve();
          await untilQuiet(wire.peer);
          got.push(...wire.drain());
          expectOwed([...frames, last], got, dialect);
          for (const sign of SIGNS) if (got.some((text) => text.includes(sign))) reached.add(sign);
          await wire.end();
          await settled;
          await untilQuiet(wire.peer);
          expectEmpty(wire.peer);
          expect(openSources).toBe(0);
          // Errors of the other side reject calls. Only errors without a call are emitted.
          for (const error of wire.errors) expect(error).toMatchObject({ code: expect.any(Number) });
        }
        // A run without cancels and reads would prove nothing.
        const answered = dialect?.cancel.isAnswered ?? true;
        expect(SIGNS.filter((sign) => !reached.has(sign))).toEqual(answered ? [] : [CANCELLED]);
      });
    },
  );
}
