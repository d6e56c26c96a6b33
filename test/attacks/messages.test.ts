import { once } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { WebSocket } from "ws";
import { acp, lsp, mcp, RpcError } from "../../src/node.js";
import { inspect } from "../../src/peer/peer.js";
import { plainPeer } from "../support/network.js";
import { rejection, turn } from "../support/turns.js";
import { failure, notification, request, result } from "../support/raw.js";
import { attacker } from "./support/attacker.js";
import { floodBeside } from "./support/bystander.js";
import { expectKept, MIB } from "./support/memory.js";
import { target, type Target } from "./support/server.js";

/** Much less than any of these attacks sends, and much more than the garbage that a collection leaves. */
const SLACK = 2 * MIB;

const EMPTY = { pending: 0, openBatches: 0, running: 0, streams: 0, progress: 0 };

describe("a flood of malformed messages", () => {
  const garbage = [
    "{}",
    "[",
    "{]",
    "null",
    '{"jsonrpc":"2.0","method":5,"id":1}',
    "[1,{},[]]",
    '{"jsonrpc":"2.0","id":$i}',
    '"' + "x".repeat(1000),
  ];

  it("is answered a hundred times a minute, and then closes with 1008: nothing after that is read", async () => {
    await using on = await target();
    const arrived = on.next();
    using client = await plainPeer(on.url);
    for (let i = 0; i < 5000; i++) client.webSocket.send("{");
    expect(await client.closed).toEqual({ code: 1008, reason: "more than 100 malformed messages in a minute" });
    expect(client.received.map((text) => JSON.parse(text) as unknown)).toEqual(
      Array(100).fill(failure(null, -32700, "Parse error")),
    );
    expect((await arrived).stats()).toMatchObject({ malformed: 101, requestsReceived: 0, notificationsReceived: 0 });
  });

  it("closes with 1008 each time its sender reconnects, and others are served", async () => {
    await using attack = await attacker();
    await using on = await target();
    const damage = await expectKept(SLACK, async () => {
      const done = await floodBeside(attack, { url: on.url, texts: garbage, burst: 10, connections: 4 });
      await Promise.all(on.peers.splice(0).map((peer) => peer.closed));
      return done;
    });
    expect(Object.keys(damage.closes)).toEqual(["1008 more than 100 malformed messages in a minute"]);
    expect(new Set(Object.keys(damage.answers))).toEqual(new Set(["-32600", "-32700"]));
    expect(damage.opened).toBeGreaterThan(4);
    expect(on.server.peers.size).toBe(0);
  });
});

describe("a flood of cancels of unknown calls", () => {
  it("stores nothing and gets no response, and others are served", async () => {
    await using attack = await attacker();
    await using on = await target();
    const texts = [
      '{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":$i}}',
      '{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":"$i__proto__"}}',
      '{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":{"$i":1}}}',
      '{"jsonrpc":"2.0","method":"$/cancelRequest"}',
      '{"jsonrpc":"2.0","method":"$/enumerator/abort","params":{"token":$i}}',
    ];
    await expectKept(SLACK, async () => {
      const damage = await floodBeside(attack, { url: on.url, texts, burst: 20 });
      await blast(on, texts);
      const [peer] = on.peers;
      await peer!.closed;
      expect(damage).toMatchObject({ opened: 1, answers: {}, closes: {} });
      expect(damage.sent).toBeGreaterThan(300);
      expect(inspect(peer!)).toMatchObject(EMPTY);
      expect(peer!.stats()).toMatchObject({ malformed: 0, unmatched: 0 });
      expect(peer!.stats().notificationsReceived).toBeGreaterThan(damage.sent / 2);
    });
  });
});

