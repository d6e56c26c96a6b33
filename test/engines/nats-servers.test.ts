import { JETSTREAM } from "./nats-rig.js";
import { describeServers } from "./servers.js";

describeServers(JETSTREAM);
