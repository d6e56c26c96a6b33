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

const TOO_LARGE = { code: 1009, reason: "message is too large" };
const ECHOED = { code: 4413, reason: "echoed" };

it.each([
  ["1009 if the close ends with 1005", { code: 1005, reason: "" }, TOO_LARGE],
  ["1009 if the close ends with 1006", { code: 1006, reason: "" }, TOO_LARGE],
  ["1009 if the close ends with the code that a standard WebSocket had to send in its place", ECHOED, TOO_LARGE],
  [
    "the code with which the other side closed meanwhile",
    { code: 4001, reason: "done" },
    { code: 4001, reason: "done" },
  ],
])("reports for a frame that is too long %s", (_what, end, reported) => {
  const socket = new ScriptedSocket(10);
  const recorder = new Recorder();
  socket.start(recorder);
  socket.frame("x".repeat(11));
  expect(socket.closes).toEqual([TOO_LARGE]);
  socket.end(end);
  expect(recorder).toMatchObject({ frames: [], ends: [reported] });
});
