import { expect, it } from "vitest";
import { Inbox } from "../../src/sockets/inbox.js";
import { Recorder } from "./behaviour.js";

/** Makes a socket whose other side is the test. */
class ScriptedSocket extends Inbox {
  readonly closes: unknown[] = [];

  close(code?: number, reason?: string): void {
    this.closes.push({ code, reason });
  }
}

it.each([1005, 1006])("reports 1009 for a frame that is too long if the close ends with %i", (code) => {
  const socket = new ScriptedSocket(10);
  const recorder = new Recorder();
  socket.start(recorder);
  socket.frame("x".repeat(11));
  expect(socket.closes).toEqual([{ code: 1009, reason: "message is too large" }]);
  socket.end({ code, reason: "" });
  expect(recorder).toMatchObject({ frames: [], ends: [{ code: 1009, reason: "message is too large" }] });
});

it("reports the code of the echoed close, which a standard WebSocket had to send in place of 1009", () => {
  const socket = new ScriptedSocket(10);
  const recorder = new Recorder();
  socket.start(recorder);
  socket.frame("x".repeat(11));
  socket.end({ code: 4413, reason: "message is too large" });
  expect(recorder.ends).toEqual([{ code: 4413, reason: "message is too large" }]);
});
