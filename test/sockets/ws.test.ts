import { WsSocket } from "../../src/sockets/ws.js";
import { describeWebSocket, overNetwork } from "./websocket.js";

// A real server and client stop a longer message while they read it, as here.
const make = overNetwork(
  (webSocket, most) => new WsSocket(webSocket, most),
  (maxPayload) => ({ maxPayload, perMessageDeflate: false }),
);

describeWebSocket("over ws", make, { tooLarge: 1009 });
