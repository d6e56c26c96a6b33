import { describe, expect, it, vi } from "vitest";
import { ConnectError } from "../../src/index.js";
import { pass, rejection, useVirtualClock } from "../support/time.js";
import { connectPage, dismiss, expectEcho, HELLO, live, network, openPage, says, useNetwork } from "./attempts.js";

useVirtualClock();
useNetwork();

const PASSING = [1001, 1002, 1006, 1009, 1011, 1012, 1013, 3000, 4000, 4399, 4500, 4999];
it.each([
  ...[1000, 4400, 4401, 4499].map((code) => [code, false] as const),
  ...PASSING.map((code) => [code, true] as const),
])("after a close with %i, reconnects: %j", async (code, reconnects) => {
  network.script = says(HELLO);
  const { peer, emitted } = await live({ reconnect: true });
  await pass(1000);
  network.script = undefined;
  const info = { code, reason: "no more" };
  if (reconnects) network.scripted.end(info);
  else network.dismiss(info);
  await pass(10);
  expect(network.attempts).toHaveLength(reconnects ? 2 : 1);
  if (reconnects) return expectEcho(peer);
  expect(await peer.closed).toMatchObject(info);
  expect(emitted).toEqual([`close ${code}`]);
});

describe("a client that could not connect", () => {
  it.each([
    [4001, undefined],
    [4399, undefined],
    [4400, 400],
    [4401, 401],
    [4403, 403],
    [4599, 599],
    [4600, undefined],
    [4999, undefined],
  ])("takes a bye with %i as the HTTP status %s, and retries except after 401 and 403", async (code, status) => {
    network.script = dismiss(code, "not you");
    const error = await rejection(connectPage());
    expect(error).toBeInstanceOf(ConnectError);
    expect(error).toMatchObject({ status, message: expect.stringContaining("not you") });
    const { length } = network.attempts;
    const peer = openPage({ reconnect: { initial: true } });
    await pass(1000);
    const isFinal = status === 401 || status === 403;
    expect(peer.state).toBe(isFinal ? "closed" : "connecting");
    expect(network.attempts.length > length + 1).toBe(!isFinal);
  });

  it("does not retry if the runtime has no WebSocket", async () => {
    vi.stubGlobal("WebSocket", undefined);
    const error = await rejection(connectPage({ reconnect: { initial: true } }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toContain('"reciproc/node"');
  });
});
