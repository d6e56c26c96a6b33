import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { selfSigned } from "../support/certificates.js";
import { RedisServer } from "../support/redis.js";
import { Listening } from "./listening.js";
import { redisRig, RIGHTS } from "./redis-rig.js";
import { describeEngine } from "./suite.js";

const certificate = selfSigned();
let server: RedisServer;

beforeAll(async () => {
  const users = ["user default on nopass ~* &* +@all", `user reciproc on >se:cret ${RIGHTS}`];
  server = await RedisServer.create({ certificate, users });
}, 300_000);
afterAll(() => server[Symbol.asyncDispose]());

describeEngine("redis with TLS and a user of few rights", async () => {
  const url = server.url.replace("rediss://", "rediss://reciproc:se%3Acret@");
  return redisRig({ url, tls: { ca: certificate.cert } }, [server.url]);
});

describe("redis with TLS", () => {
  it("rejects a certificate that is not trusted, at once", async () => {
    const node = Listening.create(redisRig({ url: server.url }, []).engine(), "node");
    await expect(node.connection.open()).rejects.toMatchObject({
      name: "EngineError",
      outcome: "not-sent",
      message: expect.stringMatching(/self.signed certificate/),
    });
    await node.connection.close();
  });
});
