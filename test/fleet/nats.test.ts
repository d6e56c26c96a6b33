import { nats } from "../../src/nats/index.js";
import { natsRig } from "../engines/nats-rig.js";
import { NatsServer } from "../support/nats.js";
import { Relay } from "../support/relay.js";
import { describeServers } from "./broker-suite.js";

describeServers("NATS with JetStream", async () => {
  const server = await NatsServer.create();
  return {
    engine: (params) => nats({ url: server.url, jetstream: {}, ...params }),
    kill: () => server.kill(),
    start: () => server.start(),
    leftovers: (prefix) => natsRig({ url: server.url, jetstream: {} }, server, prefix).leftovers(),
    muting: async (params) => {
      const relay = await Relay.listen(server.port);
      return {
        engine: nats({ url: `nats://127.0.0.1:${relay.port}`, jetstream: {}, ...params }),
        mute: () => relay.mute(),
        [Symbol.asyncDispose]: () => relay[Symbol.asyncDispose](),
      };
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
});
