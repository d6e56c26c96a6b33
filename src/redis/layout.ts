/** Finds which primary has which tags: the given server, that of which a Sentinel knows, or those of a cluster. */
import { EngineError } from "../fleet/engine.js";
import { connectError, createClient, loadLibrary, type Ask, type Login } from "./client.js";
import type { Link } from "./link.js";
import { SLOT_OF_TAG, TAG_COUNT } from "./names.js";
import { textOf, type Address, type Config, type Target } from "./options.js";

/** The primary of each tag, by index. */
export type Layout = readonly Address[];

/** The shortest answers of `CLUSTER SLOTS`: from, to, and the primary as host, port, and more. */
type SlotRange = readonly [from: number, to: number, primary: readonly [host: string | null, port: number]];

/** The defaults of Redis. */
const NODE_TIMEOUT_MS = 15_000;
const DOWN_AFTER_MS = 30_000;

/** Finds the primaries. Asks the given links of a cluster first. Rejects with an `EngineError`. */
export async function findLayout(
  { place, login }: Config,
  links: readonly Link[],
  signal: AbortSignal,
): Promise<Layout> {
  if (place.kind === "single") return oneServer(place.address);
  if (place.kind === "sentinel")
    return oneServer(await firstAnswer(shuffled(place.sentinels), signal, (ask) => askSentinel(ask, place.name)));
  const known = await askLinks(links).catch(() => undefined);
  if (known !== undefined) return known;
  const targets = shuffled(place.roots).map((address) => ({ address, login }));
  return firstAnswer(targets, signal, (ask, address) => askCluster(ask, "host" in address ? address.host : ""));
}

/**
 * Finds the primaries without asking a server about itself. `others`: the links to the other servers of a cluster. Rejects with an
 * `EngineError`.
 */
export async function confirmLayout(config: Config, others: readonly Link[], signal: AbortSignal): Promise<Layout> {
  return config.place.kind === "cluster" ? askLinks(others) : findLayout(config, [], signal);
}

async function askLinks(links: readonly Link[]): Promise<Layout> {
  let failure: unknown = new EngineError("no other server of the cluster is connected", "not-sent");
  for (const link of shuffled(links)) {
    try {
      return await askCluster((args) => link.command(args), hostOf(link.address));
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

/**
 * Finds how long a primary must be silent until it is replaced: `cluster-node-timeout` of a cluster, or `down-after-milliseconds` of a
 * Sentinel. Uses the default if the user may not ask. `undefined` for a single server. `ask` asks the primary.
 */
export async function findSilenceMs({ place }: Config, ask: Ask, signal: AbortSignal): Promise<number | undefined> {
  if (place.kind === "single") return undefined;
  if (place.kind === "cluster") {
    const reply = ask(["CONFIG", "GET", "cluster-node-timeout"]);
    return reply.then((fields) => msIn(fields, "cluster-node-timeout")).catch(() => NODE_TIMEOUT_MS);
  }
  const reply = firstAnswer(shuffled(place.sentinels), signal, (sentinel) =>
    sentinel(["SENTINEL", "MASTER", place.name]),
  );
  return reply.then((fields) => msIn(fields, "down-after-milliseconds")).catch(() => DOWN_AFTER_MS);
}

/** Returns a time from a reply of names and values. Throws if it has none. */
function msIn(reply: unknown, name: string): number {
  const ms = Number((reply as Record<string, unknown>)[name]);
  if (!(ms > 0)) throw new EngineError(`no ${name}`, "not-sent");
  return ms;
}

function oneServer(address: Address): Layout {
  return Array.from({ length: TAG_COUNT }, () => address);
}

/** Asks one server after the other. Rejects with the error of the last one. */
async function firstAnswer<T>(
  targets: readonly Target[],
  signal: AbortSignal,
  question: (ask: Ask, address: Address) => Promise<T>,
): Promise<T> {
  let failure = new EngineError("no server was asked", "not-sent");
  for (const { address, login } of targets) {
    if (signal.aborted) break;
    try {
      return await withClient(address, login, signal, (ask) => question(ask, address));
    } catch (error) {
      failure = connectError(textOf(address), error);
    }
  }
  throw failure;
}

async function withClient<T>(
  address: Address,
  login: Login,
  signal: AbortSignal,
  run: (ask: Ask) => Promise<T>,
): Promise<T> {
  const attempt = new AbortController();
  const client = createClient(await loadLibrary(), address, login, "reciproc-find", attempt.signal);
  // Its commands reject too.
  client.on("error", () => {});
  const destroy = (): void => {
    attempt.abort();
    client.destroy();
  };
  signal.addEventListener("abort", destroy);
  try {
    await client.connect();
    return await run((args) => client.sendCommand(args));
  } finally {
    signal.removeEventListener("abort", destroy);
    destroy();
  }
}

async function askSentinel(ask: Ask, name: string): Promise<Address> {
  const reply = await ask(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]);
  if (!Array.isArray(reply)) throw new EngineError(`the Sentinel knows no primary called ${name}`, "not-sent");
  const [host, port] = reply as unknown[];
  return { host: String(host), port: Number(port) };
}

async function askCluster(ask: Ask, askedHost: string): Promise<Layout> {
  const [slots, info] = await Promise.all([ask(["CLUSTER", "SLOTS"]), ask(["CLUSTER", "INFO"])]);
  if (!/^cluster_state:ok\r?$/m.test(String(info)))
    throw new EngineError("the state of the cluster is not ok", "not-sent");
  const ranges = slots as SlotRange[];
  return SLOT_OF_TAG.map((slot) => {
    const range = ranges.find(([from, to]) => slot >= from && slot <= to);
    if (range === undefined) throw new EngineError(`no server of the cluster has slot ${slot}`, "not-sent");
    const [host, port] = range[2];
    // A server that does not know its own address leaves it out. It is the one that was asked.
    return { host: host === null || host === "" || host === "?" ? askedHost : host, port };
  });
}

function hostOf(address: string): string {
  return address.slice(0, address.lastIndexOf(":")).replace(/^\[(.*)\]$/, "$1");
}

function shuffled<T>(values: readonly T[]): T[] {
  const rest = [...values];
  return values.map(() => rest.splice(Math.floor(Math.random() * rest.length), 1)[0]!);
}
