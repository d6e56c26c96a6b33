import { afterAll, beforeAll } from "vitest";
import { selfSigned } from "../support/certificates.js";
import { RedisServer } from "../support/redis.js";
import { redisRig, RIGHTS } from "./redis-rig.js";
import { describeEngine } from "./kit.js";

const given = process.env["RECIPROC_REDIS_URL"];
const certificate = selfSigned();
let server: RedisServer | undefined;
let secure: RedisServer;

beforeAll(async () => {
  if (given === undefined) server = await RedisServer.create();
  const users = ["user default on nopass ~* &* +@all", `user reciproc on >se:cret ${RIGHTS}`];
  secure = await RedisServer.create({ certificate, users });
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  await secure[Symbol.asyncDispose]();
});

describeEngine("redis", async () => {
  const url = given ?? server!.url;
  return redisRig({ url }, [url]);
});
describeEngine("redis with TLS and a user of few rights", async () => {
  const url = secure.url.replace("rediss://", "rediss://reciproc:se%3Acret@");
  return redisRig({ url, tls: { ca: certificate.cert } }, [secure.url]);
});
