/** A client of a server with sessions: what it resumes after a cut, and what it reports when its server restarts. */
import { describe, expect, it, vi } from "vitest";
import { ConnectionLostError, type AnyPeer, type Stream } from "../../src/index.js";
import { serve } from "../../src/node.js";
import { pass, useFakeClock } from "../support/clock.js";
import { rejection } from "../support/turns.js";
import { confirmed, describeClients, record, type Connect } from "./clients.js";
import { Relay } from "./relay.js";
import { expectEcho, live, METHODS, network, refuse, server as virtualServer, useVirtualServer } from "./virtual.js";

describeClients("a client whose socket is cut", (connect: Connect) => {
  it("loses and duplicates no call or notification of either side, and keeps their order", async () => {
    const heard: number[] = [];
    const pushed: number[] = [];
    const methods = {
      n: ([n]: [number]) => (heard.push(n), n),
      note: ([n]: [number]) => void heard.push(n),
    };
    await using server = await serve<any, any>({ port: 0, methods });
    await using relay = await Relay.to(server.url);
    const peers: AnyPeer[] = [];
    server.on("peer", (one) => peers.push(one));
    await using peer = await confirmed(connect, relay.url, {
      methods: { push: ([n]: [number]) => void pushed.push(n) },
    });
    const emitted = record(peer);
    await peer.request("n", [0]);
    const calls: Promise<unknown>[] = [];
    const last = 2000;
    for (let i = 1; i < last; i += 2) {
      calls.push(peer.request("n", [i]));
      expect(peer.notify("note", [i + 1])).toBe(true);
      expect(peers[0]!.notify("push", [i])).toBe(true);
      if (i % 501 === 0) relay.cut();
      if (i % 11 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const odd = Array.from({ length: last / 2 }, (_, i) => 2 * i + 1);
    expect(await Promise.all(calls)).toEqual(odd);
    await peer.request("n", [-1]);
    expect(heard).toEqual([...Array.from({ length: last + 1 }, (_, i) => i), -1]);
    expect(pushed).toEqual(odd);
    expect(new Set(emitted)).toEqual(new Set(["suspend", "resume"]));
    expect(peers).toHaveLength(1);
    expect(relay.accepted).toBeGreaterThan(1);
  });
});

describe("a client whose server restarts", () => {
  useFakeClock();
  useVirtualServer({
    ...METHODS,
    id: (_params: unknown, { id }: { id: number }) => id,
    open: ([name]: [string], { peer }: { peer: AnyPeer }) => ({ values: peer.offer([name]) }),
  });

  it("reports which calls may have run and which were not sent, and continues with the new server", async () => {
    const { peer, emitted } = await live();
    const [first] = (await Promise.all([peer.request("id"), pass(1)])) as [number, void];
    const sent = rejection(peer.request("never"));
    await pass(1);
    network.answer = refuse;
    network.cut();
    const waiting = rejection(peer.request("echo", ["waits"]));
    const early = new Promise((resolve) => peer.once("lost", () => resolve(peer.request("id"))));
    const lost = vi.fn<(error: Error) => void>();
    peer.on("lost", lost);
    virtualServer.restart();
    network.answer = virtualServer.answer;
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
    void virtualServer.peers[0]!.close(4000);
    await pass(2000);
    expect(emitted).toEqual(["suspend", "lost", "error not now", "lost", "error not now", "lost", "resume"]);
    expect(virtualServer.peers.map(({ state }) => state)).toEqual(["closed", "closed", "closed", "open"]);
  });

  it("does not read another stream in place of one whose connection was lost before it was read", async () => {
    const { peer } = await live();
    const open = async (name: string): Promise<Stream<string>> => {
      const [opened] = await Promise.all([peer.request("open", [name]), pass(1)]);
      return (opened as { values: Stream<string> }).values;
    };
    const read = (stream: Stream<string>): Promise<unknown> => peer.iterate(stream)[Symbol.asyncIterator]().next();
    const old = await open("old");
    virtualServer.restart();
    network.cut();
    await pass(10);
    const fresh = await open("fresh");
    const reads = [rejection(read(old)), read(fresh)];
    await pass(1);
    expect(await Promise.all(reads)).toMatchObject([{ code: -32001 }, { done: false, value: "fresh" }]);
  });
});
