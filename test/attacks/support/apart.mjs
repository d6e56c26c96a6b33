/**
 * Serves `here` in a process of its own, from the built package. Reports its port, and on request the number of its
 * connections.
 */
import { createServer } from "node:http";
import { serve } from "../../../dist/node.js";

const http = createServer();
await serve({ server: http, methods: { here: () => true } });
http.listen(0, "127.0.0.1", () => process.send(http.address().port));
process.on("message", () => http.getConnections((_error, count) => process.send(count)));
process.on("disconnect", () => process.exit());
