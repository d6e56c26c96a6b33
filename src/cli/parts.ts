/** The parts of the command `reciproc bridge`, for a program that serves its own bridges. The package does not export them. */
export { bridge, type BridgeOptions } from "../bridge/bridge.js";
export { HttpGate } from "../server/http-gate.js";
export { checkServerOptions } from "../server/options.js";