describe("a flood of responses to unknown calls", () => {
  it("is counted as unmatched, not stored and not answered, and others are served", async () => {
    await using attack = await attacker();
    await using on = await target();
    const texts = [
      '{"jsonrpc":"2.0","id":$i,"result":1}',
      '{"jsonrpc":"2.0","id":"$i","error":{"code":1,"message":""}}',
      '{"jsonrpc":"2.0","id":$i,"error":null}',
      '[{"jsonrpc":"2.0","id":$i,"result":1},{"id":"__proto__","result":1}]',
    ];
    await expectKept(SLACK, async () => {
      const damage = await floodBeside(attack, { url: on.url, texts, burst: 20 });
      await blast(on, texts);
      const [peer] = on.peers;
      await peer!.closed;
      expect(damage).toMatchObject({ opened: 1, answers: {}, closes: {} });
      expect(inspect(peer!)).toMatchObject(EMPTY);
      expect(peer!.stats().unmatched).toBeGreaterThan(300);
      expect(peer!.stats()).toMatchObject({ malformed: 0, requestsReceived: 0 });
    });
  });

  it("settles no pending call, whatever ids it guesses as text", async () => {
    await using on = await target();
    const arrived = on.next();
    using client = await plainPeer(on.url);
    const peer = await arrived;
    const call = peer.request("m");
    await client.next();
    for (let id = 0; id < 1000; id++) client.webSocket.send(JSON.stringify(result(String(id), "forged")));
    client.webSocket.send(JSON.stringify(result(1, "true")));
    expect(await call).toBe("true");
    expect(peer.stats()).toMatchObject({ unmatched: 1000, pending: 0 });
  });
});

