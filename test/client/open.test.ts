/** Opening the runtime's own WebSocket, by each way in which runtimes report that it failed. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { connect, ConnectError } from "../../src/index.js";
import { openStandard } from "../../src/client/open.js";
import { ScriptedWebSocket } from "../support/scripted.js";
import { rejection, turn } from "../support/turns.js";

/** Every WebSocket that was made, with the subprotocols it offers. */
let made: { webSocket: ScriptedWebSocket; offer: string[] }[] = [];

beforeEach(() => {
  made = [];
  vi.stubGlobal(
    "WebSocket",
    class extends ScriptedWebSocket {
      constructor(_url: string, offer: string[]) {
        super();
        made.push({ webSocket: this, offer });
      }
    },
  );
});

afterEach(() => void vi.unstubAllGlobals());

const URL_OF_SERVER = new URL("ws://127.0.0.1:1/rpc?token=s3cret");

describe("a WebSocket that does not open", () => {
  it("rejects at its `error`, which in Node 20 and 22 is all that follows, with the runtime's error as cause", async () => {
    const { opened, offerMayBeWhy } = openStandard(URL_OF_SERVER, ["reciproc.v1"], 1000);
    const cause = new TypeError("Received network error or non-101 status code.");
    made[0]!.webSocket.fire("error", { error: cause, message: cause.message });
    const error = await rejection(opened);
    expect(error).toBeInstanceOf(ConnectError);
    expect(error).toMatchObject({ url: "ws://127.0.0.1:1/rpc", cause });
    expect(offerMayBeWhy()).toBe(true);
  });

  it.each([
    ["a message only", { message: "connection refused" }, "connection refused"],
    ["nothing, as in a browser", {}, "closed with 1006"],
  ])("has a cause also where the event holds %s", async (_what, members, message) => {
    const { opened } = openStandard(URL_OF_SERVER, [], 1000);
    made[0]!.webSocket.fire("error", members);
    made[0]!.webSocket.fire("close", { code: 1006, reason: "" });
    expect(await rejection(opened)).toMatchObject({ cause: { message } });
  });

  it("rejects at its `close` where there is no `error`", async () => {
    const { opened } = openStandard(URL_OF_SERVER, [], 1000);
    made[0]!.webSocket.fire("close", { code: 0, reason: "" });
    expect(await rejection(opened)).toMatchObject({ cause: { message: "closed with 1006" } });
  });

  it("is tried once more without the offer, at once", async () => {
    const connecting = connect(URL_OF_SERVER, { heartbeat: false });
    made[0]!.webSocket.fire("error");
    await turn();
    expect(made.map(({ offer }) => offer)).toEqual([["reciproc.v1"], []]);
    const { webSocket } = made[1]!;
    webSocket.fire("open");
    const peer = await connecting;
    expect(peer.state).toBe("open");
    webSocket.fire("close", { code: 1000, reason: "" });
    await peer.closed;
  });
});

it("takes no `error` after `open` for the end: `close` follows", async () => {
  const connecting = connect(URL_OF_SERVER, { link: "plain", heartbeat: false });
  const { webSocket } = made[0]!;
  webSocket.fire("open");
  const peer = await connecting;
  webSocket.dispatchEvent(new Event("error"));
  await turn();
  expect(peer.state).toBe("open");
  webSocket.fire("close", { code: 1006, reason: "" });
  expect(await peer.closed).toMatchObject({ code: 1006 });
});
