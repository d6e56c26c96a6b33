import { afterAll, beforeAll } from "vitest";
import { RedisServer } from "../support/redis.js";
import { redisRig } from "./redis-rig.js";
import { describeEngine } from "./suite.js";

const given = process.env["RECIPROC_REDIS_URL"];
let server: RedisServer | undefined;

beforeAll(async () => {
  if (given === undefined) server = await RedisServer.create();
}, 300_000);
afterAll(() => server?.[Symbol.asyncDispose]());

describeEngine("redis", async () => {
  const url = given ?? server!.url;
  return redisRig({ url }, [url]);
});
