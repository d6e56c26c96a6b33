import { afterAll, beforeAll } from "vitest";
import { selfSigned } from "../support/certificates.js";
import { NatsServer } from "../support/nats.js";
import { natsRig, rightsOf } from "./nats-rig.js";
import { describeEngine } from "./suite.js";

const PREFIX = "test-few";
const certificate = selfSigned();
let server: NatsServer;

beforeAll(async () => {
  const { own, streams } = rightsOf(PREFIX);
  const permissions = { publish: [...own, ...streams], subscribe: own };
  const users = [
    { user: "all", password: "all" },
    { user: "few", password: "se:cret", permissions },
  ];
  const lines = [`authorization: ${JSON.stringify({ users })}`, "no_auth_user: all"];
  server = await NatsServer.create({ certificate, lines });
}, 300_000);
afterAll(() => server[Symbol.asyncDispose]());

describeEngine("nats with TLS, JetStream and a user of few rights", async () => {
  const url = server.url.replace("tls://", "tls://few:se%3Acret@");
  return natsRig({ url, tls: { ca: certificate.cert }, jetstream: {} }, server, PREFIX);
});
