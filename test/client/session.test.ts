/** A client of a server with sessions: what it resumes after a cut, and what it reports when its server restarts. */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { ConnectionLostError, type AnyPeer, type Stream } from "../../src/index.js";
import { connect as connectNode, serve, type Server } from "../../src/node.js";
import { bareHttp } from "../support/network.js";
import { gate, rejection } from "../support/turns.js";
import { confirmed, describeClients, event, record, type Connect } from "./clients.js";
import { Relay } from "./relay.js";

/** The context of a handler. */
interface Call {
  peer: AnyPeer;
  signal: AbortSignal;
}

/** A server behind a relay. */
interface Served extends AsyncDisposable {
  readonly relay: Relay;
  readonly server: Server<any, any, any>;
  /** The peers that the server made, in order. */
  readonly peers: AnyPeer[];
}

async function served(methods: object, options: object = {}): Promise<Served> {
  const server: Server<any, any, any> = await serve<any, any, any>({ port: 0, methods: methods as never, ...options });
  const relay = await Relay.to(server.url);
  const peers: AnyPeer[] = [];
  server.on("peer", (peer) => peers.push(peer));
  return {
    relay,
    server,
    peers,
    async [Symbol.asyncDispose]() {
      await relay.close();
      await server.close();
    },
  };
}

