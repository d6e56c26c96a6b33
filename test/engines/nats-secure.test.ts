import { afterAll, beforeAll } from "vitest";
import { selfSigned } from "../support/certificates.js";
import { NatsServer } from "../support/nats.js";
import { linesOf, natsRig, rightsOf } from "./nats-rig.js";
import { describeEngine } from "./suite.js";

const prefix = "test-few";
const certificate = selfSigned();
let server: NatsServer;

beforeAll(async () => {
  const { own, streams } = rightsOf(prefix);
  server = await NatsServer.create({ certificate, lines: linesOf(prefix, [...own, ...streams]) });
});
afterAll(() => server[Symbol.asyncDispose]());

describeEngine("nats with TLS, JetStream and a user of few rights", async () => {
  const url = server.url.replace("tls://", "tls://few:se%3Acret@");
  return natsRig({ url, tls: { ca: certificate.cert }, jetstream: {}, prefix }, server);
});
