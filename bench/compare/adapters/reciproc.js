import { connect as open, serve as listen } from "../../../dist/node.js";

export async function serve() {
  const server = await listen({
    port: 0,
    methods: {
      echo: ([x]) => x,
      hang: () => new Promise(() => {}),
      ask: ([x], { peer }) => peer.request("answer", [x]),
    },
  });
  return new URL(server.url).port;
}

export async function connect(url) {
  const peer = await open(url, { methods: { answer: ([x]) => `answer to ${x}` } });
  return (method, x, signal) => peer.request(method, [x], { signal });
}
