/** Rigs of the suite over NATS. */
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { nanoid } from "nanoid";
import { nats, type NatsOptions } from "../../src/nats/index.js";
import type { NatsServer } from "../support/nats.js";
import { eventually } from "../support/redis.js";
import type { EngineRig } from "./rig.js";

/** Returns a rig with a prefix of its own. `server`: the server, if the test has started it. */
export function natsRig(options: NatsOptions, server: NatsServer | undefined): EngineRig & { readonly prefix: string } {
  const prefix = `test-${nanoid(8)}`;
  const url = typeof options.url === "string" ? options.url : options.url[0]!;
  const hasJetStream = options.jetstream !== undefined;
  const manage = async <T>(run: (manager: Awaited<ReturnType<typeof jetstreamManager>>) => Promise<T>): Promise<T> => {
    const client = await connect({ servers: url });
    try {
      return await run(await jetstreamManager(client));
    } finally {
      await client.close();
    }
  };
  const members = (): Promise<string[]> =>
    manage(async ({ streams }) => {
      const { state } = await streams.info(`${prefix}_1_w`, { subjects_filter: ">" });
      return Object.keys(state.subjects ?? {}).map((subject) => `members ${subject}`);
    });
  const leftovers = async (): Promise<string[]> => [
    ...(hasJetStream ? await members() : []),
    ...((await server?.subscriptions(prefix)) ?? []).map((subject) => `subscription ${subject}`),
  ];
  return {
    prefix,
    // Nodes learn of each other at each beat, every second.
    engine: () => nats({ leaseMs: 3_000, ...options, prefix }),
    ...(hasJetStream ? {} : { lacks: ["log", "roster"] as const }),
    // A server ends the subscriptions of a closed connection a little later.
    leftovers: () => eventually(leftovers, (left) => left.length === 0, 2_000).catch(leftovers),
    close: async () => {
      if (hasJetStream)
        await manage(async ({ streams }) => {
          // A rig that no node has used has no streams.
          for await (const name of streams.names(`${prefix}.>`)) await streams.delete(name);
        });
    },
  };
}
