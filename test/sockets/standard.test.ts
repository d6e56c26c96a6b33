import { StandardSocket } from "../../src/sockets/standard.js";
import { describeWebSocket, overNetwork } from "./websocket.js";

// The WebSocket of `ws` has the interface of the standard one; a browser's runs through the same code elsewhere.
const make = overNetwork(
  (webSocket, maxFrameBytes) => new StandardSocket(webSocket, maxFrameBytes),
  () => ({ perMessageDeflate: false }),
);

// A standard WebSocket may send 1000 and 3000 to 4999 only.
describeWebSocket("over a standard WebSocket", make, { tooLarge: 4413 });
