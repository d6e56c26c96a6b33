import { describe, expect, it } from "vitest";
import { Peer } from "../../src/index.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { plain } from "../../src/link/plain.js";
import { StandardSocket } from "../../src/sockets/standard.js";
import { pass, useFakeClock } from "../support/clock.js";
import { ScriptedWebSocket } from "../support/scripted.js";
import { Recorder } from "./behaviour.js";
import { describeWebSocket, overNetwork } from "./websocket.js";

// The WebSocket of `ws` has the standard interface. Other tests run the same code in a browser.
const make = overNetwork(
  (webSocket, maxFrameBytes) => new StandardSocket(webSocket, maxFrameBytes),
  () => ({ perMessageDeflate: false }),
);

// A standard WebSocket can send only 1000 and 3000 to 4999.
describeWebSocket("over a standard WebSocket", make, { tooLarge: 4413 });

/** Opens a WebSocket. Returns it, and the reports of its socket. */
function opened(): { webSocket: ScriptedWebSocket; socket: StandardSocket; recorder: Recorder } {
  const webSocket = new ScriptedWebSocket();
  const socket = new StandardSocket(webSocket, 1000);
  const recorder = new Recorder();
  socket.start(recorder);
  webSocket.fire("open");
  return { webSocket, socket, recorder };
}

describe("a standard WebSocket whose close the other side does not complete", () => {
  useFakeClock();

  it("is reported as closed with 1006 after five seconds, once, whatever the runtime reports later", async () => {
    const { webSocket, socket, recorder } = opened();
    socket.close(4000, "enough");
    await pass(4999);
    socket.close(4001, "again");
    expect(recorder.ends).toEqual([]);
    await pass(1);
    expect(recorder.ends).toMatchObject([{ code: 1006, reason: "" }]);
    webSocket.fire("message", { data: "late" });
    webSocket.fire("close", { code: 4000, reason: "enough" });
    await pass(10_000);
    expect(recorder.frames).toEqual([]);
    expect(recorder.ends).toHaveLength(1);
  });

  it("settles the `close` of its peer", async () => {
    const webSocket = new ScriptedWebSocket();
    const peer = new Peer(plain(new StandardSocket(webSocket, 1000)), {});
    webSocket.fire("open");
    const closing = peer.close();
    await pass(5000);
    await closing;
    expect(await peer.closed).toMatchObject({ code: 1006 });
    expect(countDeadlines().waiting).toBe(0);
  });

  it("is not reported, and has no deadline, if it was discarded", async () => {
    const { webSocket, socket, recorder } = opened();
    socket.close();
    socket.discard(4000, "a newer socket took over");
    expect(webSocket.closes.at(-1)).toEqual([4000, "a newer socket took over"]);
    expect(countDeadlines().waiting).toBe(0);
    webSocket.fire("message", { data: "late" });
    webSocket.fire("close", { code: 1006, reason: "" });
    await pass(10_000);
    expect([recorder.frames, recorder.ends]).toEqual([[], []]);
  });

  it("has no deadline once the runtime has reported the end", async () => {
    const { webSocket, socket, recorder } = opened();
    socket.close();
    webSocket.fire("close", { code: 1000, reason: "" });
    socket.close();
    expect(countDeadlines().waiting).toBe(0);
    expect(recorder.ends).toEqual([{ code: 1000, reason: "" }]);
  });
});

describe("the close code of a standard WebSocket", () => {
  it.each([
    [0, 1006],
    [undefined, 1006],
    [999, 1006],
    [1005, 1005],
    [1015, 1015],
    [4999, 4999],
  ])("is converted: %s from the runtime is reported as %i", (given, reported) => {
    const { webSocket, recorder } = opened();
    webSocket.fire("close", { code: given, reason: "" });
    expect(recorder.ends).toMatchObject([{ code: reported }]);
  });
});
