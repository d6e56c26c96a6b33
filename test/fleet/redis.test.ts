import { expect } from "vitest";
import { redis } from "../../src/redis/index.js";
import { leftoversAt, RedisServer } from "../support/redis.js";
import { RedisProxy } from "../support/redis-proxy.js";
import { describeServers } from "./broker-suite.js";

describeServers("Redis", async () => {
  const server = await RedisServer.create();
  return {
    engine: (params) => redis({ url: server.url, ...params }),
    kill: () => server.kill(),
    start: () => server.start(),
    leftovers: (prefix) => leftoversAt(server.url, prefix),
    muting: async (params) => {
      const proxy = await RedisProxy.listen(server.port);
      return {
        engine: redis({ url: proxy.url, ...params }),
        mute: () => expect(proxy.mute("subscribers")).toBe(2),
        [Symbol.asyncDispose]: () => proxy[Symbol.asyncDispose](),
      };
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
});
