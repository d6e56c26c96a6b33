/** Finds which primary has which tags: the given server, that of which a Sentinel knows, or those of a cluster. */
import { EngineError } from "../topics/engine.js";
import { onAbort } from "../base/tell.js";
import { shuffled } from "../fleet/reconnecting.js";
import { connectError, createClient, FORBIDDEN, loadLibrary, type Ask } from "./client.js";
import { SLOT_OF_TAG, TAG_COUNT } from "./names.js";
import { textOf, type Address, type Config, type Login, type Target } from "./options.js";

/** How long a primary must be silent until it is replaced. */
export interface Silence {
  readonly ms: number;
  /** The setting that the user may not read, so that its default is assumed. `undefined` if it was read. */
  readonly unread?: string | undefined;
}

/** Which primaries there are. */
export interface Layout {
  /** The primary of each tag, by index. */
  readonly addresses: readonly Address[];
  /** Of a primary behind Sentinels. */
  readonly silence?: Silence | undefined;
}

/** The shortest answers of `CLUSTER SLOTS`: from, to, and the primary as host, port, and more. */
type SlotRange = readonly [from: number, to: number, primary: readonly [host: string | null, port: number]];

/** What one Sentinel knows. A view with a greater epoch is newer. */
interface View {
  readonly address: Address;
  readonly epoch: number;
  readonly silence: Silence;
}

/** The defaults of Redis. */
const DEFAULT_MS = { "cluster-node-timeout": 15_000, "down-after-milliseconds": 30_000 };
/** How long one server may take to answer: one that is stopped accepts connections. */
const ANSWER_MS = 5_000;

/** A server that can be asked. `address`: as errors name it. */
export interface Asked {
  readonly address: string;
  readonly command: Ask;
}

/** Finds the primaries. Asks one of the given servers of a cluster first. Rejects with an `EngineError`. */
export async function findLayout(
  { place, login }: Config,
  connected: readonly Asked[],
  signal: AbortSignal,
): Promise<Layout> {
  if (place.kind === "single") return { addresses: oneServer(place.address) };
  if (place.kind === "sentinel") return askSentinels(place.sentinels, place.name, signal);
  const [first] = shuffled(connected);
  const known = first && (await askConnected(first).catch(() => undefined));
  if (known !== undefined) return known;
  const targets = shuffled(place.roots).map((address) => ({ address, login }));
  return firstAnswer(targets, signal, (ask, address) => askCluster(ask, "host" in address ? address.host : ""));
}

/**
 * Finds the primaries as others see them. `others`: the other servers of a cluster, each of which is asked. Rejects with an `EngineError` if
 * no other server answers.
 */
export async function findOpinions(config: Config, others: readonly Asked[], signal: AbortSignal): Promise<Layout[]> {
  if (config.place.kind !== "cluster") return [await findLayout(config, [], signal)];
  const results = await Promise.allSettled(others.map(askConnected));
  const opinions = results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  if (opinions.length === 0) throw new EngineError("no other server of the cluster answers", "not-sent");
  return opinions;
}

function askConnected(server: Asked): Promise<Layout> {
  return askCluster((args) => server.command(args), hostOf(server.address));
}

/** Reads after which silence a server of a cluster is replaced. `ask` asks that server. */
export async function readNodeTimeout(ask: Ask): Promise<Silence> {
  return readSilence(() => ask(["CONFIG", "GET", "cluster-node-timeout"]), "cluster-node-timeout");
}

/** Reads a setting. Assumes its default only if the user may not read it. */
async function readSilence(read: () => Promise<unknown>, name: keyof typeof DEFAULT_MS): Promise<Silence> {
  try {
    const ms = Number(((await read()) as Record<string, unknown>)[name]);
    if (ms > 0) return { ms };
  } catch (error) {
    if (!FORBIDDEN.test((error as Error).message)) throw error;
  }
  return { ms: DEFAULT_MS[name], unread: name };
}

function oneServer(address: Address): Address[] {
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
  const ignore = onAbort(signal, destroy);
  const timer = setTimeout(destroy, ANSWER_MS);
  try {
    await client.connect();
    return await run((args) => client.sendCommand(args));
  } finally {
    clearTimeout(timer);
    ignore();
    destroy();
  }
}

/**
 * Asks all Sentinels. When most of them have answered, returns the newest view: a Sentinel may have been stopped together with the
 * primary on its machine. Rejects if none answers.
 */
async function askSentinels(sentinels: readonly Target[], name: string, signal: AbortSignal): Promise<Layout> {
  const views: View[] = [];
  let failure = new EngineError("no Sentinel was asked", "not-sent");
  await new Promise<void>((resolve) => {
    let settled = 0;
    for (const { address, login } of sentinels)
      void withClient(address, login, signal, (ask) => viewOf(ask, name))
        .then(
          (view) => views.push(view),
          (error: unknown) => (failure = connectError(textOf(address), error)),
        )
        .then(() => {
          if (++settled === sentinels.length || views.length > sentinels.length / 2) resolve();
        });
  });
  if (views.length === 0) throw failure;
  const newest = views.reduce((a, b) => (b.epoch > a.epoch ? b : a));
  const soonest = views.reduce((a, b) => (b.silence.ms < a.silence.ms ? b : a));
  return { addresses: oneServer(newest.address), silence: soonest.silence };
}

async function viewOf(ask: Ask, name: string): Promise<View> {
  const reply = await ask(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", name]);
  if (!Array.isArray(reply)) throw new EngineError(`the Sentinel knows no primary called ${name}`, "not-sent");
  const [host, port] = reply as unknown[];
  let epoch = 0;
  const silence = await readSilence(async () => {
    const fields = (await ask(["SENTINEL", "MASTER", name])) as Record<string, unknown>;
    epoch = Number(fields["config-epoch"]);
    return fields;
  }, "down-after-milliseconds");
  return { address: { host: String(host), port: Number(port) }, epoch, silence };
}

async function askCluster(ask: Ask, askedHost: string): Promise<Layout> {
  const [slots, info] = await Promise.all([ask(["CLUSTER", "SLOTS"]), ask(["CLUSTER", "INFO"])]);
  if (!/^cluster_state:ok\r?$/m.test(String(info)))
    throw new EngineError("the state of the cluster is not ok", "not-sent");
  const ranges = slots as SlotRange[];
  const addresses = SLOT_OF_TAG.map((slot) => {
    const range = ranges.find(([from, to]) => slot >= from && slot <= to);
    if (range === undefined) throw new EngineError(`no server of the cluster has slot ${slot}`, "not-sent");
    const [host, port] = range[2];
    // A server that does not know its own address leaves it out. It is the one that was asked.
    return { host: host === null || host === "" || host === "?" ? askedHost : host, port };
  });
  return { addresses };
}

function hostOf(address: string): string {
  return address.slice(0, address.lastIndexOf(":")).replace(/^\[(.*)\]$/, "$1");
}
