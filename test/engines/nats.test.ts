import { afterAll, beforeAll } from "vitest";
import { selfSigned } from "../support/certificates.js";
import { NatsServer } from "../support/nats.js";
import { linesOf, natsRig, rightsOf, withoutLimits } from "./nats-rig.js";
import { describeEngine } from "./kit.js";

const given = process.env["RECIPROC_NATS_URL"];
const prefix = "test-few";
const certificate = selfSigned();
let server: NatsServer | undefined;
let secure: NatsServer;

withoutLimits();
beforeAll(async () => {
  if (given === undefined) server = await NatsServer.create();
  const { own, streams } = rightsOf(prefix);
  secure = await NatsServer.create({ certificate, lines: linesOf(prefix, [...own, ...streams]) });
});
afterAll(async () => {
  await server?.[Symbol.asyncDispose]();
  await secure[Symbol.asyncDispose]();
});

describeEngine("nats", async () => natsRig({ url: given ?? server!.url }, server));
describeEngine("nats with JetStream", async () => natsRig({ url: given ?? server!.url, jetstream: {} }, server));
describeEngine("nats with TLS, JetStream and a user of few rights", async () => {
  const url = secure.url.replace("tls://", "tls://few:se%3Acret@");
  return natsRig({ url, tls: { ca: certificate.cert }, jetstream: {}, prefix }, secure);
});
