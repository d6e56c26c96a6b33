/** Runs one conformance case over one wire. README.md in this folder describes the members of a case. */
import { readdirSync, readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { expect } from "vitest";
import { acp, ConnectionLostError, lsp, mcp, ProtocolError, RpcError, type PeerLimits } from "../../src/index.js";
import { expectEmpty } from "../support/pair.js";
import { turn } from "../support/turns.js";
import { methodSets } from "./methods.js";
import type { Wire, WireOptions } from "./wires.js";

/** A frame to send: raw text, `$bytes` in hexadecimal, or a value to encode. `$after` waits for this number of received frames. */
export type Frame =
  | string
  | { $bytes: string }
  | { $after: number }
  | { $join: (string | [text: string, times: number])[] }
  | object
  | number;

type End = { result: unknown } | { error: object } | { malformed: unknown; message: string } | { other: string };

/** The outcome of a call by the peer under test, or of reading a stream. `"pending"` means that it was not settled. */
export type Outcome = "pending" | End | ({ values: unknown[] } & Partial<End>);

export interface Case {
  name: string;
  source: string;
  methods?: string;
  dialect?: keyof typeof DIALECTS;
  compat?: "1.0";
  limits?: Partial<PeerLimits>;
  values?: string[];
  calls?: { method: string; params?: object; stream?: true }[];
  batch?: boolean;
  called?: unknown[];
  send: Frame[];
  expect?: unknown[];
  order?: "any";
  closed?: number;
  outcomes?: Outcome[];
  errors?: number;
  foreign?: unknown[];
  counts?: { malformed?: number; unmatched?: number };
}

const DIALECTS = { lsp, mcp, acp };

const MEMBERS = new Set(
  "name source methods dialect compat limits values calls batch called send expect order closed outcomes errors foreign counts".split(
    " ",
  ),
);

/** Returns every case of every file in this folder, once for each of its `values`. */
export function loadCases(): { file: string; cases: Case[] }[] {
  const folder = new URL(".", import.meta.url);
  const files = readdirSync(folder).filter((name) => name.endsWith(".json"));
  return files.map((file) => {
    const { cases } = JSON.parse(readFileSync(new URL(file, folder), "utf8")) as { cases: Case[] };
    return { file, cases: cases.flatMap(spellOut) };
  });
}

function spellOut(one: Case): Case[] {
  const unknown = Object.keys(one).find((member) => !MEMBERS.has(member));
  if (unknown !== undefined) throw new Error(`"${one.name}" has an unknown member "${unknown}"`);
  if (one.values === undefined) return [one];
  return one.values.map((value) => {
    const put = (text: string): string => text.replaceAll('"$value"', value);
    const fill = <T>(of: T): T => JSON.parse(put(JSON.stringify(of))) as T;
    return {
      ...one,
      // A title is one line of printable text.
      name: one.name.replaceAll("$value", JSON.stringify(value).slice(1, -1).replaceAll('\\"', '"')),
      send: one.send.map((frame) => (isWait(frame) ? frame : put(textOf(frame)))),
      ...(one.expect && { expect: fill(one.expect) }),
      ...(one.outcomes && { outcomes: fill(one.outcomes) }),
      ...(one.foreign && { foreign: fill(one.foreign) }),
    };
  });
}

function textOf(frame: Frame): string {
  if (typeof frame === "string") return frame;
  if (typeof frame === "object" && "$join" in frame) {
    const parts = frame.$join as (string | [string, number])[];
    return parts.map((part) => (typeof part === "string" ? part : part[0].repeat(part[1]))).join("");
  }
  return JSON.stringify(frame);
}

function isWait(frame: Frame): frame is { $after: number } {
  return typeof frame === "object" && "$after" in frame;
}

function rawOf(frame: Frame): string | Uint8Array {
  if (typeof frame === "object" && "$bytes" in frame) return Buffer.from(frame.$bytes, "hex");
  return textOf(frame);
}

const SENTINEL = '{"jsonrpc":"2.0","method":"sentinel","id":"sentinel"}';
const SENTINEL_ANSWER = { jsonrpc: "2.0", id: "sentinel", result: "sentinel" };

/** Returns true if a case has one frame in, and at most one out. */
export function isOneShot({ send, expect: owed = [], calls, closed }: Case): boolean {
  return send.length === 1 && owed.length <= 1 && calls === undefined && closed === undefined;
}

/** Returns true if a transport can carry a case: its frames are texts, and no limit of a socket ends it. */
export function isText({ send, closed }: Case): boolean {
  return closed !== 1009 && send.every((frame) => isWait(frame) || typeof rawOf(frame) === "string");
}

/** Returns true if packs can carry a case: its frames are JSON, and the peer reads no stream, of which it would request more ahead. */
export function canPack(one: Case): boolean {
  const isRead = one.calls?.some(({ stream }) => stream) ?? false;
  return isText(one) && !isRead && one.send.every((frame) => isWait(frame) || isJson(textOf(frame)));
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

export async function runCase(one: Case, open: (options: WireOptions) => Promise<Wire>): Promise<void> {
  const methods = methodSets[one.methods ?? "fixtures"];
  if (methods === undefined) throw new Error(`there is no set of methods called "${one.methods}"`);
  const { limits, dialect, compat } = one;
  const foreign: unknown[] = [];
  const onForeignMessage = one.foreign && ((message: object): void => void foreign.push(message));
  const wire = await open({
    methods: methods(),
    limits,
    compat,
    onForeignMessage,
    dialect: dialect && DIALECTS[dialect],
  });
  try {
    const outcomes = await startCalls(one, wire);
    const early = await sendAll(one, wire);
    if (one.closed === undefined) {
      await receiveExpected(one, wire, early);
    } else {
      expect(await wire.closed).toBe(one.closed);
      expectFrames(wire.drain(), one);
    }
    if (one.outcomes) expect(outcomes).toStrictEqual(one.outcomes);
    if (one.counts && wire.peer) expect(wire.peer.stats()).toMatchObject(one.counts);
    expect(foreign).toStrictEqual(one.foreign ?? []);
    if (one.errors !== undefined) expect(wire.errors).toHaveLength(one.errors);
    await endsEmpty(wire, outcomes);
  } finally {
    await wire.end();
  }
}

/** Sends the frames of a case. Returns the frames received during an `$after`. */
async function sendAll(one: Case, wire: Wire): Promise<string[]> {
  const frames: string[] = [];
  for (const frame of one.send) {
    if (!isWait(frame)) wire.send(rawOf(frame));
    else while (frames.length < frame.$after) frames.push(await wire.receive());
  }
  return frames;
}

async function receiveExpected(one: Case, wire: Wire, early: string[]): Promise<void> {
  const frames = [...early];
  for (const _ of (one.expect ?? []).slice(early.length)) frames.push(await wire.receive());
  expectFrames(frames, one);
  // An answer sent by mistake would precede that of the sentinel.
  wire.send(SENTINEL);
  expect(JSON.parse(await wire.receive())).toStrictEqual(SENTINEL_ANSWER);
  expect(wire.drain()).toEqual([]);
}

function expectFrames(frames: string[], { expect: owed = [], order }: Case): void {
  const got = frames.map((frame) => JSON.parse(frame) as unknown);
  if (order !== "any") return expect(got).toStrictEqual(owed);
  for (const frame of owed) {
    const place = got.findIndex((one) => isDeepStrictEqual(one, frame));
    if (place < 0) expect.fail(`still missing ${JSON.stringify(frame)}`);
    got.splice(place, 1);
  }
  expect(got).toEqual([]);
}

/** Makes the calls of the case, and waits until the raw client has received them. */
async function startCalls(one: Case, wire: Wire): Promise<Outcome[]> {
  const { calls = [], batch, called } = one;
  const outcomes: Outcome[] = calls.map(() => "pending");
  const group = batch ? wire.peer!.batch() : undefined;
  for (const [i, { method, params, stream }] of calls.entries()) {
    const values: unknown[] = [];
    const read = async (): Promise<Outcome> => {
      for await (const value of wire.peer!.stream(method, params)) values.push(value);
      return { values };
    };
    const call = stream
      ? read()
      : (group ?? wire.peer!).request(method, params).then((result: unknown) => ({ result }));
    call.then(
      (outcome: Outcome) => (outcomes[i] = outcome),
      (error: unknown) => (outcomes[i] = { ...(stream && { values }), ...describe(error, method) }),
    );
  }
  group?.send();
  const frames: unknown[] = [];
  for (let i = 0; i < (batch ? 1 : calls.length); i++) frames.push(JSON.parse(await wire.receive()));
  if (called) expect(frames).toStrictEqual(called);
  return outcomes;
}

function describe(error: unknown, called: string): End {
  if (error instanceof RpcError) {
    const { code, message, data, method } = error;
    expect(method).toBe(called);
    return { error: { code, message, ...(data !== undefined && { data }) } };
  }
  if (error instanceof ProtocolError) return { malformed: error.raw, message: error.message };
  if (error instanceof ConnectionLostError) return { other: `lost, ${error.outcome}` };
  return { other: String(error) };
}

async function endsEmpty({ peer }: Wire, outcomes: Outcome[]): Promise<void> {
  if (peer === undefined) return;
  const pending = outcomes.flatMap((outcome, i) => (outcome === "pending" ? i : []));
  await peer.close();
  await turn();
  for (const i of pending) expect(outcomes[i]).toEqual({ other: "lost, unknown" });
  expectEmpty(peer);
}
