/** The behaviour suite that every link must pass. */
import { sendEncoded } from "../support/links.js";
import { describe, expect, it } from "vitest";
import type { CloseInfo, Receiver, Transport } from "../../src/core/transport.js";
import { EncodedMessage } from "../../src/core/transport.js";
import { turn } from "../support/turns.js";

/** Makes both ends of one link. */
export type MakeLink = () => [Transport, Transport];

/** Records what a link reports to its peer. */
export class Heard implements Receiver {
  readonly messages: unknown[] = [];
  readonly ends: CloseInfo[] = [];

  receive(text: string): void {
    this.messages.push(JSON.parse(text));
  }

  dispatch(value: unknown): void {
    this.messages.push(value);
  }

  closed(info: CloseInfo): void {
    this.ends.push(info);
  }
}

/** Lets a memory socket deliver its queued frames in both directions. */
export async function carried(): Promise<void> {
  await turn();
  await turn();
}

/** Starts both ends, and lets their first frames pass. */
async function started(make: MakeLink): Promise<Record<"a" | "b", Transport> & Record<"atA" | "atB", Heard>> {
  const [a, b] = make();
  const [atA, atB] = [new Heard(), new Heard()];
  a.start(atA);
  b.start(atB);
  await carried();
  return { a, b, atA, atB };
}

export function describeLink(name: string, make: MakeLink): void {
  describe(`${name}: messages`, () => {
    it.each([1, 2, 3, 50, 500])("delivers %i messages of one tick whole and in order, both ways", async (count) => {
      const { a, b, atA, atB } = await started(make);
      const messages = Array.from({ length: count }, (_, i) => ({ i, text: "x".repeat(i % 7 === 0 ? 700 : i) }));
      for (const message of messages) {
        expect(a.send(JSON.stringify(message))).toBe(true);
        expect(b.send(JSON.stringify(message))).toBe(true);
      }
      await carried();
      expect(atB.messages).toEqual(messages);
      expect(atA.messages).toEqual(messages);
    });

    it("keeps the order of single messages and broadcasts", async () => {
      const { a, atB: heard } = await started(make);
      const send = [
        (i: number) => a.send(`[${i}]`),
        (i: number) => sendEncoded(a, new EncodedMessage(`[${i}]`)),
        (i: number) => a.send(JSON.stringify([i, "x".repeat(2000)])),
      ];
      for (let i = 0; i < 60; i++) send[(i * i) % 3]!(i);
      await carried();
      expect(heard.messages.map((message) => (message as number[])[0])).toEqual(
        Array.from({ length: 60 }, (_, i) => i),
      );
    });

    it("delivers messages that were sent before a close", async () => {
      const { a, atB: heard } = await started(make);
      for (let i = 0; i < 5; i++) a.send(`{"n":${i}}`);
      a.close(4000, "done");
      await carried();
      expect(heard.messages).toHaveLength(5);
      expect(heard.ends).toEqual([{ code: 4000, reason: "done" }]);
    });

    it("refuses messages after the close", async () => {
      const { a, b } = await started(make);
      a.close();
      expect(a.send("{}")).toBe(false);
      expect(sendEncoded(a, new EncodedMessage("{}"))).toBe(false);
      await carried();
      expect(b.send("{}")).toBe(false);
    });
  });
}
