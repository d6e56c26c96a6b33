/** The standard WebSocket: the suite over that of `ws`, and ends that only a scripted WebSocket reports. */
import { describe, expect, it, vi } from "vitest";
import { toStandard } from "../../src/message/close-codes.js";
import { open, type AnyPeer } from "../../src/index.js";
import { pass, turn, useVirtualClock } from "../support/time.js";
import { ScriptedWebSocket } from "../support/scripted.js";
import { overStandard } from "./joins.js";
import { describeSocket } from "./suite.js";

// A standard WebSocket can send only 1000 and 3000 to 4999.
describeSocket("over a standard WebSocket", overStandard, { tooLarge: 4413 });

const SENT = { 1001: 1000, 1002: 4400, 1008: 4400, 1009: 4413, 1013: 4429, 4001: 4001 };

it.each(Object.entries(SENT))("a standard WebSocket sends for %i the code %i", (code, sent) => {
  expect(toStandard(Number(code))).toBe(sent);
});

async function opened(): Promise<{ webSocket: ScriptedWebSocket; peer: AnyPeer; ends: unknown[] }> {
  let webSocket!: ScriptedWebSocket;
  vi.stubGlobal("WebSocket", function () {
    return (webSocket = new ScriptedWebSocket());
  });
  const options = { link: "plain", heartbeat: false, limits: { maxMessageBytes: 100 } };
  const peer = open("ws://127.0.0.1:1/", options as never) as AnyPeer;
  const ends: unknown[] = [];
  peer.on("close", ({ code, reason }) => ends.push({ code, reason }));
  await pass(0);
  webSocket.fire("open");
  await peer.opened;
  await turn();
  return { webSocket, peer, ends };
}

describe("a scripted WebSocket", () => {
  useVirtualClock();

  it("is reported as closed with 1006 after five seconds, once, whatever the runtime reports later", async () => {
    const { webSocket, peer, ends } = await opened();
    const notified: unknown[] = [];
    peer.on("notification", (method) => notified.push(method));
    const closing = peer.close(4000, "enough");
    await pass(4999);
    void peer.close(4001, "again");
    expect(ends).toEqual([]);
    await pass(1);
    await closing;
    expect(ends).toEqual([{ code: 1006, reason: "" }]);
    webSocket.fire("message", { data: '{"jsonrpc":"2.0","method":"late"}' });
    webSocket.fire("close", { code: 4000, reason: "enough" });
    await pass(10_000);
    expect([notified, ends.length]).toEqual([[], 1]);
  });

  it.each([0, undefined, 999, 1005, 1015, 4999])(
    "reports %s from the runtime, or 1006 if it is no code",
    async (code) => {
      const { webSocket, ends } = await opened();
      webSocket.fire("close", { code, reason: "" });
      await turn();
      expect(ends).toEqual([{ code: code === undefined || code < 1000 ? 1006 : code, reason: "" }]);
    },
  );

  it.each([
    ["1009 if the close ends with 1005", { code: 1005, reason: "" }, 1009],
    ["1009 if the close ends with 1006", { code: 1006, reason: "" }, 1009],
    [
      "1009 if the close ends with the code that a standard WebSocket had to send in its place",
      { code: 4413, reason: "echoed" },
      1009,
    ],
    ["the code with which the other side closed meanwhile", { code: 4001, reason: "done" }, 4001],
  ])("reports for a frame that is too long %s", async (_what, end, code) => {
    const { webSocket, ends } = await opened();
    webSocket.fire("message", { data: "x".repeat(101) });
    expect(webSocket.closes).toEqual([[4413, "message is too large"]]);
    webSocket.fire("close", end);
    await turn();
    expect(ends).toMatchObject([{ code }]);
  });
});
