/** A client behind a pulled cable, over real sockets: no close reports that its server is gone. */
import { expect, it } from "vitest";
import { connect as connectNode, serve } from "../../src/node.js";
import { rejection } from "../support/turns.js";
import { bareServer, confirmed, describeClients, event, record, type Connect } from "./clients.js";
import { Relay } from "./relay.js";

/** Short, but long enough for a busy machine to answer. */
const heartbeat = { intervalMs: 300, deadAfterMs: 1200 };

describeClients("a client whose server is frozen", (connect: Connect) => {
  it("detects it by its heartbeat, resumes, and has lost no message", async () => {
    const heard: number[] = [];
    await using server = await serve<any, any>({
      port: 0,
      methods: { note: ([n]: [number]) => void heard.push(n), echo: (params: unknown) => params } as never,
    });
    await using relay = await Relay.to(server.url);
    await using peer = await confirmed(connect, relay.url, { heartbeat });
    const emitted = record(peer);
    peer.notify("note", [1]);
    await peer.request("echo", []);
    relay.freeze();
    // This message is sent, and never arrives on this socket.
    peer.notify("note", [2]);
    await event(peer, "suspend");
    peer.notify("note", [3]);
    // The old connections continue late, when neither side reads them any more.
    relay.thaw();
    await event(peer, "resume");
    peer.notify("note", [4]);
    expect(await peer.request("echo", [5])).toEqual([5]);
    expect(heard).toEqual([1, 2, 3, 4]);
    expect(emitted).toEqual(["suspend", "resume"]);
  });
});

it("detects a frozen plain server from Node, by pings of the WebSocket", async () => {
  await using bare = await bareServer();
  await using relay = await Relay.to(bare.url);
  const connect = connectNode as Connect;
  await using peer = await connect(relay.url, { link: "plain", reconnect: true, heartbeat });
  await using other = await connect(relay.url, { link: "plain", reconnect: false, heartbeat });
  const emitted = record(peer);
  await peer.request("echo", [1]);
  let pings = 0;
  for (const webSocket of bare.webSockets) webSocket.on("ping", () => pings++);
  await expect.poll(() => pings, { timeout: 5000 }).toBeGreaterThan(1);
  relay.freeze();
  const call = rejection(peer.request("echo", [2]));
  await event(peer, "lost");
  expect(await call).toMatchObject({ outcome: "unknown" });
  expect(await other.closed).toMatchObject({ code: 1006 });
  relay.thaw();
  await event(peer, "resume");
  expect(await peer.request("echo", [3])).toEqual([3]);
  expect(emitted).toEqual(["suspend", "lost", "resume"]);
});
