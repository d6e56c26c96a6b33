import { afterAll, beforeAll } from "vitest";
import { NatsServer } from "../support/nats.js";
import { natsRig } from "./nats-rig.js";
import { describeEngine } from "./suite.js";

const given = process.env["RECIPROC_NATS_URL"];
let server: NatsServer | undefined;

beforeAll(async () => {
  if (given === undefined) server = await NatsServer.create();
});
afterAll(() => server?.[Symbol.asyncDispose]());

describeEngine("nats", async () => natsRig({ url: given ?? server!.url }, server));
describeEngine("nats with JetStream", async () => natsRig({ url: given ?? server!.url, jetstream: {} }, server));
