import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, vi } from "vitest";
import { connect } from "../../src/node.js";
import { maskedFrames } from "../../src/sockets/frames.js";
import { portOf, sendUpgrade, upgrade } from "../support/network.js";
import { postText, write } from "../support/post.js";
import { request, result } from "../support/raw.js";
import { attacker } from "./support/attacker.js";
import { expectServed, floodBeside } from "./support/bystander.js";
import { expectKept, MIB } from "./support/memory.js";
import { target, upgradeText } from "./support/server.js";

const SLACK = 4 * MIB;
const CALL = JSON.stringify(request(1, "here"));

describe("a handshake that never ends", () => {
  const limits = { handshakeTimeoutMs: 1_000 };

  it.each<[string, (url: string) => string, answer: string]>([
    ["handshakes that send nothing", () => "", "408"],
    ["handshakes that stop within a line", () => "GET / HT", "408"],
    ["handshakes that stop before the empty line", (url) => upgradeText(url).slice(0, -2), "408"],
    [
      "POSTs whose bodies never end",
      (url) => postText(url, "[", { "Content-Length": "1000" }),
      "408, the request took longer than `limits.handshakeTimeoutMs`, 1000",
    ],
  ])("is answered with 408 and cut, 200 at once, and others are served: %s", async (_what, text, answer) => {
    await using attack = await attacker();
    await using on = await target({ limits });
    const ends = attack.knock({ port: portOf(on.url), count: 200, text: text(on.url) });
    await using other = await connect(on.url);
    expect(await other.request("here")).toBe(true);
    expect(await ends).toEqual({ [answer]: 200 });
    await vi.waitFor(() => expect(on.sockets.size).toBe(1));
    expect(on.peers).toHaveLength(1);
  });

  it("is answered with 431 if its head grows without end", async () => {
    await using on = await target();
    expect(await upgrade(on.url, { Cookie: "x".repeat(20_000) })).toMatchObject({ status: 431 });
  });

  it("is cut also if it arrives byte by byte: a byte does not restart the timeout", async () => {
    await using attack = await attacker();
    await using on = await target({ limits });
    const text = upgradeText(on.url, `X: ${"x".repeat(3000)}`);
    const ends = await attack.knock({ port: portOf(on.url), count: 50, text, dribbles: true });
    // A client that still writes when it is cut might see the reset before the response.
    const { 408: answered = 0, ECONNRESET: reset = 0, ...others } = ends;
    expect(others).toEqual({});
    expect(answered + reset).toBe(50);
    await vi.waitFor(() => expect(on.sockets.size).toBe(0));
  });
});

describe("a client that is refused after its hello, and never closes", () => {
  const OFFERS = { auth: "reciproc.v1, reciproc.auth", resume: "reciproc.v1, reciproc.resume" };

  it.each<[string, keyof typeof OFFERS, object, string, code: number]>([
    ["`authenticate` refuses it", "auth", { authenticate: () => null }, '{"hello":{"auth":1}}', 4401],
    ["it sends no hello", "auth", { authenticate: () => null }, "[]", 1002],
    ["no slot is free", "resume", { limits: { maxConnections: 1 } }, '{"hello":{"session":true}}', 4503],
  ])("keeps its socket for a second, and no longer: %s", async (_why, offer, options, hello, code) => {
    await using on = await target(options);
    // Its session has a socket, so the next client may offer to resume that session beyond the limit.
    await using inside = code === 4503 ? await connect(on.url) : undefined;
    if (inside !== undefined) expect(await inside.request("here")).toBe(true);
    const socket = await sendUpgrade(on.url, { "Sec-WebSocket-Protocol": OFFERS[offer] });
    socket.on("error", () => {});
    const received = async (text: string): Promise<void> => {
      for (let all = ""; !all.includes(text);) all += ((await once(socket, "data")) as [Buffer])[0].toString("latin1");
    };
    await received('{"hello":');
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      socket.write(maskedFrames([hello]));
      // The close frame of the server, whose content begins with the code.
      await received(String.fromCharCode(code >> 8, code & 0xff));
      const closed = once(socket, "close");
      await vi.advanceTimersByTimeAsync(1_000);
      await closed;
    } finally {
      vi.useRealTimers();
    }
  });
});

