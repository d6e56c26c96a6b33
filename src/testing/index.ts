/// <reference types="node" preserve="true" />
/** The entry for tests of applications: a server and its clients in memory. No module that it imports needs Node or `ws`. */
export { testServer, type TestClientOptions, type TestServer, type TestServerOptions } from "./server.js";
export { virtualClock, type VirtualClock } from "./clock.js";
export type { Line, Network } from "./network.js";
export type { PageWebSocket, WebSocketOptions } from "./page.js";
export { describeEngine, type EngineRig, type TestFunctions } from "./engine.js";
