import { once } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { z } from "zod";
import { acp, lsp, mcp, type ServerContext } from "../../src/node.js";
import { plainPeer } from "../support/network.js";
import { failure, request, result } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";
import { target } from "./support/server.js";

/** The tables of a peer that keeps nothing. */
const EMPTY = { pending: 0, running: 0, streams: 0 };

const message = (members: string): string => `{"jsonrpc":"2.0",${members}}`;

async function* count(): AsyncGenerator<string> {
  for (;;) yield "x".repeat(100);
}

function hang(_params: unknown, { signal }: ServerContext): Promise<void> {
  return new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
}

describe("a flood that leaves its connection open", () => {
  const cancel = (members: string): string => message(`"method":"$/cancelRequest"${members}`);
  const COUNT = 1_000;
  /** What arrives, what is counted, and the responses, that of a last call included. */
  const FLOODS: [what: string, texts: string[], counted: "unmatched" | "notificationsReceived", answers: string[]][] = [
    [
      "cancels of unknown calls",
      [
        cancel(',"params":{"id":$i}'),
        cancel(',"params":{"id":"$i__proto__"}'),
        cancel(',"params":{"id":{"$i":1}}'),
        cancel(""),
        message('"method":"$/enumerator/abort","params":{"token":$i}'),
      ],
      "notificationsReceived",
      ["result"],
    ],
    [
      "responses to unknown calls",
      [
        message('"id":$i,"result":1'),
        message('"id":"$i","error":{"code":1,"message":""}'),
        message('"id":$i,"error":null'),
        `[${message('"id":$i,"result":1')},{"id":"__proto__","result":1}]`,
      ],
      "unmatched",
      ["result"],
    ],
    [
      "streams that are opened and returned",
      [
        message('"id":$i,"method":"count"'),
        message('"method":"count"'),
        message('"id":"x$i","method":"$/enumerator/next","params":{"token":$i}'),
      ],
      "notificationsReceived",
      ["-32001", "-32009", "result"],
    ],
  ];

  it.each(FLOODS)("stores nothing of it, and others are served: %s", async (_what, texts, counted, answers) => {
    await using on = await target({ methods: { hang, count }, limits: { maxInFlight: 100, maxStreams: 16 } });
    on.server.removeAllListeners("error").on("error", () => {});
    using client = await plainPeer(on.url);
    using other = await plainPeer(on.url);
    for (let i = 0; i < COUNT; i++) client.webSocket.send(texts[i % texts.length]!.replaceAll("$i", String(i)));
    other.webSocket.send(JSON.stringify(request(1, "here")));
    expect(await other.next()).toEqual(result(1, true));
    const [peer] = on.peers;
    await vi.waitFor(() => expect(peer!.stats()[counted]).toBeGreaterThanOrEqual(COUNT / 4));
    client.webSocket.send(JSON.stringify(request("last", "here")));
    await vi.waitFor(() => expect(client.received.some((text) => text.includes('"last"'))).toBe(true));
    const codes = client.received.map((text) => {
      const { error } = JSON.parse(text) as { error?: { code: number } };
      return error === undefined ? "result" : String(error.code);
    });
    expect(new Set(codes)).toEqual(new Set(answers));
    expect(peer).toMatchObject({ state: "open" });
    client.webSocket.terminate();
    await peer!.closed;
    await vi.waitFor(() => expect(peer!.stats()).toMatchObject({ ...EMPTY, malformed: 0 }));
  });
});

describe("an id", () => {
  it("is echoed once and not kept if it has 1,000,000 characters", async () => {
    await using on = await target();
    using client = await plainPeer(on.url);
    const id = "x".repeat(1_000_000);
    client.webSocket.send(JSON.stringify(request(id, "here")));
    expect((await client.next()).id === id).toBe(true);
    expect(on.peers[0]!.stats()).toMatchObject(EMPTY);
  });

  it.each([
    ["of a million digits", "9".repeat(1_000_000)],
    ["that nests 200,000 deep", "[".repeat(200_000) + "]".repeat(200_000)],
  ])("is refused with -32600 and id null, and nothing runs, if it is one %s", async (_what, id) => {
    await using on = await target();
    using client = await plainPeer(on.url);
    client.webSocket.send(`{"jsonrpc":"2.0","id":${id},"method":"here"}`);
    expect(await client.next()).toEqual(failure(null, -32600, "Invalid Request"));
    expect(on.peers[0]!.stats()).toMatchObject({ malformed: 1, requestsReceived: 0 });
  });
});

