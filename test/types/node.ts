// The entry for Node, without DOM types.
import { connect, serve } from "reciproc/node";

const server = await serve({ port: 0, methods: { add: ([a, b]) => a + b } });
export const peer = await connect(server.url, { headers: { authorization: "Bearer x" }, tls: { ca: "" } });
