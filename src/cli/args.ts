/** Parses and checks the command line: options and arguments. */
import { validateHeaderName, validateHeaderValue } from "node:http";
import { parseArgs } from "node:util";
import type { FramingName } from "../bridge/framing.js";
import { MOST_MESSAGE_BYTES } from "../bridge/options.js";
import { LONGEST_DELAY_MS } from "../base/deadlines.js";
import { isHost, isOrigin } from "../server/origin.js";

/** The command line is wrong. The process exits with code 64. */
export class UsageError extends Error {
  override readonly name = "UsageError";
  /** Lines that point at the fault. Without them, the message refers to `--help`. */
  readonly excerpt: string | undefined;

  constructor(message: string, excerpt?: string) {
    super(message);
    this.excerpt = excerpt;
  }
}

/** All options. Each command names those it takes, and all take `help` and `no-color`. `program.ts` reads `no-color`. */
const OPTIONS = {
  "allow-host": { type: "string", multiple: true },
  "allow-origin": { type: "string", multiple: true },
  answer: { type: "string", multiple: true },
  auth: { type: "string" },
  "drain-timeout": { type: "string" },
  framing: { type: "string" },
  header: { type: "string", multiple: true },
  help: { type: "boolean", short: "h" },
  host: { type: "string" },
  json: { type: "boolean" },
  "max-connections": { type: "string" },
  "max-message-bytes": { type: "string" },
  "no-color": { type: "boolean" },
  once: { type: "boolean" },
  path: { type: "string" },
  plain: { type: "boolean" },
  port: { type: "string" },
  timeout: { type: "string" },
} as const;

/** The name of an option, without its dashes. */
export type OptionName = keyof typeof OPTIONS;

/** The arguments and options that a command accepts. */
export interface Grammar {
  /** The arguments in order. Those in brackets are optional. */
  readonly arguments: readonly string[];
  readonly options: readonly OptionName[];
  /** Set if the arguments are another command line. They follow "--", in any number. */
  readonly takesCommand?: true;
}

/** A checked command line. An option that was not given is `undefined` or false. */
export interface Args {
  readonly allowedHosts: readonly string[] | undefined;
  readonly allowedOrigins: readonly string[] | "*" | undefined;
  /** What `--answer` gives for each method: JSON, or "@" and the name of a file. */
  readonly answers: ReadonlyMap<string, string>;
  /** JSON, or "@" and the name of a file. */
  readonly auth: string | undefined;
  readonly arguments: readonly string[];
  readonly drainTimeoutMs: number | undefined;
  readonly framing: FramingName | undefined;
  readonly headers: Readonly<Record<string, readonly string[]>>;
  readonly help: boolean;
  readonly host: string | undefined;
  readonly json: boolean;
  readonly maxConnections: number | undefined;
  readonly maxMessageBytes: number | undefined;
  readonly once: boolean;
  readonly path: string | undefined;
  readonly plain: boolean;
  readonly port: number | undefined;
  readonly timeoutMs: number | undefined;
}

/** Reads the command line of one command. Throws a `UsageError`. */
export function readArgs(grammar: Grammar, argv: readonly string[]): Args {
  const { values, positionals } = parse(grammar, argv);
  const help = values.help === true;
  if (!help) checkCount(grammar, positionals);
  return {
    allowedHosts: values["allow-host"]?.map(readAllowedHost),
    allowedOrigins: values["allow-origin"] === undefined ? undefined : readAllowedOrigins(values["allow-origin"]),
    answers: new Map(values.answer?.map(readAnswer)),
    auth: values.auth,
    arguments: positionals,
    drainTimeoutMs: readTimeout("--drain-timeout", values["drain-timeout"]),
    framing: values.framing === undefined ? undefined : readFraming(values.framing),
    headers: readHeaders(values.header ?? []),
    help,
    host: values.host === undefined ? undefined : readHost(values.host),
    json: values.json === true,
    maxConnections: readCount("--max-connections", values["max-connections"]),
    maxMessageBytes: readCount("--max-message-bytes", values["max-message-bytes"], MOST_MESSAGE_BYTES),
    once: values.once === true,
    path: values.path === undefined ? undefined : readPath(values.path),
    plain: values.plain === true,
    port: values.port === undefined ? undefined : readPort(values.port),
    timeoutMs: readTimeout("--timeout", values.timeout),
  };
}

interface Parsed {
  values: ReturnType<typeof parseArgs<{ options: typeof OPTIONS; allowPositionals: true }>>["values"];
  positionals: readonly string[];
}

function parse({ options, takesCommand }: Grammar, argv: readonly string[]): Parsed {
  const taken = new Set<string>([...options, "help", "no-color"]);
  const config = Object.fromEntries(Object.entries(OPTIONS).filter(([name]) => taken.has(name)));
  const [own, command] = takesCommand ? splitAtDashes(argv) : [argv, []];
  let parsed: Parsed;
  try {
    parsed = parseArgs({ args: [...own], options: config as typeof OPTIONS, allowPositionals: true });
  } catch (error) {
    throw new UsageError(explain((error as Error).message));
  }
  const { values, positionals } = parsed;
  if (takesCommand && positionals.length > 0)
    throw new UsageError(`COMMAND must follow "--", got "${positionals[0]}" before it`);
  return { values, positionals: [...positionals, ...command] };
}

