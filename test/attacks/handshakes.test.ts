import { once } from "node:events";
import type { Socket } from "node:net";
import { describe, expect, it, vi } from "vitest";
import { upgradeText } from "../../bench/attacks/floods.js";
import { connect } from "../../src/node.js";
import { virtualClock } from "../../src/testing/index.js";
import { maskedFrames } from "../../src/socket/frames.js";
import { sendUpgrade, upgrade } from "../support/network.js";
import { postText, write } from "../support/post.js";
import { request } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";
import { target } from "./support/server.js";

const hostOf = (url: string): string => new URL(url).host;

async function allOf(socket: Socket): Promise<string> {
  let text = "";
  socket.on("data", (data: Buffer) => (text += data.toString("latin1")));
  await new Promise((resolve) => socket.once("close", resolve));
  return text;
}

function crowd(url: string): Promise<Socket>[] {
  const upgrading = upgradeText(hostOf(url)).slice(0, -2);
  const texts = ["", "GET / HT", upgrading, postText(url, "[", { "Content-Length": "1000" })];
  return texts.flatMap((text) => Array.from({ length: 20 }, () => write(url, text)));
}

describe("a handshake that never ends", () => {
  it("is answered with 408 and cut, with many others, also if it arrives byte by byte", async () => {
    // Node's HTTP server has a clock of its own. Nothing in this test has to happen before it cuts a handshake.
    await using on = await target({ limits: { handshakeTimeoutMs: 1_000 } });
    const slow = await write(on.url, `${upgradeText(hostOf(on.url)).slice(0, -2)}X: `);
    const ends = crowd(on.url).map(async (socket) => allOf(await socket));
    // A byte does not restart the timeout.
    for (; !slow.destroyed; await turn()) if (slow.writable) slow.write("x");
    for (const end of await Promise.all(ends)) expect(end).toMatch(/^HTTP\/1\.1 408 /);
    await vi.waitFor(() => expect(on.sockets.size).toBe(0));
  });

  it("with many others, does not keep the server from serving a client meanwhile", async () => {
    await using on = await target({ limits: { handshakeTimeoutMs: Infinity } });
    await Promise.all(crowd(on.url));
    await vi.waitFor(() => expect(on.sockets.size).toBe(80));
    await using other = await connect(on.url);
    expect(await other.request("here")).toBe(true);
    expect(on.peers).toHaveLength(1);
  });

  it("is answered with the name of the limit, if it is a POST that has sent a part of its body", async () => {
    using clock = virtualClock();
    const asked = gate();
    await using on = await target({ authenticate: () => (asked.resolve(), {}) });
    const answer = allOf(await write(on.url, postText(on.url, "[", { "Content-Length": "1000" })));
    await asked.promise;
    // 10 s, and some more in which the server drops the rest of the body.
    await clock.pass(20_000);
    expect(await answer).toMatch(/^HTTP\/1\.1 408 [^]*limits\.handshakeTimeoutMs/);
  });
});

it("a handshake whose head grows without end is answered with 431", async () => {
  await using on = await target();
  expect(await upgrade(on.url, { Cookie: "x".repeat(20_000) })).toMatchObject({ status: 431 });
});

const OFFERS = { auth: "reciproc.v1, reciproc.auth", resume: "reciproc.v1, reciproc.resume" };

it.each<[string, keyof typeof OFFERS, object, string, code: number]>([
  ["`authenticate` refuses it", "auth", { authenticate: () => null }, '{"hello":{"auth":1}}', 4401],
  ["it sends no hello", "auth", { authenticate: () => null }, "[]", 1002],
  ["no slot is free", "resume", { limits: { maxConnections: 1 } }, '{"hello":{"session":true}}', 4503],
])("a refused client that never closes keeps its socket for 1 s, and no longer: %s", async (_why, ...given) => {
  const [offer, options, hello, code] = given;
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
  using clock = virtualClock();
  socket.write(maskedFrames([hello]));
  // The close frame of the server, whose content begins with the code.
  await received(String.fromCharCode(code >> 8, code & 0xff));
  const closed = once(socket, "close");
  await clock.pass(999);
  expect(socket.destroyed).toBe(false);
  await clock.pass(1);
  await closed;
});

it("a flood of POSTs is cut if its connection reads no response and `maxUnsentBytes` are queued", async () => {
  const long = "x".repeat(2 ** 19);
  let ran = 0;
  await using on = await target({ methods: { long: () => (ran++, long) } });
  const socket = await write(on.url, "");
  socket.pause();
  const gone = new Promise((resolve) => socket.once("close", resolve));
  await vi.waitFor(() => expect(on.sockets.size).toBe(1));
  socket.write(postText(on.url, JSON.stringify(request(1, "long"))).repeat(90));
  await vi.waitFor(() => expect(on.sockets.size).toBe(0));
  expect(ran).toBeGreaterThan(8);
  expect(ran).toBeLessThan(90);
  socket.resume();
  await gone;
  await using other = await connect(on.url);
  expect(await other.request("here")).toBe(true);
});
