/** Contracts of schemas over a network, and by HTTP POST. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { connect, contract, mcp, serve } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { post, read } from "../support/post.js";
import { request } from "../support/raw.js";
import { gate, rejection } from "../support/turns.js";

const api = contract({
  add: { params: z.tuple([z.number(), z.number()]), result: z.number() },
  day: { params: z.object({ at: z.string().transform((at) => new Date(at)) }), result: z.iso.datetime() },
  copy: {
    params: z.object({ files: z.number() }),
    result: z.string(),
    progress: z.object({ done: z.number(), of: z.number() }),
  },
  tail: { params: z.object({ lines: z.number() }), stream: z.object({ line: z.number() }) },
  moved: { params: z.object({ x: z.number() }) },
  wrong: { result: z.number() },
});
const theirs = contract({
  confirm: { params: z.object({ question: z.string() }), result: z.boolean() },
  toast: { params: z.object({ text: z.string() }) },
});

describe.each(["packed", "plain"] as const)("a contract of both sides, over a %s link", (link) => {
  it("passes calls, progress, streams and notifications that fit, and refuses others on either side", async () => {
    const moved = gate<number>();
    const toasted = gate<string>();
    await using kit = testServer({
      contract: api,
      remote: theirs,
      check: "both",
      dialect: mcp,
      methods: {
        add: ([a, b]) => a + b,
        day: ({ at }) => at.toISOString(),
        async copy({ files }, { peer, progress }) {
          for (let done = 1; done <= files; done++) progress({ done, of: files });
          const sure = await peer.request("confirm", { question: "sure?" });
          peer.notify("toast", { text: sure ? "copied" : "kept" });
          return "done";
        },
        async *tail({ lines }) {
          for (let line = 0; line < lines; line++) yield { line };
        },
        moved: ({ x }) => moved.resolve(x),
        wrong: () => "text" as never,
      },
    });
    const errors: string[] = [];
    kit.server.on("error", (error) => errors.push((error as Error).message));
    const client = await kit.connect(kit.server.url, {
      link,
      dialect: mcp,
      contract: theirs,
      remote: api,
      check: "both",
      methods: { confirm: ({ question }) => question === "sure?", toast: ({ text }) => toasted.resolve(text) },
    });

    expect(await client.request("add", [1, 2])).toBe(3);
    expect(await client.remote.day({ at: "2020-01-01" })).toBe("2020-01-01T00:00:00.000Z");
    const reports: number[] = [];
    const onProgress = ({ done }: { done: number }): unknown => reports.push(done);
    expect(await client.request("copy", { files: 3 }, { onProgress })).toBe("done");
    expect(reports).toEqual([1, 2, 3]);
    expect(await toasted.promise).toBe("copied");
    const lines: number[] = [];
    for await (const { line } of client.stream("tail", { lines: 2000 })) lines.push(line);
    expect(lines).toEqual(Array.from({ length: 2000 }, (_, i) => i));
    client.notify("moved", { x: 5 });
    expect(await moved.promise).toBe(5);

    expect(await rejection(client.request("add", [1, "2"] as never))).toMatchObject({
      code: -32602,
      message: expect.stringMatching(/^Invalid params: .* at \[1\]$/),
    });
    expect(await rejection(client.request("day", { at: "never" }))).toMatchObject({ code: -32603 });
    expect(await rejection(client.request("wrong"))).toMatchObject({ code: -32603 });
    expect(errors).toEqual([
      "Invalid time value",
      expect.stringMatching(/^The result of "wrong" does not fit its schema: /),
    ]);
  });
});

it("checks params and results of calls by HTTP POST", async () => {
  const methods = { add: ([a, b]: [number, number]) => (a === 0 ? (String(b) as never) : a + b) };
  const sums = contract({ add: { params: z.tuple([z.number(), z.number()]), result: z.number() } });
  await using server = await serve({ port: 0, contract: sums, check: "both", methods });
  const errors: string[] = [];
  server.on("error", (error) => errors.push((error as Error).message));
  const call = async (params: unknown): Promise<unknown> =>
    (await read(await post(server.url, request(1, "add", params))))[1];
  expect(await call([1, 2])).toMatchObject({ result: 3 });
  expect(await call([1, "2"])).toMatchObject({ error: { code: -32602 } });
  expect(await call([0, 2])).toMatchObject({ error: { code: -32603, message: "Internal error" } });
  expect(errors).toEqual([expect.stringMatching(/^The result of "add" does not fit its schema: .*number/)]);
});

it("rejects with what arrived if the server is not what the contract says", async () => {
  await using kit = testServer({ methods: { add: () => "3" } });
  const client = await kit.connect(kit.server.url, { remote: api, check: "both" });
  expect(await rejection(client.request("add", [1, 2]))).toMatchObject({ code: "PROTOCOL", raw: "3" });
});

it("refuses a server and a client whose handlers do not fit their contract", async () => {
  const methods = { confirm: () => true };
  const refusal = "Expected `methods.toast` to be a function, as `contract` has that name";
  await expect(serve({ port: 0, contract: theirs, methods: methods as never })).rejects.toThrow(refusal);
  // The options are checked before anything is sent.
  const url = "ws://127.0.0.1:1";
  await expect(connect(url, { contract: theirs, methods: methods as never })).rejects.toThrow(refusal);
});
