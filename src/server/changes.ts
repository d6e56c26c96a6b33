/** Changes that are safe to repeat: each principal has a log for each method, with the response of each change by its key. */
import { isStreamed } from "../base/promises.js";
import { nanoid } from "../base/packages.js";
import { encodeResult, encodeTooLarge, exceeds, plainText, type MessageText } from "../message/codec.js";
import { ErrorCode, expected, RpcError } from "../message/errors.js";
import { member, type ResponseMessage } from "../message/message.js";
import { anyFunction } from "../message/options.js";
import { IncomingCall, isAwaited } from "../peer/incoming-call.js";
import { callOf, discard } from "../peer/incoming-calls.js";
import { EngineError } from "../topics/engine.js";
import { isKey, KEY_RULE, RESERVED } from "../topics/topic-options.js";
import type { ServerPeers } from "./peers.js";

/** The method of the entries. */
const METHOD = "change";
/** The delay before the broker is tried again and the log is read again, and for how long that is done. */
const POLL_MS = 500;
const WAIT_MS = 30_000;
/** A log of 1 MiB, the default, has room for 16 of the longest responses. */
const MAX_RESPONSE_BYTES = 64 * 1024;

type Call = NonNullable<ReturnType<typeof callOf>>;

const sleep = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, POLL_MS));

/** The changes of one server. */
export class Changes {
  readonly #all: ServerPeers;
  readonly #hash: (text: string) => string;

  constructor(all: ServerPeers, hash: (text: string) => string) {
    this.#all = all;
    this.#hash = hash;
  }

  /** Does what `Server.runOnce` promises. */
  async runOnce(context: unknown, run: () => unknown): Promise<unknown> {
    const given = callOf(context);
    if (given === undefined) throw expected("context", "the context of a handler", context);
    anyFunction(run, "run");
    const { call, connection } = given;
    const principal = connection.config.hooks.principalOf?.(connection.peer);
    if (principal === undefined) throw new TypeError("`runOnce` requires the option `principal`");
    const key = member(call.params, "key");
    // An RpcError, because the caller made the key.
    if (!isKey(key)) throw new RpcError(ErrorCode.InvalidParams, `Invalid params: expected \`key\` to be ${KEY_RULE}`);
    const topic = RESERVED + this.#hash(JSON.stringify([principal, call.method]));
    const response = await this.#responseOf(topic, key, given, run);
    if ("result" in response) return response.result;
    const { code, message, data } = response.error;
    throw new RpcError(code, message, data);
  }

  /**
   * Reads the log to its end. If the log does not have the key, appends a claim, and reads on. Runs the change if the first claim of the key
   * is its own: so all nodes agree on which call runs the change, by the order of the log. Otherwise waits for the response of the other call.
   */
  async #responseOf(topic: string, key: string, given: Call, run: () => unknown): Promise<ResponseMessage> {
    const end = performance.now() + WAIT_MS;
    const ownClaim = nanoid();
    let isClaimed = false;
    let firstClaim: unknown;
    let since: string | undefined;
    for (;;) {
      const { at, entries } = await this.#try(() => this.#all.anyNode.topics.read(topic, { since, limit: 1_000 }));
      const found = entries.map(({ params }) => params).filter((params) => params.key === key);
      const { response } = found.find((params) => params.response !== undefined) ?? {};
      if (response !== undefined) return response;
      firstClaim ??= found[0]?.claim;
      if (firstClaim === ownClaim) {
        const own = await responseTo(given, run);
        // The change was made. Its caller learns that, also if no repeat will.
        await this.#append(topic, { key, response: own }).catch((error: unknown) => this.#all.report(error));
        return own;
      }
      since = at;
      // A page may have only a part of the log.
      if (entries.length > 0) continue;
      if (firstClaim === undefined) {
        if (isClaimed) throw new EngineError(`the log has no room for "${key}"`, "not-sent");
        isClaimed = true;
        await this.#append(topic, { key, claim: ownClaim });
      } else if (isAwaited(given.call) && performance.now() < end) await sleep();
      else throw new EngineError(`no outcome of "${key}" within ${WAIT_MS} ms`, "unknown");
    }
  }

  /** Appends an entry, once: all attempts have the same `key` of a publication. */
  #append(topic: string, entry: object): Promise<string> {
    const key = nanoid();
    return this.#try(() => this.#all.anyNode.topics.publish(topic, METHOD, entry, { key }));
  }

  /** Returns what `act` returns. While it rejects with an `EngineError`, calls it again until `WAIT_MS` have passed or the server is closed. */
  async #try<T>(act: () => Promise<T>): Promise<T> {
    for (const end = performance.now() + WAIT_MS; ; await sleep()) {
      try {
        return await act();
      } catch (error) {
        if (!(error instanceof EngineError) || this.#all.hasLeft || performance.now() >= end) throw error;
      }
    }
  }
}

/** Runs a change. Returns its response, which is encoded as that of any call. */
async function responseTo({ call, connection }: Call, run: () => unknown): Promise<ResponseMessage> {
  const { id = null, method, slot } = call;
  let text: MessageText;
  try {
    const result = await run();
    if (isStreamed(result)) {
      // Stopped as the result of a notification, which has no reader.
      discard(connection.incoming, new IncomingCall(undefined, method, undefined, slot), result);
      throw new TypeError("`runOnce` cannot repeat a stream");
    }
    text = encodeResult(null, result);
  } catch (error) {
    text = connection.incoming.encodeFailure(id, method, error);
  }
  const isTooLong = exceeds(plainText(text), MAX_RESPONSE_BYTES);
  return JSON.parse(plainText(isTooLong ? encodeTooLarge(null, MAX_RESPONSE_BYTES) : text)) as ResponseMessage;
}