describe("a connection over `maxConnections`", () => {
  it("gets `bye` and 4503 if it offered reciproc.v1, and is cut within a second if it does not answer", async () => {
    await using attack = await attacker();
    await using on = await target({ limits: { maxConnections: 1 } });
    await using inside = await connect(on.url);
    const text = upgradeText(on.url, "Sec-WebSocket-Protocol: reciproc.v1");
    const bye = '{"bye":{"code":4503,"reason":"`limits.maxConnections`, 1, is reached"}';
    const began = performance.now();
    expect(await attack.knock({ port: portOf(on.url), count: 200, text })).toEqual({ [`101, ${bye}`]: 200 });
    // Much less than the 5 s in which a peer must answer a close.
    expect(performance.now() - began).toBeLessThan(4000);
    await vi.waitFor(() => expect(on.sockets.size).toBe(1));
    expect(await inside.request("here")).toBe(true);
    expect(on.peers).toHaveLength(1);
  });

  it("delays no other client if it opens and closes, and nothing of it is kept", async () => {
    await using attack = await attacker();
    await using on = await target();
    await expectKept(SLACK, async () => {
      const closing = '{"jsonrpc":"2.0","method":"leave"}';
      on.server.on("peer", (peer) => peer.on("notification", () => void peer.close()));
      const damage = await floodBeside(attack, {
        url: on.url,
        texts: [closing],
        burst: 1,
        everyMs: 20,
        connections: 2,
      });
      expect(damage.opened).toBeGreaterThan(10);
      await Promise.all(on.peers.splice(0).map((peer) => peer.closed));
    });
    expect(on.server.peers.size).toBe(0);
  });
});

describe("a flood of POSTs", () => {
  it("is answered in full, delays no other client, and leaves nothing", async () => {
    await using on = await target();
    await using attack = await attacker();
    const body = JSON.stringify(Array.from({ length: 20 }, (_, id) => request(id, "here")));
    const knock = { port: portOf(on.url), count: 3, text: postText(on.url, body, { Connection: "close" }) };
    await expectKept(SLACK, async () => {
      const answers = new Set<string>();
      const flood = { isOn: false, isOver: false };
      const over = (async () => {
        while (!flood.isOver) {
          if (!flood.isOn) await sleep(5);
          else for (const answer of Object.keys(await attack.knock(knock))) answers.add(answer.slice(0, 3));
        }
      })();
      const pause = async (): Promise<void> => void (flood.isOn = false);
      const goOn = async (): Promise<void> => void (flood.isOn = true);
      await expectServed(on.url, { pause, goOn });
      flood.isOver = true;
      await over;
      expect([...answers]).toEqual(["200"]);
    });
    expect(on.server.peers.size).toBe(0);
  });

  it("keeps no more than the message if the bodies arrive in a million chunks of one byte", async () => {
    await using on = await target();
    const socket = await write(on.url, postText(on.url, "", { "Transfer-Encoding": "chunked" }));
    await expectKept(16 * MIB, async () => {
      const chunks = "1\r\n \r\n".repeat(10_000);
      for (let i = 0; i < 104; i++) if (!socket.write(chunks)) await once(socket, "drain");
      await vi.waitFor(() => expect(socket.writableLength).toBe(0));
    });
    socket.write(`${CALL.length.toString(16)}\r\n${CALL}\r\n0\r\n\r\n`);
    expect(String((await once(socket, "data"))[0])).toContain(JSON.stringify(result(1, true)));
    socket.destroy();
  });

  it("is cut if its connection reads no response and `maxUnsentBytes` are queued", async () => {
    const long = "x".repeat(MIB / 2);
    let ran = 0;
    await using on = await target({ methods: { long: () => (ran++, long) } });
    const socket = await write(on.url, "");
    const one = postText(on.url, JSON.stringify(request(1, "long")));
    socket.pause();
    const gone = new Promise((resolve) => socket.once("close", resolve));
    await expectKept(16 * MIB, async () => {
      socket.write(one.repeat(90));
      await vi.waitFor(() => expect(ran).toBeGreaterThan(8));
      await vi.waitFor(() => expect(on.sockets.size).toBe(0), 5000);
    });
    socket.resume();
    await gone;
    await using other = await connect(on.url);
    expect(await other.request("here")).toBe(true);
  });
});
