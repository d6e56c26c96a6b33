/** Clients that subscribe often: the pings that detect what a client has read must not count as a flood. */
import { expect, it, vi } from "vitest";
import { connect, serve, Subscriptions, type Server, type ServerContext } from "../../src/node.js";
import { request } from "../support/raw.js";
import { plainPeer } from "../support/network.js";

/** Serves `subscribe`, which notifies once, and `unsubscribe`. */
function subscribable(): Promise<Server> {
  const kind = new Subscriptions<number>({ method: "said", limits: { maxPerPeer: 10_000 } });
  const methods = {
    subscribe(_params: unknown, context: ServerContext) {
      const { id, notify } = kind.open(context);
      notify(1);
      return id;
    },
    unsubscribe: ([id]: [string], { peer }: ServerContext) => kind.close(peer, id),
  };
  return serve({ port: 0, methods });
}

it.each(["packed", "plain"] as const)(
  "lets a client subscribe and unsubscribe 2,000 times in a row (%s)",
  async (link) => {
    await using server = await subscribable();
    const said = new Map<unknown, () => void>();
    let closes = 0;
    const methods = { said: ({ subscription }: { subscription: string }) => said.get(subscription)!() };
    await using client = await connect(server.url, { link, methods });
    client.on("lost", () => closes++).on("close", () => closes++);
    const again = async (times: number): Promise<void> => {
      for (let i = 0; i < times; i++) {
        const id = await client.request("subscribe");
        await new Promise<void>((resolve) => said.set(id, resolve));
        expect(await client.request("unsubscribe", [id])).toBe(true);
      }
    };
    await Promise.all(Array.from({ length: 20 }, () => again(100)));
    expect(said.size).toBe(2000);
    expect(closes).toBe(0);
  },
);

it("lets a client of `ws` with default options subscribe 300 times at once", async () => {
  await using server = await subscribable();
  using client = await plainPeer(server.url);
  for (let i = 0; i < 300; i++) client.webSocket.send(JSON.stringify(request(i, "subscribe")));
  await vi.waitFor(() => expect(client.received).toHaveLength(600));
  const messages = client.received.map((text) => JSON.parse(text) as { id?: number; method?: string });
  expect(messages.filter(({ id }) => id !== undefined)).toHaveLength(300);
  expect(messages.filter(({ method }) => method === "said")).toHaveLength(300);
});
