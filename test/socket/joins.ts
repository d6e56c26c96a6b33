/** Each way to join two peers by a connection. */
import { vi } from "vitest";
import { WebSocket } from "ws";
import { connect as connectStandard, pair, type AnyPeer } from "../../src/index.js";
import { connect as connectNode, serve } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import type { Join } from "./suite.js";

export const inMemory: Join = async (ofNear, ofFar) => {
  const [near, far]: [AnyPeer, AnyPeer] = pair(ofNear, ofFar);
  return { near, far, [Symbol.asyncDispose]: () => near.close() };
};

/** Serves with the options of one peer, and connects with those of the other. `near` is that side. */
function over(near: "client" | "server", make: "ws" | "standard" | "test network"): Join {
  return async (ofNear, ofFar, link) => {
    const [ofClient, ofServer] = near === "client" ? [ofNear, ofFar] : [ofFar, ofNear];
    const options = { ...ofServer, session: false, limits: { ...ofServer.limits } } as never;
    const test = make === "test network" ? testServer<any, any>(options) : undefined;
    const server = test?.server ?? (await serve<any, any>({ ...(options as object), port: 0 } as never));
    const arrived = new Promise<AnyPeer>((resolve) => server.once("peer", (peer) => resolve(peer as AnyPeer)));
    if (make === "standard") vi.stubGlobal("WebSocket", WebSocket);
    const connect = test?.connect ?? (make === "standard" ? connectStandard : connectNode);
    const given = { openTimeoutMs: Infinity, ...ofClient, link, reconnect: false };
    const client = (await connect(server.url, given as never)) as AnyPeer;
    vi.unstubAllGlobals();
    const peer = await arrived;
    const ends = near === "client" ? { near: client, far: peer } : { near: peer, far: client };
    return { ...ends, [Symbol.asyncDispose]: () => server.close() };
  };
}

export const overWs = over("client", "ws");
export const overWsServer = over("server", "ws");
export const overStandard = over("client", "standard");
export const overTestNetwork = over("client", "test network");
export const overTestNetworkServer = over("server", "test network");
