import { describe, expect, it } from "vitest";
import { memorySockets } from "../../src/sockets/memory.js";
import { BinaryRecorder, describeSocket } from "./behaviour.js";

describeSocket(
  "in memory",
  async (maxMessageBytes) => {
    const [socket, other] = memorySockets(maxMessageBytes, 2 ** 20);
    const recorder = new BinaryRecorder();
    other.start(recorder);
    return {
      socket,
      far: {
        send: (text) => void other.send(text),
        sendBytes: (bytes) => void other.send(bytes),
        close: (code, reason) => other.close(code, reason),
        received: (count) => recorder.received(count),
        closed: recorder.ended.then(({ code, reason }) => ({ code, reason })),
      },
      async [Symbol.asyncDispose]() {
        other.close();
      },
    };
  },
  { tooLarge: 1009 },
);

describe("in memory: a frame", () => {
  it("never arrives inside send(), nor does a response arrive inside the handler", async () => {
    const [a, b] = memorySockets(100, 100);
    const log: string[] = [];
    a.start({ frame: (text) => log.push(`a got ${text}`), closed: () => log.push("a closed") });
    b.start({
      frame(text) {
        log.push(`b got ${text}`);
        b.send(`answer to ${text}`);
        log.push("b answered");
      },
      closed: () => log.push("b closed"),
    });
    a.send("one");
    log.push("sent");
    await Promise.resolve();
    await Promise.resolve();
    a.close();
    await Promise.resolve();
    expect(log).toEqual(["sent", "b got one", "b answered", "a got answer to one", "a closed", "b closed"]);
  });
});
