/** The options of a peer, checked once and brought into the shape that calls need. A server makes one for all its peers. */

import type { BytesCodec } from "../message/bytes.js";
import type { AnyAround, SchemaContract } from "../contract/checks.js";
import { promised } from "../base/promises.js";
import { notInUse, type Feature } from "./feature.js";
import { anyRetry, settingsOf } from "./outgoing-call.js";
import { lspCancel, type CoreDialect, type Dialect } from "./dialect.js";
import { Flow, unsentMarks } from "./flow.js";
import type { Hooks } from "./hooks.js";
import { peerLimits, type PeerLimits } from "../message/limits.js";
import {
  any,
  anyFunction,
  anyString,
  must,
  oneOf,
  optional,
  positive,
  shape,
  tableOf,
  type Checked,
} from "../message/options.js";

/** A handler as the core sees it. */
export type AnyHandler = (params: any, context: any) => unknown;

const isBytesCodec = (it: unknown): it is BytesCodec => typeof it === "function" && "read" in it;

function isFeature(it: unknown): it is Feature {
  const { name, methods, create } = Object(it) as Partial<Feature>;
  return typeof name === "string" && typeof methods === "function" && typeof create === "function";
}

const aFeature = must<Feature | BytesCodec>(
  "a feature, such as the export `streams`",
  (it) => isFeature(it) || isBytesCodec(it),
);
/** A dialect, which an application may write. */
export const aDialect = shape<Dialect>({
  cancel: shape({ method: anyString, params: anyFunction, idOf: anyFunction }),
  progress: shape({
    method: anyString,
    tokenIn: anyFunction,
    withToken: anyFunction,
    params: anyFunction,
    read: anyFunction,
  }),
});
const aContract = must<SchemaContract>("a contract", (value) => value?.fit !== undefined);

/** The methods of a peer that serves none. */
const NO_METHODS = new Map<string, AnyHandler>();
/** The hooks of a peer without a server. */
const NO_HOOKS: Hooks = {};
/** The features of a peer that has none. */
const NO_FEATURES: readonly (Feature | BytesCodec)[] = [];

/** The options of a peer. */
export const PEER_OPTIONS = {
  methods: optional((value, name) => tableOf<AnyHandler>(value, name, anyFunction), NO_METHODS),
  /** Checked by the feature of that name. */
  schemas: any,
  contract: optional(aContract),
  remote: optional(aContract),
  check: optional(oneOf("both")),
  timeoutMs: optional(positive),
  retry: anyRetry,
  fallback: optional<AnyHandler>(anyFunction),
  /** Of a list of wrappers, makes one: `next` of each runs the one after it. */
  around: optional((value, name) =>
    [value].flat().reduceRight<AnyAround | undefined>((inner, one) => {
      const outer: AnyAround = anyFunction(one, name);
      return inner === undefined ? outer : (call, next) => outer(call, () => promised(() => inner(call, next)));
    }, undefined),
  ),
  limits: (value: unknown) => peerLimits(value as Partial<PeerLimits>),
  dialect: optional(aDialect),
  compat: optional(oneOf("1.0")),
  onForeignMessage: optional<AnyHandler>(anyFunction),
  use: optional((value, name): readonly (Feature | BytesCodec)[] => {
    const use = must<unknown[]>("an array of features", Array.isArray)(value, name);
    return use.map((it, i) => aFeature(it, `${name}[${i}]`));
  }),
};

/** What a call has that neither it nor its peer sets. */
const DEFAULTS = { timeoutMs: 60_000, retry: false } as const;

/** The options of a peer after checking. Peers may share one: it never changes. */
export type Config = Readonly<ReturnType<typeof makeConfig>>;

const DEFAULT_DIALECT: CoreDialect = { name: "lsp", cancel: lspCancel };

/** Returns what the features of a list give to a peer that speaks `dialect`. */
function gather(all: readonly (Feature | BytesCodec)[], dialect: CoreDialect) {
  const use = [...new Map(all.filter(isFeature).map((feature) => [feature.name, feature])).values()];
  return {
    all,
    dialect,
    use,
    fitSchemas: use.find((feature) => feature.fitSchemas)?.fitSchemas,
    protocolMethods: new Set([dialect.cancel.method, ...use.flatMap((feature) => feature.methods(dialect))]),
    Flow: use.find((feature) => feature.Flow)?.Flow ?? Flow,
    bytes: all.find(isBytesCodec),
  };
}

/** What was gathered last. Peers with the same list share it, such as those without the option `use`. */
let gathered: ReturnType<typeof gather> | undefined;

/** Makes a config of options that are checked. Throws a `TypeError` if a schema or a contract does not fit the methods. */
export function makeConfig(checked: Checked<typeof PEER_OPTIONS>, hooks = NO_HOOKS, hasOnOpen = false) {
  const { methods, fallback, timeoutMs, retry, use: all = NO_FEATURES, dialect = DEFAULT_DIALECT } = checked;
  const features = gathered?.all === all && gathered.dialect === dialect ? gathered : (gathered = gather(all, dialect));
  const { use, fitSchemas } = features;
  const fit = (checked.contract ?? checked.remote)?.fit(checked);
  if (checked.schemas !== undefined && fitSchemas === undefined) throw notInUse("schemas");
  const { compat, onForeignMessage } = checked;
  if ((compat ?? onForeignMessage) !== undefined && use.every(({ name }) => name !== "compat"))
    throw notInUse("compat");
  // A literal, and no copy of `checked`: all configs have one hidden class. With one each, a notification to 1,000 clients of a
  // process took a third longer.
  return {
    methods,
    /** Checks params; `undefined` if none are checked. */
    checkParams: fit?.checkParams ?? fitSchemas?.(checked),
    /** Checks results, progress and stream values; `undefined` if they are not checked. */
    checks: fit?.checks,
    fallback,
    around: (fit ?? checked).around,
    /** The defaults of the options of a call. */
    settings: settingsOf({ timeoutMs: timeoutMs ?? dialect.timeoutMs, retry }, DEFAULTS),
    limits: checked.limits,
    marks: unsentMarks(checked.limits),
    dialect,
    /** Whether the application chose the dialect. The default dialect is understood, and spoken only to a reciproc peer. */
    choseDialect: checked.dialect !== undefined,
    /** Methods of cancels and of features, whose messages are taken before any handler. */
    protocolMethods: features.protocolMethods,
    use,
    /** The class of the flow of each connection. */
    Flow: features.Flow,
    /** Whether messages of JSON-RPC 1.0 are understood too. */
    compat,
    /** Takes messages of another protocol, with the peer. If it is missing, they are malformed. */
    onForeignMessage,
    /** Reads binary frames, and marks the values of streams. Without it, the other side sends no binary frames. */
    bytes: features.bytes,
    /** How the server of these peers, if there is one, observes and extends them. */
    hooks,
    /** Whether calls and notifications are queued, on each new connection, until `Connection.release`. */
    hasOnOpen,
  };
}