describeClients("a client whose socket is cut", (connect: Connect) => {
  it("resumes by itself, emits events, and is the same peer to its server", async () => {
    await using world = await served({ whoami: (_params: unknown, { peer }: Call) => peer.id });
    await using peer = await confirmed(connect, world.relay.url);
    const told = record(peer);
    const id = await peer.request("whoami");
    expect(peer.state).toBe("open");
    const suspended = event(peer, "suspend");
    const back = event(peer, "resume");
    world.relay.cut();
    await suspended;
    expect(peer.state).toBe("suspended");
    await back;
    expect(peer.state).toBe("open");
    expect(await peer.request("whoami")).toBe(id);
    expect(told).toEqual(["suspend", "resume"]);
    expect(world.peers).toHaveLength(1);
    expect(world.relay.accepted).toBe(2);
  });

  it("retries if the next socket is lost between its 101 and its first frame", async () => {
    await using http = await bareHttp();
    await using server = await serve<any, any>({ server: http.server, methods: { echo: (params: unknown) => params } });
    await using relay = await Relay.to(http.url);
    await using peer = await confirmed(connect, relay.url);
    const told = record(peer);
    // This server accepts the first offered subprotocol, and sends nothing.
    const mute = new WebSocketServer({ noServer: true });
    http.server.prependOnceListener("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      mute.handleUpgrade(request, socket, head, () => socket.destroy());
    });
    const back = event(peer, "resume");
    relay.cut();
    await back;
    expect(await peer.request("echo", [1])).toEqual([1]);
    expect(told).toEqual(["suspend", "resume"]);
    expect(relay.accepted).toBe(3);
    expect(server.peers.size).toBe(1);
  });

  it("loses and duplicates no call or notification of either side, and keeps their order", async () => {
    const heard: number[] = [];
    const pushed: number[] = [];
    await using world = await served({
      n: ([n]: [number]) => (heard.push(n), n),
      note: ([n]: [number]) => void heard.push(n),
    });
    await using peer = await confirmed(connect, world.relay.url, {
      methods: { push: ([n]: [number]) => void pushed.push(n) },
    });
    const told = record(peer);
    await peer.request("n", [0]);
    const calls: Promise<unknown>[] = [];
    const last = 2000;
    for (let i = 1; i < last; i += 2) {
      calls.push(peer.request("n", [i]));
      expect(peer.notify("note", [i + 1])).toBe(true);
      expect(world.peers[0]!.notify("push", [i])).toBe(true);
      if (i % 501 === 0) world.relay.cut();
      if (i % 11 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const odd = Array.from({ length: last / 2 }, (_, i) => 2 * i + 1);
    expect(await Promise.all(calls)).toEqual(odd);
    await peer.request("n", [-1]);
    expect(heard).toEqual([...Array.from({ length: last + 1 }, (_, i) => i), -1]);
    expect(pushed).toEqual(odd);
    expect(new Set(told)).toEqual(new Set(["suspend", "resume"]));
  });

  it("ends with its socket with `reconnect: false`, and requests no session then", async () => {
    const [begun, aborted] = [gate(), gate()];
    await using world = await served({
      work: (_params: unknown, { signal }: Call) => {
        signal.addEventListener("abort", () => aborted.resolve());
        begun.resolve();
        return new Promise(() => {});
      },
    });
    const peer = await connect(world.relay.url, { reconnect: false });
    const told = record(peer);
    const call = rejection(peer.request("work"));
    await begun.promise;
    world.relay.cut();
    expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
    expect(await peer.closed).toMatchObject({ code: 1006 });
    // The server keeps nothing for a client without a session.
    await aborted.promise;
    await world.peers[0]!.closed;
    expect(world.server.stats()).toMatchObject({ peers: 0, suspended: 0 });
    expect(told).toEqual(["close 1006"]);
    expect(world.relay.accepted).toBe(1);
  });
});

describeClients("a client whose server restarts on the same port", (connect: Connect) => {
  it("reports which calls may have run and which were not sent, and continues with the new server", async () => {
    const begun = gate();
    const methods = {
      work: () => (begun.resolve(), new Promise(() => {})),
      echo: (params: unknown) => params,
      id: (_params: unknown, { id }: { id: number }) => id,
    };
    await using world = await served(methods);
    await using peer = await confirmed(connect, world.relay.url);
    const told = record(peer);
    const first = (await peer.request("id")) as number;
    const sent = rejection(peer.request("work"));
    await begun.promise;
    const suspended = event(peer, "suspend");
    // No server listens for a while.
    await world.relay.close();
    await suspended;
    const waiting = rejection(peer.request("echo", ["waits"]));
    const lost = new Promise<{ error: unknown; state: string; early: Promise<unknown> }>((resolve) =>
      peer.once("lost", (error) => resolve({ error, state: peer.state, early: peer.request("id") })),
    );
    const back = event(peer, "resume");
    await using next = await serve<any, any>({ port: 0, methods: methods as never });
    world.relay.redirect(next.url);
    await world.relay.open();
    const { error, state, early } = await lost;
    expect(error).toMatchObject({ message: "the server has no such session any more" });
    expect(state).toBe("suspended");
    expect(await sent).toBeInstanceOf(ConnectionLostError);
    expect(await sent).toMatchObject({ outcome: "unknown", method: "work" });
    expect(await waiting).toMatchObject({ outcome: "not-sent", method: "echo" });
    await back;
    expect(told).toEqual(["suspend", "lost", "resume"]);
    expect(peer.state).toBe("open");
    // Ids continue: a late response cannot match a new call.
    expect(await early).toBe(first + 3);
    expect(await peer.request("id")).toBe(first + 4);
    // The new server keeps a session as well.
    const again = event(peer, "resume");
    world.relay.cut();
    await again;
    expect(await peer.request("echo", [1])).toEqual([1]);
    expect(told).toEqual(["suspend", "lost", "resume", "suspend", "resume"]);
  });

  it("leaves no session on a server on which `onOpen` fails", async () => {
    await using world = await served({});
    let runs = 0;
    const onOpen = (): void => {
      if (++runs === 2 || runs === 3) throw new Error("not now");
    };
    await using peer = await confirmed(connect, world.relay.url, { onOpen });
    const told = record(peer);
    const back = event(peer, "resume");
    void world.peers[0]!.close(4000);
    await back;
    for (let i = 0; i < 2; i++) await peer.request("confirmed").catch(() => {});
    expect(told).toEqual(["suspend", "lost", "error not now", "lost", "error not now", "lost", "resume"]);
    expect(world.server.stats()).toMatchObject({ opened: 4, peers: 1, suspended: 0 });
  });
});

it("does not read another stream in place of one whose connection was lost before it was read", async () => {
  const methods = {
    open: ([name]: [string], { peer }: Call) => ({ values: peer.offer([name]) }),
  };
  await using first = await serve<any, any, any>({ port: 0, methods });
  const { url } = first;
  const peer = await connectNode(url, { reconnect: true });
  const old = await peer.request("open", ["old"]);
  const back = new Promise<void>((resolve) => peer.once("resume", resolve));
  const port = Number(new URL(url).port);
  await first.close();
  await using second = await serve<any, any, any>({ port, methods });
  await back;
  expect(second.peers.size).toBe(1);
  const fresh = await peer.request("open", ["fresh"]);
  const read = (stream: Stream<string>): Promise<unknown> => peer.iterate(stream)[Symbol.asyncIterator]().next();
  expect(await rejection(read(old.values))).toMatchObject({ code: -32001 });
  expect(await read(fresh.values)).toEqual({ done: false, value: "fresh" });
  await peer.close();
});
