/** Rigs of the suite over NATS. */
import { nanoid } from "nanoid";
import { nats, type NatsOptions } from "../../src/nats/index.js";
import { Names } from "../../src/nats/names.js";
import { isSubscribed, managed, type NatsServer } from "../support/nats.js";
import { eventually } from "../support/redis.js";
import type { EngineRig } from "./rig.js";

export interface NatsRig extends EngineRig {
  readonly prefix: string;
}

/** The rights that the documents name, for the prefix of a rig. `streams`: those that JetStream needs. */
export function rightsOf(prefix: string): { own: string[]; streams: string[] } {
  const streams = ["l", "w", "k"].flatMap((kind) => [
    `$JS.API.STREAM.*.${prefix}_1_${kind}`,
    `$JS.API.STREAM.MSG.*.${prefix}_1_${kind}`,
  ]);
  const consumers = ["l", "w"].flatMap((kind) => [
    `$JS.API.CONSUMER.*.${prefix}_1_${kind}`,
    `$JS.API.CONSUMER.*.${prefix}_1_${kind}.>`,
    `$JS.FC.${prefix}_1_${kind}.>`,
  ]);
  return { own: [`${prefix}.>`], streams: ["$JS.API.INFO", ...streams, ...consumers] };
}

/** Returns a rig with a prefix of its own. `server`: the server, if the test has started it, where a user without a name may do everything. */
export function natsRig(options: NatsOptions, server: NatsServer | undefined, prefix = `test-${nanoid(8)}`): NatsRig {
  const url = server?.url ?? (typeof options.url === "string" ? options.url : options.url[0]!);
  const hasJetStream = options.jetstream !== undefined;
  const members = (): Promise<string[]> =>
    managed(url, async ({ streams }) => {
      const { state } = await streams.info(`${prefix}_1_w`, { subjects_filter: ">" });
      // NATS 2.9 names the subject that marks the beginning of the stream, although it has no message.
      const subjects = Object.keys(state.subjects ?? {}).filter((subject) => subject !== `${prefix}.1.w.=`);
      return subjects.map((subject) => `members ${subject}`);
    });
  // Only a server that the test has started lists them. On any other one, a node that is connected is subscribed to this channel.
  const subscriptions = async (): Promise<string[]> => {
    if (server !== undefined) return server.subscriptions(prefix);
    const subject = new Names(prefix).channel("a:all");
    return (await isSubscribed(url, subject)) ? [subject] : [];
  };
  const leftovers = async (): Promise<string[]> => [
    ...(hasJetStream ? await members() : []),
    ...(await subscriptions()).map((subject) => `subscription ${subject}`),
  ];
  return {
    prefix,
    // Nodes learn of each other at each beat, every second.
    engine: () => nats({ leaseMs: 3_000, ...options, prefix }),
    ...(hasJetStream ? {} : { lacks: ["log", "roster"] as const }),
    // A server ends the subscriptions of a closed connection a little later.
    leftovers: () => eventually(leftovers, (left) => left.length === 0, 2_000).catch(leftovers),
    close: async () => {
      if (hasJetStream) await managed(url, (manager) => manager.remove(prefix));
    },
  };
}
