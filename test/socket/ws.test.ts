import { overWs, overWsServer } from "./joins.js";
import { describeBytes, describeSocket } from "./suite.js";

describeSocket("over ws", overWs, { tooLarge: 1009 });
describeSocket("over ws, on a server", overWsServer, { tooLarge: 1009 });
describeBytes("over ws", overWs);
describeBytes("over ws, on a server", overWsServer);
