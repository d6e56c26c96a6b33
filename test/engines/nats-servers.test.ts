import { nats } from "../../src/nats/index.js";
import { natsRig } from "./nats-rig.js";
import { NatsServer } from "../support/nats.js";
import { Relay } from "../support/relay.js";
import { describeServers, type Broker, type EngineParams } from "./broker-suite.js";

type Relayed = Awaited<ReturnType<Broker["muting"]>> & Awaited<ReturnType<Broker["parting"]>>;

describeServers("NATS with JetStream", async () => {
  const server = await NatsServer.create();
  const relayed = async (params: EngineParams): Promise<Relayed> => {
    const relay = await Relay.to(server.port);
    const engine = nats({ url: `nats://127.0.0.1:${relay.port}`, jetstream: {}, ...params });
    return {
      engine,
      mute: () => relay.mute("client"),
      part: () => relay.pause(),
      mend: () => relay.mend(),
      [Symbol.asyncDispose]: () => relay[Symbol.asyncDispose](),
    };
  };
  return {
    address: `127.0.0.1:${server.port}`,
    engine: (params) => nats({ url: server.url, jetstream: {}, ...params }),
    kill: () => server.kill(),
    start: () => server.start(),
    signal: (name) => server.signal(name),
    leftovers: (prefix) => natsRig({ url: server.url, jetstream: {} }, server, prefix).leftovers(),
    muting: relayed,
    parting: relayed,
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
});
