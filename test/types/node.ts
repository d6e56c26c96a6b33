// The entry for Node, without DOM types.
import { connect, serve } from "reciproc/node";

const server = await serve({ port: 0, methods: { add: ([a, b]) => a + b } });
export const peer = await connect(server.url, { headers: { authorization: "Bearer x" }, tls: { ca: "" } });

// Without `AppTypes`, the members of `data` and what a member says of itself may be anything.
server.on("peer", (one) => {
  one.data["anything"] = 7;
});
const [first] = await server.topic("den").members();
export const name: string = first?.as.name;
