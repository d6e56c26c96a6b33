/** Finds which primary has which tags: the given server, that of which a Sentinel knows, or those of a cluster. */
import { EngineError } from "../fleet/engine.js";
import { connectError, createClient, loadLibrary, type Login } from "./client.js";
import type { Link } from "./link.js";
import { SLOT_OF_TAG, TAG_COUNT } from "./names.js";
import { textOf, type Address, type Config, type Target } from "./options.js";

/** The primary of each tag, by index. */
export type Layout = readonly Address[];

/** The shortest answers of `CLUSTER SLOTS`: from, to, and the primary as host, port, and more. */
type SlotRange = readonly [from: number, to: number, primary: readonly [host: string | null, port: number]];

/** Sends one command, and returns its reply. */
type Ask = (args: readonly string[]) => Promise<unknown>;

/** Finds the primaries. Asks the present links of a cluster first. Rejects with an `EngineError`. */
export async function findLayout(
  { place, login }: Config,
  links: ReadonlyMap<string, Link>,
  signal: AbortSignal,
): Promise<Layout> {
  if (place.kind === "single") return oneServer(place.address);
  if (place.kind === "sentinel")
    return oneServer(await firstAnswer(shuffled(place.sentinels), signal, (ask) => askSentinel(ask, place.name)));
  for (const link of shuffled([...links.values()])) {
    try {
      return await askCluster((args) => link.command(args), hostOf(link.address));
    } catch {
      // Another server may know.
    }
  }
  const targets = shuffled(place.roots).map((address) => ({ address, login }));
  return firstAnswer(targets, signal, (ask, address) => askCluster(ask, "host" in address ? address.host : ""));
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
