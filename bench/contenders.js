/**
 * The contenders. Each is a row of every table, and a file in contenders/ that exports what an application would write:
 *
 * - `serve(methods)` resolves with the port, the connected `peers` and `broadcast(method, x, except)`.
 * - `connector(url, methods)` returns a function that opens a connection, and resolves with its peer.
 * - `call(peer, method, x)`, `notify(peer, method, x)`, `close(peer)`; and `put(peer, view)` and `upload(peer, parts)` for bytes.
 *
 * A peer is an object of the library, if it has one, so that memory and speed are those of the library.
 */

/** The build of the package by `npm run build`. */
const NODE_ENTRY = "../dist/node.js";

/**
 * - `only` / `lacks`: the only kind of scenario that the contender runs, or the kinds that it cannot run.
 * - `hasBytes`: whether the contender runs the scenarios with bytes.
 * - `imports`: the modules that a Node program with a server and a client imports.
 * - `browser`: the smallest client of a page that the documentation shows. The bundler drops unused code.
 */
export const contenders = [
  { name: "bare", title: "bare ws", packages: ["ws"], imports: ["ws"], hasBytes: true },
  { name: "net", title: "net by hand (the floor)", packages: [], imports: ["node:crypto", "node:net"], hasBytes: true },
  { name: "packed", title: "bare ws, packed", packages: [] },
  {
    name: "reciproc-packed",
    title: "reciproc (packed)",
    packages: ["reciproc"],
    imports: [NODE_ENTRY],
    browser: 'export { connect } from "../dist/index.js";',
    hasBytes: true,
  },
  { name: "base64", title: "reciproc (packed), base64", packages: [], only: "bytes", hasBytes: true },
  { name: "reciproc-plain", title: "reciproc (plain)", packages: [] },
  {
    name: "rpc-websockets",
    title: "rpc-websockets",
    packages: ["rpc-websockets"],
    lacks: ["server-calls"],
    imports: ["rpc-websockets"],
    browser: 'export { Client } from "rpc-websockets";',
  },
  {
    name: "vscode-jsonrpc",
    title: "vscode-jsonrpc",
    packages: ["vscode-jsonrpc", "vscode-ws-jsonrpc"],
    imports: ["ws", "vscode-ws-jsonrpc"],
    browser: 'export { createWebSocketConnection, listen, toSocket } from "vscode-ws-jsonrpc";',
  },
  {
    name: "json-rpc-2.0",
    title: "json-rpc-2.0",
    packages: ["json-rpc-2.0"],
    imports: ["ws", "json-rpc-2.0"],
    browser: 'export { JSONRPCClient, JSONRPCServer, JSONRPCServerAndClient } from "json-rpc-2.0";',
  },
  {
    name: "jayson",
    title: "jayson",
    packages: ["jayson"],
    lacks: ["server-calls", "fan-out", "live"],
    imports: ["jayson"],
    browser: 'export { default } from "jayson/lib/client/browser";',
  },
  {
    name: "birpc",
    title: "birpc",
    packages: ["birpc"],
    imports: ["ws", "birpc"],
    browser: 'export { createBirpc } from "birpc";',
  },
  {
    name: "capnweb",
    title: "capnweb",
    packages: ["capnweb"],
    imports: ["ws", "capnweb"],
    browser: 'export { newWebSocketRpcSession, RpcTarget } from "capnweb";',
  },
  {
    name: "socket.io",
    title: "socket.io",
    packages: ["socket.io", "socket.io-client"],
    imports: ["socket.io", "socket.io-client"],
    browser: 'export { io } from "socket.io-client";',
    hasBytes: true,
  },
];

/** The contender that all others are compared with. */
export const BASELINE = "bare";

/** The contender that shows what this runtime can do at most. */
export const FLOOR = "net";

/** Returns why a contender cannot run a scenario; `undefined` if it can. */
export function absence(contender, scenario) {
  if (contender.only !== undefined && contender.only !== scenario.kind) return "same as packed";
  if (scenario.kind === "bytes") return contender.hasBytes ? undefined : "not measured";
  if (contender.lacks?.includes(scenario.kind)) return "cannot";
  return scenario.absence?.(contender);
}
