/** A client whose server restarts: what it reports, and what continues. */
import { describe, expect, it, vi } from "vitest";
import { ConnectionLostError, type AnyPeer, type Stream } from "../../src/index.js";
import { pass, useVirtualClock } from "../support/time.js";
import { rejection } from "../support/turns.js";
import { expectEcho, live, METHODS, network, refuse, served, useNetwork } from "./attempts.js";

useVirtualClock();
useNetwork({
  ...METHODS,
  id: (_params: unknown, { id }: { id: number }) => id,
  open: ([name]: [string], { peer }: { peer: AnyPeer }) => ({ values: peer.offer([name]) }),
});

describe("a client whose server restarts", () => {
  it("reports which calls may have run and which were not sent, and continues with the new server", async () => {
    const { peer, emitted } = await live();
    const [first] = (await Promise.all([peer.request("id"), pass(1)])) as [number, void];
    const sent = rejection(peer.request("never"));
    await pass(1);
    network.script = refuse;
    network.lose();
    const waiting = rejection(peer.request("echo", ["waits"]));
    const early = new Promise((resolve) => peer.once("lost", () => resolve(peer.request("id"))));
    const lost = vi.fn<(error: Error) => void>();
    peer.on("lost", lost);
    network.script = undefined;
    await pass(1000);
    expect(lost).toHaveBeenCalledExactlyOnceWith(
      expect.objectContaining({ message: "the server has no such session" }),
    );
    expect(await sent).toBeInstanceOf(ConnectionLostError);
    expect(await sent).toMatchObject({ outcome: "unknown", method: "never" });
    expect(await waiting).toMatchObject({ outcome: "not-sent", method: "echo" });
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
    // Ids continue: a late response cannot match a new call.
    expect(await early).toBe(first + 3);
    // The new server keeps a session as well.
    network.cut();
    await pass(1000);
    await expectEcho(peer);
    expect(emitted).toEqual(["suspend", "lost", "resume", "suspend", "resume"]);
  });

  it("leaves no session on a server on which `onOpen` fails", async () => {
    let runs = 0;
    const onOpen = (): void => {
      if (++runs === 2 || runs === 3) throw new Error("not now");
    };
    const { emitted } = await live({ onOpen });
    void served[0]!.close(4000);
    await pass(2000);
    expect(emitted).toEqual(["suspend", "lost", "error not now", "lost", "error not now", "lost", "resume"]);
    expect(served.map(({ state }) => state)).toEqual(["closed", "closed", "closed", "open"]);
  });

  it("does not read another stream in place of one whose connection was lost before it was read", async () => {
    const { peer } = await live();
    const open = async (name: string): Promise<Stream<string>> => {
      const [opened] = await Promise.all([peer.request("open", [name]), pass(1)]);
      return (opened as { values: Stream<string> }).values;
    };
    const read = (stream: Stream<string>): Promise<unknown> => peer.iterate(stream)[Symbol.asyncIterator]().next();
    const old = await open("old");
    network.lose();
    await pass(10);
    const fresh = await open("fresh");
    const reads = [rejection(read(old)), read(fresh)];
    await pass(1);
    expect(await Promise.all(reads)).toMatchObject([{ code: -32001 }, { done: false, value: "fresh" }]);
  });
});
