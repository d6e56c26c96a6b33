/** Rigs over NATS, and a relay that understands what its server sends. */
import { nanoid } from "nanoid";
import { afterAll, beforeAll, beforeEach, expect, vi } from "vitest";
import { nats, type NatsOptions } from "../../src/nats/index.js";
import { selfSigned } from "../support/certificates.js";
import { isSubscribed, managed, NatsServer, removeStreams, type NatsServerOptions } from "../support/nats.js";
import { Relay, type Line } from "../support/relay.js";
import type { BrokerKind, Group, PrefixedRig, Variant } from "./failures.js";
import { TestNode, use } from "./kit.js";

/** The rights that the documents name, for the prefix of a rig. `streams`: those that JetStream needs. */
export function rightsOf(prefix: string): { own: string[]; streams: string[] } {
  const streams = ["l", "k"].flatMap((kind) => [
    `$JS.API.STREAM.*.${prefix}_1_${kind}`,
    `$JS.API.STREAM.MSG.GET.${prefix}_1_${kind}`,
  ]);
  return { own: [`${prefix}.>`], streams: ["$JS.API.INFO", ...streams] };
}

/** Returns the lines of a configuration with a user `few`, who has these rights. A user without a name may do everything. */
export function linesOf(
  prefix: string,
  publish: readonly string[],
  subscribe: readonly string[] = [`${prefix}.>`],
): string[] {
  const user = { user: "few", password: "se:cret", permissions: { publish, subscribe } };
  const users = [{ user: "all", password: "all" }, user];
  return [`authorization: ${JSON.stringify({ users })}`, "no_auth_user: all"];
}

/** Returns a rig with a prefix of its own. `server`: the server, if the test has started it, where a user without a name may do everything. */
export function natsRig(options: NatsOptions, server?: NatsServer): PrefixedRig {
  const prefix = options.prefix ?? `test-${nanoid(8)}`;
  const url = server?.url ?? (typeof options.url === "string" ? options.url : options.url[0]!);
  const hasJetStream = options.jetstream !== undefined;
  // Only a server that the test has started lists them. On any other one, a node that is connected is subscribed to this channel.
  const subscriptions = async (): Promise<string[]> => {
    if (server !== undefined) return server.subscriptions(prefix);
    return (await isSubscribed(url, `${prefix}.1.a.all`)) ? [`${prefix}.1.a.all`] : [];
  };
  return {
    prefix,
    // No lease and no start ends while the machine is busy.
    engine: () => nats({ leaseMs: 60_000, startTimeoutMs: 240_000, ...options, prefix }),
    ...(hasJetStream ? {} : { lacks: ["log"] as const }),
    removeLogs: () => managed(url, ({ streams }) => streams.purge(`${prefix}_1_l`)),
    leftovers: async () => (await subscriptions()).map((subject) => `subscription ${subject}`),
    close: async () => {
      if (hasJetStream) await removeStreams(url, prefix);
    },
  };
}

const VARIANTS: Record<Variant, NatsServerOptions> = {
  plain: {},
  password: { lines: ["authorization { user: few, password: 'se:cret' }"] },
  get untrusted() {
    return { certificate: selfSigned() };
  },
  "small output": { lines: ["max_payload: 64KB", "max_pending: 128KB", 'write_deadline: "1s"'] },
};

/** One server of NATS, with JetStream. */
export const NATS: BrokerKind<NatsServer> = {
  name: "nats",
  user: "few",
  create: (variant) => NatsServer.create(VARIANTS[variant]),
  purge: ({ url }, prefix) => removeStreams(url, prefix),
  rig: (server, options) => natsRig({ ...options, jetstream: {} }, server),
  names: (server) => server.names(),
};

/** Returns three servers, each stream of which has one of them only. Nodes connect to one that has none. */
export function natsGroup(servers: readonly NatsServer[]): Group {
  const [first] = servers;
  const over = ({ url }: NatsServer, options: Partial<NatsOptions>): PrefixedRig =>
    natsRig({ url, jetstream: {}, ...options }, first);
  const holdersOf = async ({ prefix }: PrefixedRig): Promise<NatsServer[]> => {
    const leaders = await managed(first!.url, ({ streams }) =>
      Promise.all(["l"].map(async (kind) => (await streams.info(`${prefix}_1_${kind}`)).cluster!.leader!)),
    );
    return servers.filter(({ name }) => leaders.includes(name));
  };
  return {
    rig: async () => {
      const rig = over(first!, {});
      await (await TestNode.open(rig.engine())).connection.close();
      const holders = await holdersOf(rig);
      const free = servers.find((server) => !holders.includes(server));
      return over(free!, { prefix: rig.prefix });
    },
    failover: async (rig, how) => {
      const holders = await holdersOf(rig);
      for (const holder of holders) await holder[how]();
      const restore = async (): Promise<void> => {
        for (const holder of holders) await (how === "kill" ? holder.start() : holder.resume());
      };
      return how === "kill" ? { replaced: restore, restore: async () => {} } : { replaced: async () => {}, restore };
    },
  };
}

