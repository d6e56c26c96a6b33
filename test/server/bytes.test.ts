import { expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { z } from "zod";
import { bytes, bytesOf, contract, lsp, serve, type AnyPeer, type Bytes, type Server } from "../../src/node.js";
import { connect as connectPage, progress as progressFeature } from "../../src/index.js";
import { connect } from "../support/connect.js";
import { post } from "../support/post.js";
import { rejection } from "../support/turns.js";

const DATA = Uint8Array.from({ length: 100_000 }, (_, i) => i * 7);
const MIB = 2 ** 20;

/** A server whose `echo` returns bytes, and whose `download` yields the same buffer three times. */
async function serveBytes(options: object = {}): Promise<Server> {
  return serve({
    port: 0,
    ...options,
    methods: {
      echo: ([value]: [unknown]) => ({ kind: typeof value, value: bytes(bytesOf(value)) }),
      async *download() {
        const buffer = new Uint8Array(40_000);
        for (let n = 1; n <= 3; n++) yield buffer.fill(n);
      },
    },
  });
}

/** Replaces a view by its base64, because vitest compares long views in a second each. */
function textOf(value: unknown): unknown {
  return value instanceof Uint8Array ? `view ${Buffer.from(value).toString("base64")}` : value;
}

it("carries bytes as base64 by HTTP POST, in a result, a batch and a stream", async () => {
  await using server = await serveBytes();
  const answerTo = async (body: unknown): Promise<unknown> => (await post(server.url, body)).json();
  const value = Buffer.from(DATA).toString("base64");
  const call = { jsonrpc: "2.0", id: 1, method: "echo", params: [value] };
  const answer = { jsonrpc: "2.0", id: 1, result: { kind: "string", value } };
  expect(await answerTo(call)).toEqual(answer);
  expect(await answerTo([call])).toEqual([answer]);
  const values = [1, 2, 3].map((n) => Buffer.alloc(40_000, n).toString("base64"));
  expect(await answerTo({ ...call, method: "download" })).toEqual({ ...answer, result: { values } });
});

it("stops the source of a stream of bytes whose reader stops in the middle of a long chunk", async () => {
  let isClosed = false;
  await using server = await serve({
    port: 0,
    methods: {
      async *long() {
        try {
          yield new Uint8Array(10 * MIB);
        } finally {
          isClosed = true;
        }
      },
    },
  });
  await using peer = await connect(server.url);
  for await (const chunk of peer.stream("long")) {
    expect(bytesOf(chunk).length).toBe(64 * 1024);
    break;
  }
  await vi.waitFor(() => expect(isClosed).toBe(true));
  await vi.waitFor(() => expect(server.stats().streams).toBe(0));
});

it("notifies a topic with bytes: binary frames, and base64 on plain links", async () => {
  await using server = await serveBytes();
  server.on("peer", (peer) => server.topic("all").add(peer));
  const got: unknown[] = [];
  const methods = { news: ([value]: [unknown]) => void got.push(value) };
  await using packed = await connect(server.url, { methods });
  await using plain = await connect(server.url, { methods, link: "plain" });
  // The server has the hello of a client that has called.
  await Promise.all([packed.request("echo", [""]), plain.request("echo", [""])]);
  server.topic("all").notify("news", [bytes(DATA)]);
  server.peers.notify("news", [bytes(DATA)], { whenSlow: "close" });
  await vi.waitFor(() => expect(got).toHaveLength(4));
  const base64 = Buffer.from(DATA).toString("base64");
  expect(got.filter((value) => typeof value === "string")).toEqual([base64, base64]);
  expect(got.filter((value) => typeof value !== "string").map(textOf)).toEqual([textOf(DATA), textOf(DATA)]);
});

it("measures bytes as the client gets them, as base64 without the feature, and refuses or reports all that are too long", async () => {
  vi.stubGlobal("WebSocket", WebSocket);
  const LENGTH = 900_000;
  const missed: string[] = [];
  const errors: unknown[] = [];
  await using server = await serve({
    port: 0,
    methods: {
      report: (_params: unknown, { progress }: { progress(value: unknown): void }) => {
        progress(bytes(new Uint8Array(LENGTH)));
        return "reported";
      },
    },
  });
  server.on("missed", (_peer, method) => missed.push(method));
  server.on("error", (error) => errors.push(error));
  await using client = await connectPage(server.url, {
    use: [progressFeature],
    openTimeoutMs: Infinity,
    methods: { put: ([view]: [unknown]) => bytesOf(view).length },
  });
  // The server knows the limit of the client with the client's second frame.
  for (let i = 0; i < 2; i++) await client.request("nothing").catch(() => {});
  const [peer] = server.peers as Iterable<AnyPeer>;
  const params = [bytes(new Uint8Array(LENGTH))];
  const tooLarge = { name: "TooLargeError", maxMessageBytes: MIB };
  await expect(peer!.request("put", params)).rejects.toMatchObject(tooLarge);
  await expect(peer!.request("put", params, { retry: "not-sent" })).rejects.toMatchObject(tooLarge);
  expect(peer!.notify("put", params)).toBe(false);
  expect(await client.request("report", {}, { onProgress: () => {} })).toBe("reported");
  expect(errors).toMatchObject([tooLarge, tooLarge]);
  server.peers.notify("put", params, { whenSlow: "close" });
  server.peers.notify("put", params);
  expect([missed, peer!.stats().dropped]).toEqual([["put", "put"], 2]);
  // The same bytes fit into a binary frame.
  await using other = await connect(server.url, { methods: { put: ([view]: [unknown]) => bytesOf(view).length } });
  for (let i = 0; i < 2; i++) await other.request("nothing").catch(() => {});
  const outcomes = await server.peers.request("put", params);
  expect(outcomes).toMatchObject([{ reason: tooLarge }, { value: LENGTH }]);
});

it.each(["packed", "plain"] as const)("fits a contract that checks both sides, over a %s link", async (link) => {
  const ofBytes = z.custom<Bytes>((value) => bytesOf(value).length > 0);
  const api = contract({
    save: { params: z.object({ photo: ofBytes }), result: ofBytes, progress: ofBytes },
    parts: { stream: ofBytes },
    empty: { result: ofBytes },
  });
  await using server = await serve({
    port: 0,
    contract: api,
    check: "both",
    dialect: lsp,
    methods: {
      save({ photo }, { progress }) {
        progress(bytes(DATA.subarray(0, 10)));
        return bytes(bytesOf(photo));
      },
      async *parts() {
        yield DATA;
      },
      empty: () => bytes(new Uint8Array()),
    },
  });
  const errors: unknown[] = [];
  server.on("error", (error) => errors.push((error as Error).message));
  await using peer = await connect(server.url, { link, remote: api, check: "both", dialect: lsp });
  const reports: Bytes[] = [];
  const saved = await peer.request("save", { photo: bytes(DATA) }, { onProgress: (value) => void reports.push(value) });
  expect(textOf(bytesOf(saved))).toBe(textOf(DATA));
  for await (const part of peer.stream("parts")) reports.push(part);
  expect(reports.map((value) => bytesOf(value).length)).toEqual([10, 65_536, DATA.length - 65_536]);
  expect(await rejection(peer.request("empty"))).toMatchObject({ code: -32603 });
  expect(errors).toEqual([expect.stringContaining('"empty"')]);
  expect(await rejection(peer.request("save", { photo: bytes(new Uint8Array()) }))).toMatchObject({ code: -32602 });
});
