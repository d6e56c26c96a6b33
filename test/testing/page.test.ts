/** The WebSocket that a test server gives to code which makes its own. */
import { describe, expect, it, vi } from "vitest";
import { testServer } from "../../src/testing/index.js";
import { turn } from "../support/turns.js";

function recorded(webSocket: EventTarget): string[] {
  const events: string[] = [];
  webSocket.addEventListener("open", () => events.push("open"));
  webSocket.addEventListener("message", (event) => events.push(`message ${(event as MessageEvent).data}`));
  webSocket.addEventListener("error", () => events.push("error"));
  webSocket.addEventListener("close", (event) => {
    const { code, reason, wasClean } = event as CloseEvent;
    events.push(`close ${code} ${reason} ${wasClean}`);
  });
  return events;
}

describe("the WebSocket of a test server", () => {
  it("speaks plain JSON-RPC for a client that is not reciproc, with standard events", async () => {
    await using kit = testServer({ methods: { add: ([a, b]) => a + b } });
    const webSocket = new kit.WebSocket("ws://localhost/");
    const events = recorded(webSocket as unknown as EventTarget);
    expect(webSocket.readyState).toBe(0);
    expect(() => webSocket.send("early")).toThrow("not open yet");
    await turn();
    expect([webSocket.readyState, webSocket.protocol, webSocket.bufferedAmount]).toEqual([1, "", 0]);
    webSocket.send('{"jsonrpc":"2.0","id":1,"method":"add","params":[1,2]}');
    await turn();
    expect(() => webSocket.close(1001)).toThrow("must be 1000 or from 3000 to 4999, got 1001");
    expect(() => webSocket.close(3000, "x".repeat(124))).toThrow("the reason is too long");
    webSocket.close(3000, "done");
    webSocket.close(3001, "again");
    expect(webSocket.readyState).toBe(2);
    await turn();
    expect(webSocket.readyState).toBe(3);
    expect(events).toEqual(["open", 'message {"jsonrpc":"2.0","id":1,"result":3}', "close 3000 done true"]);
    expect(kit.server.stats().closed).toEqual({ 3000: 1 });
  });

  it("is no page's if it gets options: it sends their headers only, and has a line of its own", async () => {
    vi.stubGlobal("location", { origin: "https://board.test" });
    vi.stubGlobal("document", { cookie: "session=1" });
    const seen: unknown[] = [];
    await using kit = testServer({
      authenticate: ({ headers }) => (seen.push([headers.origin, headers.cookie, headers["x-key"]]), {}),
    });
    const [page, one, two] = [
      new kit.WebSocket("ws://board.test/"),
      new kit.WebSocket("ws://board.test/", { protocols: "reciproc.v1", headers: { "X-Key": "1" } }),
      new kit.WebSocket("ws://board.test/", { protocols: ["reciproc.v1"] }),
    ];
    await turn();
    expect(seen).toEqual([
      ["https://board.test", "session=1", undefined],
      [undefined, undefined, "1"],
      [undefined, undefined, undefined],
    ]);
    expect([page, one, two].map(({ protocol }) => protocol)).toEqual(["", "reciproc.v1", "reciproc.v1"]);
    kit.network.of(one).cut();
    expect([page, one, two].map(({ readyState }) => readyState)).toEqual([1, 3, 1]);
    kit.network.of(page).cut();
    expect([page, one, two].map(({ readyState }) => readyState)).toEqual([3, 3, 1]);
    expect(() => new kit.WebSocket("ws://board.test/", { header: {} } as object)).toThrow("Unknown name `header`");
  });

  it("fires `error` and `close` with 1006 if the server refuses it, if the network is cut, and if it is closed early", async () => {
    await using kit = testServer({ path: "/rpc" });
    const sockets = ["/other", "/rpc", "/rpc"].map((path) => new kit.WebSocket(`ws://localhost${path}`));
    const events = sockets.map((webSocket) => recorded(webSocket as unknown as EventTarget));
    sockets[2]!.close();
    await turn();
    kit.network.cut();
    await turn();
    expect(events).toEqual([
      ["error", "close 1006  false"],
      ["open", "error", "close 1006  false"],
      ["error", "close 1006  false"],
    ]);
  });

  it("calls the `on...` properties, counts what a slow network has not sent, and throws for a bad address or a Blob", async () => {
    await using kit = testServer({});
    const [webSocket, other] = [new kit.WebSocket("ws://localhost/"), new kit.WebSocket("ws://localhost/", "chat")];
    const log: string[] = [];
    Object.assign(webSocket, { onopen: () => log.push("open"), onclose: () => log.push("close") });
    await turn();
    expect([webSocket.readyState, other.readyState]).toEqual([1, 3]);
    expect(() => new kit.WebSocket("ftp://localhost/")).toThrow(TypeError);
    expect(() => webSocket.send(new Blob() as unknown as string)).toThrow(TypeError);
    kit.network.stop();
    webSocket.send("12345");
    expect(webSocket.bufferedAmount).toBe(5);
    await kit.server.close();
    await turn();
    expect(log).toEqual(["open", "close"]);
  });
});
