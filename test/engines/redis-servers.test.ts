import { redis } from "../../src/redis/index.js";
import { leftoversAt, RedisServer } from "../support/redis.js";
import { RedisProxy } from "../support/redis-proxy.js";
import { Relay } from "../support/relay.js";
import { describeServers } from "./broker-suite.js";

describeServers("Redis", async () => {
  const server = await RedisServer.create();
  return {
    address: `127.0.0.1:${server.port}`,
    engine: (params) => redis({ url: server.url, ...params }),
    kill: () => server.kill(),
    start: () => server.start(),
    signal: (name) => server.signal(name),
    leftovers: (prefix) => leftoversAt(server.url, prefix),
    muting: async (params) => {
      const proxy = await RedisProxy.to(server.port);
      return {
        engine: redis({ url: proxy.url, ...params }),
        mute: () => {
          if (proxy.mute("subscribers") !== 2) throw new Error("not every node has a subscriber");
        },
        [Symbol.asyncDispose]: () => proxy[Symbol.asyncDispose](),
      };
    },
    parting: async (params) => {
      const relay = await Relay.to(server.port);
      return {
        engine: redis({ url: `redis://127.0.0.1:${relay.port}`, ...params }),
        part: () => relay.pause(),
        mend: () => relay.mend(),
        [Symbol.asyncDispose]: () => relay[Symbol.asyncDispose](),
      };
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
});