/** All limits of the engine, its checks of the streams and its pings, in milliseconds. */
const LIMIT_MS = 5_000;
/** How much time passes at most between two looks at the clock. */
const STEP_MS = 50;

/** Lets none of them end in the tests of a file, because NATS may stand still for seconds. `vi.unstubAllGlobals` restores them in a test. */
export function withoutLimits(): void {
  const set = globalThis.setTimeout;
  const now = performance.now.bind(performance);
  let limits = 0;
  beforeEach(() => {
    let [before, time] = [now(), now()];
    // A page of a log ends after 3 s with what it has.
    vi.spyOn(performance, "now").mockImplementation(() => {
      const at = now();
      time += Math.min(at - before, STEP_MS);
      before = at;
      return time;
    });
    vi.stubGlobal("setTimeout", (run: () => void, ms?: number, ...args: unknown[]) => {
      if (ms === LIMIT_MS) limits++;
      return set(run, ms === LIMIT_MS ? 2 ** 31 - 1 : ms, ...args);
    });
  });
  // Otherwise the limits have changed, and the tests depend on time.
  afterAll(() => expect(limits).toBeGreaterThan(0));
}

/** Starts a server with JetStream before the tests of a file, and ends it after them. Its limits end only where a test is about them. */
export function useNats() {
  let server: NatsServer;
  withoutLimits();
  beforeAll(async () => {
    server = await NatsServer.create();
  });
  afterAll(() => server[Symbol.asyncDispose]());
  const rigOf = (options: Partial<NatsOptions> = {}): PrefixedRig =>
    natsRig({ url: server.url, jetstream: {}, ...options }, server);
  return {
    get server() {
      return server;
    },
    rigOf,
    /** Returns a rig of the same prefix whose nodes connect by a relay, and what understands the messages in it. */
    relayed: async ({ prefix }: PrefixedRig, options?: Partial<NatsOptions>) => {
      const relay = use(await Relay.to(server.port));
      const rig = rigOf({ ...options, url: `nats://127.0.0.1:${relay.port}`, prefix });
      return { relay, wire: new NatsWire(relay), rig };
    },
  };
}

/** The messages for a node in a relay: holds one back, while later ones pass it, or changes or drops messages. */
export class NatsWire {
  /** Returns what is delivered for each message: a text of the same length, or `undefined` for none. */
  change: (text: string) => string | undefined = (text) => text;
  /** What has come of a command of the server that is not complete. */
  readonly #rest = new WeakMap<Line, Buffer>();
  readonly #holds = new Map<RegExp, (deliver: () => void) => void>();

  constructor(relay: Relay) {
    relay.pass = (bytes, to, line) => (to === "server" ? bytes : this.#take(bytes, line));
  }

  /** Holds the next message whose text matches. `taken`: resolves when it is here. `release`: delivers it. */
  hold(pattern: RegExp): { taken: Promise<void>; release(): void } {
    let release: () => void;
    const taken = new Promise<void>((resolve) =>
      this.#holds.set(pattern, (deliver) => {
        this.#holds.delete(pattern);
        release = deliver;
        resolve();
      }),
    );
    return { taken, release: () => release() };
  }

  #take(bytes: Buffer, line: Line): undefined {
    let rest = Buffer.concat([this.#rest.get(line) ?? Buffer.alloc(0), bytes]);
    for (let length; (length = lengthOf(rest)) !== undefined; rest = rest.subarray(length))
      this.#deliver(rest.subarray(0, length), line);
    this.#rest.set(line, rest);
  }

  #deliver(bytes: Buffer, line: Line): void {
    const text = this.change(bytes.toString("latin1"));
    if (text === undefined) return;
    const deliver = (): void => line.write("client", Buffer.from(text, "latin1"));
    const [, hold] = [...this.#holds].find(([pattern]) => pattern.test(text)) ?? [];
    if (hold === undefined) deliver();
    else hold(deliver);
  }
}

/** Returns how long the first command of the server is; `undefined` if it is not complete. */
function lengthOf(bytes: Buffer): number | undefined {
  const at = bytes.indexOf("\r\n");
  if (at === -1) return undefined;
  const head = bytes.toString("latin1", 0, at);
  const length = /^H?MSG /.test(head) ? at + 2 + Number(head.split(" ").at(-1)) + 2 : at + 2;
  return bytes.length < length ? undefined : length;
}
