// The entries for every runtime and for Node, with ES2020 and the types of Node, and without the DOM.
import { pair, RpcError } from "reciproc";
import { connect, serve } from "reciproc/node";

export async function used(): Promise<unknown[]> {
  const server = await serve({ port: 0, methods: { add: ([a, b]) => a + b } });
  const peer = await connect(server.url, { headers: { authorization: "Bearer x" }, tls: { ca: "" } });

  // Without `AppTypes`, the members of `data` and what a member says of itself may be anything.
  server.on("peer", (one) => {
    one.data["anything"] = 7;
  });
  const [first] = await server.topic("den").members();
  const name: string = first?.as.name;
  return [peer, name, pair({}, {}), new RpcError(1, "declined", undefined, { cause: peer })];
}