/** Splits at "--": `reciproc` takes the options before it, and COMMAND those after it. */
function splitAtDashes(argv: readonly string[]): [own: readonly string[], command: readonly string[]] {
  const at = argv.indexOf("--");
  if (at >= 0) return [argv.slice(0, at), argv.slice(at + 1)];
  if (argv.includes("--help") || argv.includes("-h")) return [argv, []];
  throw new UsageError('"--" is missing; COMMAND and its arguments must follow it');
}

/** Returns the fault that Node found. Node writes several sentences, and the first names the fault. */
function explain(message: string): string {
  const [first] = message.split(/\.\s|\.?\n/, 1) as [string];
  const valueless = /(--[\w-]+)(?: <value>)?' argument (?:missing|is ambiguous)/.exec(first);
  if (valueless !== null) return `${valueless[1]!} needs a value`;
  return first.charAt(0).toLowerCase() + first.slice(1).replaceAll("'", '"');
}

function checkCount(grammar: Grammar, given: readonly string[]): void {
  const missing = grammar.arguments[given.length];
  if (missing !== undefined && !missing.startsWith("[")) throw new UsageError(`${missing} is missing`);
  const extra = given[grammar.arguments.length];
  if (extra === undefined || grammar.takesCommand) return;
  const quotes = grammar.arguments.at(-1) === "[PARAMS]" ? "; PARAMS is one argument, so put quotes around it" : "";
  throw new UsageError(`one argument too many: "${extra}"${quotes}`);
}

/** Parses headers. Names are case-insensitive and may repeat. The result has no prototype, because `__proto__` is a valid name. */
function readHeaders(lines: readonly string[]): Record<string, string[]> {
  const headers = Object.create(null) as Record<string, string[]>;
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, Math.max(colon, 0)).trim().toLowerCase();
    const value = line.slice(colon + 1).trim();
    // The value may be a secret, so the error does not repeat it.
    if (colon < 0 || !isHeader(name, value)) throw new UsageError('--header takes "Name: value"');
    (headers[name] ??= []).push(value);
  }
  return headers;
}

function isHeader(name: string, value: string): boolean {
  try {
    validateHeaderName(name);
    validateHeaderValue(name, value);
    return true;
  } catch {
    // Node's validators return nothing, and throw for an invalid header.
    return false;
  }
}

function readAnswer(text: string): [method: string, answer: string] {
  const equals = text.indexOf("=");
  if (equals > 0) return [text.slice(0, equals), text.slice(equals + 1)];
  throw new UsageError(`--answer takes METHOD=JSON or METHOD=@FILE, got "${text}"`);
}

function readFraming(text: string): FramingName {
  if (text === "lsp" || text === "lines") return text;
  throw new UsageError(`--framing takes lsp or lines, got "${text}"`);
}

function readCount(option: string, text: string | undefined, most = Infinity): number | undefined {
  if (text === undefined) return undefined;
  const count = Number(text);
  if (/^\d+$/.test(text) && count >= 1 && count <= most && Number.isSafeInteger(count)) return count;
  const range = most === Infinity ? "1 up" : `1 to ${most}`;
  throw new UsageError(`${option} takes a whole number from ${range}, got "${text}"`);
}

function readHost(text: string): string {
  if (text !== "") return text;
  throw new UsageError("--host takes a name or an address");
}

/** Checks a name as a `Host` header has it. A pattern would never match. */
function readAllowedHost(text: string): string {
  if (isHost(text) && !text.includes("*")) return text;
  throw new UsageError(`--allow-host takes a name such as example.org, got "${text}"`);
}

function readAllowedOrigins(texts: readonly string[]): readonly string[] | "*" {
  const wrong = texts.find((text) => text !== "*" && !isOrigin(text));
  if (wrong !== undefined)
    throw new UsageError(`--allow-origin takes an origin such as https://example.org, or "*", got "${wrong}"`);
  return texts.includes("*") ? "*" : texts;
}

function readPath(text: string): string {
  if (/^\/[^?#\s]*$/.test(text)) return text;
  throw new UsageError(`--path takes a path such as /rpc, got "${text}"`);
}

function readPort(text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= 65_535) return port;
  throw new UsageError(`--port takes a whole number from 0 to 65535, got "${text}"`);
}

function readTimeout(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const timeoutMs = Number(text);
  if (/^\d+$/.test(text) && timeoutMs >= 1 && timeoutMs <= LONGEST_DELAY_MS) return timeoutMs;
  throw new UsageError(`${option} takes milliseconds, a whole number from 1 to ${LONGEST_DELAY_MS}, got "${text}"`);
}

/** Parses URL. The default scheme is `ws://`. Throws a `UsageError`. */
export function readUrl(text: string): URL {
  const full = /^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `ws://${text}`;
  const url = URL.canParse(full) ? new URL(full) : undefined;
  // The URL standard reads a lone number as an address: "3000" would be 0.0.11.184.
  if (url !== undefined && /^(ws|http)s?:$/.test(url.protocol) && !/^\d+$/.test(text)) return url;
  throw new UsageError(`URL is an address such as ws://localhost:3000/rpc, got "${text}"`);
}

/** Returns the host and port of a URL, and nothing that may be secret. */
export function hostAndPort({ protocol, hostname, port }: URL): string {
  return `${hostname}:${port || (/^(wss|https):$/.test(protocol) ? 443 : 80)}`;
}
