/** Opening the runtime's WebSocket, with each way in which runtimes report a failure. */
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { connect, ConnectError } from "../../src/index.js";
import { openStandard } from "../../src/client/open.js";
import { ScriptedWebSocket } from "../support/scripted.js";
import { rejection, turn } from "../support/turns.js";

/** All WebSockets that were made, with the subprotocols they offer. */
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
  it("rejects at its `error`, after which Node 20 and 22 emit nothing, with the runtime's error as cause", async () => {
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
  ])("has a cause also if the event holds %s", async (_what, members, message) => {
    const { opened } = openStandard(URL_OF_SERVER, [], 1000);
    made[0]!.webSocket.fire("error", members);
    made[0]!.webSocket.fire("close", { code: 1006, reason: "" });
    expect(await rejection(opened)).toMatchObject({ cause: { message } });
  });

  it("rejects at its `close` if there is no `error`", async () => {
    const { opened } = openStandard(URL_OF_SERVER, [], 1000);
    made[0]!.webSocket.fire("close", { code: 0, reason: "" });
    expect(await rejection(opened)).toMatchObject({ cause: { message: "closed with 1006" } });
  });

  it("is retried once without the offer, at once", async () => {
    const connecting = connect(URL_OF_SERVER, { heartbeat: false });
    await turn();
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

it("does not end at an `error` after `open`: `close` follows", async () => {
  const connecting = connect(URL_OF_SERVER, { link: "plain", heartbeat: false });
  await turn();
  const { webSocket } = made[0]!;
  webSocket.fire("open");
  const peer = await connecting;
  webSocket.dispatchEvent(new Event("error"));
  await turn();
  expect(peer.state).toBe("open");
  webSocket.fire("close", { code: 1006, reason: "" });
  expect(await peer.closed).toMatchObject({ code: 1006 });
});