describe("a name of the prototype", () => {
  it.each([lsp, mcp, acp])("pollutes nothing as a key of params, and returns unchanged: $name", async (dialect) => {
    await using on = await target({
      dialect,
      methods: {
        echo(params: any, { progress }: { progress: (value: unknown) => void }) {
          progress(params);
          return params as unknown;
        },
      },
    });
    using client = await plainPeer(on.url);
    const evil = '{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}';
    const tokens = ',"workDoneToken":"__proto__","_meta":{"__proto__":{"polluted":1},"progressToken":"__proto__"}}';
    client.webSocket.send(`{"jsonrpc":"2.0","id":"__proto__","method":"echo","params":${evil}${tokens}}`);
    const answer = `{"jsonrpc":"2.0","id":"__proto__","result":${evil}${tokens}}`;
    await vi.waitFor(() => expect(client.received).toContain(answer));
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
    expect(on.errors).toEqual([]);
  });
});

describe("a value of 200,000 nested arrays", () => {
  const DEEP = "[".repeat(200_000) + "]".repeat(200_000);
  const methods = { echo: (params: unknown) => params };

  it("closes with 1002 in a ping of reciproc.v1, and does not end the process", async () => {
    await using on = await target({ methods });
    const webSocket = await packed(on.url);
    const closed = once(webSocket, "close");
    webSocket.send(`{"ping":${DEEP}}`);
    const [code, reason] = (await closed) as [number, Buffer];
    expect([code, reason.toString()]).toEqual([1002, "a ping that cannot be answered"]);
    await turn();
  });

  it("is ignored or reported as a token, an id to cancel or an error, and the connection stays", async () => {
    await using on = await target();
    const arrived = on.next();
    using client = await plainPeer(on.url);
    const call = (await arrived).request("m");
    for (const params of [`{"token":${DEEP}}`, `{"id":${DEEP}}`, `{"token":1,"value":${DEEP}}`]) {
      for (const method of ["$/cancelRequest", "$/progress", "$/enumerator/abort"])
        client.webSocket.send(`{"jsonrpc":"2.0","method":"${method}","params":${params}}`);
    }
    client.webSocket.send(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no","data":${DEEP}}}`);
    expect(await rejection(call)).toMatchObject({ code: 1, message: "no" });
    client.webSocket.send(`{"jsonrpc":"2.0","id":1,"method":"$/enumerator/next","params":{"token":${DEEP}}}`);
    await vi.waitFor(() => expect(client.received.at(-1)).toContain("-32001"));
    expect(on.errors).toEqual([]);
  });
});

it("answers a call with 500,000 errors in its params by one -32602 that names the first hundred", async () => {
  await using on = await target({ methods: { m: () => 1 }, schemas: { m: z.array(z.string()) } });
  using client = await plainPeer(on.url);
  client.webSocket.send(`{"jsonrpc":"2.0","id":1,"method":"m","params":[${"1,".repeat(499_999)}1]}`);
  const { error } = (await client.next()) as { error: { code: number; data: { issues: { path: number[] }[] } } };
  expect(error.code).toBe(-32602);
  expect(error.data.issues.map(({ path }) => path[0])).toEqual(Array.from({ length: 100 }, (_, i) => i));
});

/** Opens a WebSocket for packs. */
async function packed(url: string): Promise<WebSocket> {
  const webSocket = new WebSocket(url, ["reciproc.v1"]);
  await once(webSocket, "message");
  webSocket.send('{"hello":{}}');
  return webSocket;
}