describe("an id", () => {
  it("is echoed once and not kept if it has 1,000,000 characters", async () => {
    await using on = await target();
    using client = await plainPeer(on.url);
    const ids = ["x".repeat(1_000_000), "张".repeat(300_000), "\u0000".repeat(150_000)];
    await expectKept(SLACK, async () => {
      for (const id of [...ids, ...ids, ...ids, ...ids]) {
        client.webSocket.send(JSON.stringify(request(id, "here")));
        expect((await client.next()).id === id).toBe(true);
      }
      client.received.length = 0;
    });
    expect(inspect(on.peers[0]!)).toMatchObject(EMPTY);
  });

  it.each([
    ["of a million digits", "9".repeat(1_000_000)],
    ["beyond what a double holds exactly", "9007199254740993"],
    ["that is infinite", "1e400"],
    ["that is an object", '{"toString":"x"}'],
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
  const NAMES = Object.getOwnPropertyNames(Object.prototype);

  it("is no method: calls get -32601, and notifications are reported like any other", async () => {
    await using on = await target({ methods: { m: () => 1 } });
    const arrived = on.next();
    using client = await plainPeer(on.url);
    const peer = await arrived;
    const told: string[] = [];
    peer.on("notification", (method) => told.push(method));
    expect(NAMES).toContain("__proto__");
    for (const name of NAMES) {
      client.webSocket.send(JSON.stringify(notification(name, [])));
      client.webSocket.send(JSON.stringify(request(name, name, [])));
      expect(await client.next()).toEqual(failure(name, -32601, "Method not found"));
    }
    expect(told).toEqual(NAMES);
    expect(on.errors).toEqual([]);
  });

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
  const CALL = `{"jsonrpc":"2.0","id":1,"method":"echo","params":${DEEP}}`;
  const INTERNAL = failure(1, -32603, "Internal error");
  const methods = {
    echo: (params: unknown) => params,
    take: () => "taken",
    async later(params: unknown) {
      await turn();
      return params;
    },
    refuse(params: unknown): never {
      throw new RpcError(1, "no", params);
    },
  };

  it.each([
    ["echoed", "echo", INTERNAL],
    ["echoed later", "later", INTERNAL],
    ["in the data of an error", "refuse", INTERNAL],
    ["that a handler only takes", "take", result(1, "taken")],
  ])("gets a response, and the connection stays: %s: %s", async (_what, method, answer) => {
    await using on = await target({ methods });
    using client = await plainPeer(on.url);
    client.webSocket.send(CALL.replace("echo", method));
    expect(await client.next()).toEqual(answer);
    client.webSocket.send(JSON.stringify(request(2, "here")));
    expect(await client.next()).toEqual(result(2, true));
    expect(on.errors.every((error) => error instanceof RangeError)).toBe(true);
    expect(on.errors).toHaveLength(answer === INTERNAL ? 1 : 0);
  });

  it("gets -32603 for its member only, in a batch, in a pack and by POST", async () => {
    await using on = await target({ methods });
    const batch = `[${CALL},${JSON.stringify(request(2, "here"))}]`;
    using client = await plainPeer(on.url);
    client.webSocket.send(batch);
    expect(await client.next()).toEqual([INTERNAL, result(2, true)]);
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(on.url.replace("ws:", "http:"), { method: "POST", headers, body: batch });
    expect(await response.json()).toEqual([INTERNAL, result(2, true)]);
    const webSocket = await packed(on.url);
    webSocket.send(batch);
    const answers: unknown[] = [];
    webSocket.on("message", (data: Buffer) => answers.push(...(JSON.parse(data.toString()) as unknown[])));
    // In two packs, if the first takes so long that the second is dispatched in the next tick.
    await vi.waitFor(() => expect(answers).toEqual([INTERNAL, result(2, true)]));
    webSocket.terminate();
  });

  it("closes with 1002 in a ping of reciproc.v1, and does not end the process", async () => {
    await using on = await target({ methods });
    const webSocket = await packed(on.url);
    const closed = once(webSocket, "close");
    webSocket.send(`{"ping":${DEEP}}`);
    const [code, reason] = (await closed) as [number, Buffer];
    expect([code, reason.toString()]).toEqual([1002, "a ping that cannot be answered"]);
    await turn();
  });

  it("is the result if it answers a call of this side", async () => {
    await using on = await target();
    const arrived = on.next();
    using client = await plainPeer(on.url);
    const call = (await arrived).request("m");
    client.webSocket.send(`{"jsonrpc":"2.0","id":1,"result":${DEEP}}`);
    expect(Array.isArray(await call)).toBe(true);
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

describe("a progress token", () => {
  const methods = {
    async report(_params: unknown, { progress }: { progress: (value: unknown) => void }) {
      for (let i = 0; i < 100; i++) {
        progress(i);
        await turn();
      }
      return "done";
    },
  };

  it("stores nothing if it is unknown: its reports are notifications like any other, and others are served", async () => {
    await using attack = await attacker();
    await using on = await target();
    const told: string[] = [];
    on.server.on("peer", (peer) => peer.on("notification", (method) => void (told.length < 5 && told.push(method))));
    const texts = [
      '{"jsonrpc":"2.0","method":"$/progress","params":{"token":$i,"value":1}}',
      '{"jsonrpc":"2.0","method":"$/progress","params":["__proto__$i",{}]}',
    ];
    await expectKept(SLACK, async () => {
      const damage = await floodBeside(attack, { url: on.url, texts, burst: 20 });
      await blast(on, texts);
      await on.peers[0]!.closed;
      expect(damage).toMatchObject({ opened: 1, answers: {}, closes: {} });
      expect(inspect(on.peers[0]!)).toMatchObject(EMPTY);
    });
    expect(told).toEqual(Array(5).fill("$/progress"));
  });

  it("requests no reports if it has more than 1,024 characters: reports repeat it, and would multiply the length of the call", async () => {
    await using on = await target({ methods });
    using client = await plainPeer(on.url);
    client.webSocket.send(reporting("x".repeat(1_000_000)));
    expect(await client.next()).toEqual(result(1, "done"));
    expect(client.received).toHaveLength(1);
    client.webSocket.send(reporting("x".repeat(1024)));
    await vi.waitFor(() => expect(client.received).toHaveLength(102));
  });
});

function reporting(workDoneToken: string): string {
  return JSON.stringify(request(1, "report", { workDoneToken }));
}

/** Sends 30,000 messages as fast as they are read: a hundred bytes kept for each would be 3 MiB. */
async function blast({ url }: Target, texts: string[]): Promise<void> {
  using client = await plainPeer(url);
  for (let i = 0; i < 30_000; i++) client.webSocket.send(texts[i % texts.length]!.replaceAll("$i", String(i)));
  client.webSocket.send(JSON.stringify(request("last", "here")));
  expect(await client.next()).toEqual(result("last", true));
}

/** Opens a WebSocket for packs. */
async function packed(url: string): Promise<WebSocket> {
  const webSocket = new WebSocket(url, ["reciproc.v1"]);
  await once(webSocket, "message");
  webSocket.send('{"hello":{}}');
  return webSocket;
}
