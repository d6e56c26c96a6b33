/** The traffic of both sides of a world: methods that report their runs to the oracle, and calls whose outcome it checks. */
import { once } from "node:events";
import { sleep } from "../support/time.js";
import { bytes, RpcError, type AnyPeer, type Bytes, type CallOptions, type Stream } from "../../src/index.js";
import type { NotifyOptions } from "../../src/node.js";
import type { Credentials } from "./credentials.js";
import { ABORTED, FAILURE, SHOWN, TOLD, type Call, type End, type Expectation, type Oracle } from "./oracle.js";
import type { Random } from "./random.js";

/** The fields of every message: the session in which it was sent, and its name. */
interface Said {
  from: number;
  label: string;
  /** The duration, or the number of values to yield. */
  n?: number;
  padding?: string;
  of?: Stream<number>;
  /** Bytes, whose content follows from the label and from their number. */
  data?: Bytes | undefined;
  size?: number | undefined;
}

type Context = { peer: AnyPeer; signal: AbortSignal; progress: (value: unknown) => void };

const KEYS = 5;
/** How many of the other messages carry bytes. */
const SHARE_WITH_BYTES = 0.1;

/** The principal of the client. */
export const CLIENT_NAME = "ann";
/** Longest message that either side accepts. */
export const MAX_MESSAGE_BYTES = 65_536;

/** A sender: an end, and its current peer. */
export interface Speaker {
  readonly end: End;
  readonly peer: AnyPeer;
}

export class Traffic {
  /** The number of messages so far. Each member of a batch counts. */
  sent = 0;
  /** Open streams of handlers. */
  streams = 0;
  /** Active readers of streams, which can be slow. */
  readers = 0;
  readonly #hanging = new Map<End, number>();
  readonly #oracle: Oracle;
  readonly #random: Random;
  readonly #credentials: Credentials | undefined;
  #labels = 0;
  /** The views in the message that is being sent. */
  readonly #views: Uint8Array[] = [];

  constructor(oracle: Oracle, random: Random, credentials: Credentials | undefined) {
    this.#oracle = oracle;
    this.#random = random;
    this.#credentials = credentials;
  }

  /** Returns the handlers of one side. `at` returns the end that a message has reached. */
  methods(at: (context: Context) => End): Record<string, (said: Said, context: Context) => unknown> {
    const arrives = ({ from, label, data, size }: Said, context: Context): void => {
      this.#oracle.arrives(from, at(context), label);
      if (size !== undefined) this.#oracle.carries(label, data, contentOf(label, size));
    };
    const runs = (said: Said, context: Context): void => {
      arrives(said, context);
      this.#oracle.runs(said.label, at(context));
    };
    /** Returns a handler that acts, and returns the label of its call. */
    const call =
      (act: (said: Said, context: Context) => unknown) =>
      async (said: Said, context: Context): Promise<string> => {
        runs(said, context);
        await act(said, context);
        return said.label;
      };
    return {
      // Made again, it arrives in a later session than that in which it was called.
      again: (said, context) => (this.#oracle.runs(said.label, at(context)), said.label),
      echo: (said, context) => (runs(said, context), said.label),
      fetch: (said, context) => (
        runs(said, context),
        { label: said.label, data: bytes(contentOf(said.label, said.n!)) }
      ),
      slow: call(({ n }) => sleep(n!)),
      fail: call(({ label }) => {
        throw new RpcError(FAILURE, "as it was asked to", label);
      }),
      hang: call((_said, context) => this.#hang(at(context), context.signal)),
      steps: call(async ({ n }, { progress }) => {
        for (let step = 0; step < n!; step++) {
          if (step % 2 === 1) await sleep(0);
          progress(step);
        }
      }),
      take: call((said, { peer }) => this.#take(said, peer)),
      note: arrives,
      [TOLD]: ({ label }, context) => this.#oracle.arrivesFromTopic(at(context), label),
      [SHOWN]: (said, context) => {
        // A topic's message does not name its sender.
        if (said.from === undefined) this.#oracle.arrivesFromTopic(at(context), said.label);
        else arrives(said, context);
      },
      count: (said, context) => {
        this.#oracle.runs(said.label, at(context));
        return this.#counting(said.n ?? 0);
      },
    };
  }

  /** Handlers that run until their caller gives up. */
  hanging(end?: End): number {
    if (end !== undefined) return this.#hanging.get(end) ?? 0;
    return [...this.#hanging.values()].reduce((sum, count) => sum + count, 0);
  }

  /** What an end may say, and how often. */
  readonly #kinds: Readonly<Record<string, readonly [weight: number, say: (speaker: Speaker) => unknown]>> = {
    echo: [30, (speaker) => this.echo(speaker)],
    slow: [6, (speaker) => this.#call(speaker, "slow", this.#random.below(8))],
    fail: [3, (speaker) => this.#call(speaker, "fail", 0, undefined, { fails: true })],
    hang: [3, (speaker) => this.#call(speaker, "hang", 0, this.#givenUp())],
    late: [4, (speaker) => this.#call(speaker, "slow", this.#random.below(20), this.#late())],
    aborted: [3, (speaker) => this.#call(speaker, "echo", 0, this.#givenUp())],
    note: [34, (speaker) => this.note(speaker)],
    show: [12, (speaker) => this.#show(speaker)],
    // If a volatile notification is taken, it must arrive like any other.
    hint: [5, (speaker) => this.note(speaker, undefined, { volatile: true })],
    batch: [4, (speaker) => this.#batch(speaker)],
    steps: [4, (speaker) => this.steps(speaker)],
    stream: [2, (speaker) => this.#stream(speaker)],
    take: [1, (speaker) => this.#give(speaker)],
    long: [0.3, (speaker) => this.#tooLong(speaker)],
    fetch: [4, (speaker) => this.#fetch(speaker)],
    again: [10, (speaker) => this.#again(speaker)],
    renew: [2, (speaker) => this.#renew(speaker)],
    reconnect: [1, (speaker) => this.#reconnect(speaker)],
  };

  say(speaker: Speaker): void {
    const weights = Object.fromEntries(Object.entries(this.#kinds).map(([kind, [weight]]) => [kind, weight]));
    void this.#kinds[this.#random.weighted(weights)]![1](speaker);
    // The message has copied its bytes, whether it was sent, queued or refused.
    for (const view of this.#views.splice(0)) view.fill(0);
  }

  /** Sends a notification, padded to `length` if that is given. */
  note({ end, peer }: Speaker, length?: number, options: NotifyOptions<any> = {}): void {
    const said = this.#said(end, 0, length);
    this.#oracle.says(end, said.label);
    if (!peer.notify("note", said, options)) this.#oracle.refused(end, said.label);
  }

  /** Sends a notification of which only the newest of its key must arrive. */
  #show({ end, peer }: Speaker): void {
    const said = this.#said(end);
    const latest = this.key();
    this.#oracle.says(end, said.label, { key: latest });
    if (!peer.notify(SHOWN, said, { latest })) this.#oracle.refused(end, said.label);
  }

  key(): string {
    return `key ${this.#random.below(KEYS)}`;
  }

  /** Makes a call that is answered at once. Resolves when it is settled. */
  echo(speaker: Speaker): Promise<void> {
    return this.#call(speaker, "echo", 0);
  }

  /** Makes a call whose handler reports progress. Resolves when it is settled. */
  steps({ end, peer }: Speaker): Promise<void> {
    const reports = 1 + this.#random.below(4);
    const said = this.#said(end, reports);
    const call = this.#oracle.calls(end, said.label, { reports });
    const onProgress = (value: unknown): void => this.#oracle.reported(call, value);
    return this.#judge(call, peer.request("steps", said, { onProgress }));
  }

  topicLabel(): string {
    return `topic ${++this.#labels}`;
  }

  #length(): number {
    const long = this.#random.next();
    return long < 0.9 ? this.#random.below(60) : long < 0.99 ? this.#random.below(2500) : this.#random.below(12_000);
  }

  #said(end: End, n = 0, length = this.#length()): Said {
    this.sent++;
    const label = `${end.side} ${++this.#labels}`;
    const said: Said = { from: end.index, label, n, padding: "x".repeat(length) };
    if (!this.#random.chance(SHARE_WITH_BYTES)) return said;
    const view = contentOf(label, this.#length());
    this.#views.push(view);
    return { ...said, data: bytes(view), size: view.length };
  }

  async #fetch({ end, peer }: Speaker): Promise<void> {
    const size = this.#length();
    const said = this.#said(end, size);
    const call = this.#oracle.calls(end, said.label, {});
    const answer = peer.request("fetch", said).then((result) => {
      const { label, data } = result as { label: string; data: unknown };
      this.#oracle.carries(said.label, data, contentOf(label, size));
      return label;
    });
    await this.#judge(call, answer);
  }

  #call(
    { end, peer }: Speaker,
    method: string,
    n: number,
    options?: CallOptions,
    expects: Expectation = { mayGiveUp: options !== undefined },
  ): Promise<void> {
    const said = this.#said(end, n);
    const call = this.#oracle.calls(end, said.label, expects);
    return this.#judge(call, peer.request(method, said, options));
  }

  async #judge(call: Call, answer: Promise<unknown>): Promise<void> {
    try {
      this.#oracle.fulfilled(call, (await answer) === call.label);
    } catch (error) {
      this.#oracle.rejected(call, error);
    }
  }

  /** Makes a call that its caller aborts, after a delay or in the same tick. */
  #givenUp(): CallOptions {
    const controller = new AbortController();
    const abort = (): void => controller.abort(Object.assign(new Error("given up"), { code: ABORTED }));
    if (this.#random.chance(0.2)) queueMicrotask(abort);
    else setTimeout(abort, this.#random.below(25));
    return { signal: controller.signal };
  }

  #late(): CallOptions {
    return { timeoutMs: 1 + this.#random.below(20) };
  }

  /** Makes a call over the other side's limit: it is refused here, once the other side has announced its limit. */
  #tooLong(speaker: Speaker): Promise<void> | void {
    const { end, peer } = speaker;
    if (!end.isProven) return this.note(speaker);
    const said = { ...this.#said(end), padding: "x".repeat(MAX_MESSAGE_BYTES) };
    const call = this.#oracle.calls(end, said.label, { isTooLong: true });
    return this.#judge(call, peer.request("echo", said));
  }

  /** Makes a call that is made again on the next connection if it was not sent. Some of them have a short timeout. */
  #again({ end, peer }: Speaker): Promise<void> {
    const { data: _data, size: _size, ...said } = this.#said(end);
    const isLate = this.#random.chance(0.2);
    // Without bytes, which would be encoded again, and out of order, because it may be sent behind later messages.
    const call = this.#oracle.calls(end, said.label, { isRetried: true, mayGiveUp: isLate }, false);
    const options: CallOptions = { retry: "not-sent", ...(isLate && this.#late()) };
    return this.#judge(call, peer.request("again", said, options));
  }

  /** Lets the client send a fresh `auth`, if it has one. */
  #renew(speaker: Speaker): void {
    if (this.#credentials === undefined || speaker.end.side === "server") return this.note(speaker);
    this.sent++;
    void this.#credentials.renew(speaker);
  }

  /** Lets the client check its socket, or try at once. A server's peer has nothing to connect. */
  #reconnect({ end, peer }: Speaker): void {
    this.sent++;
    const isExpected = end.side === "client" && peer.state !== "closed";
    if (peer.reconnect() !== isExpected) this.#oracle.fail(`\`reconnect\` of the ${end.side} returned ${!isExpected}`);
  }

  #batch({ end, peer }: Speaker): void {
    const batch = peer.batch();
    for (let left = 1 + this.#random.below(4); left > 0; left--) {
      const said = this.#said(end);
      if (this.#random.chance(0.4)) {
        this.#oracle.says(end, said.label);
        batch.notify("note", said);
      } else {
        const call = this.#oracle.calls(end, said.label, {});
        void this.#judge(call, batch.request("echo", said));
      }
    }
    batch.send();
  }

  /** Reads a stream, completely or partly, slowly or fast. */
  async #stream({ end, peer }: Speaker): Promise<void> {
    const length = this.#random.below(200);
    const most = this.#random.chance(0.7) ? Infinity : this.#random.below(length);
    const pauseMs = this.#random.chance(0.5) ? this.#random.below(12) : undefined;
    const { data: _data, size: _size, ...said } = this.#said(end, length);
    // Called when reading begins, slightly later: without bytes, which are not copied before.
    const call = this.#oracle.calls(end, said.label, { mayGiveUp: most < length }, false);
    let read = 0;
    this.readers++;
    try {
      for await (const value of peer.stream("count", said)) {
        if (value !== read) this.#oracle.fail(`a stream yields ${value} where ${read} was due`);
        if (++read > most) break;
        if (pauseMs !== undefined && read % 8 === 0) await sleep(pauseMs);
      }
      if (read <= most && read !== length) this.#oracle.fail(`a stream of ${length} ended after ${read}`);
      this.#oracle.fulfilled(call, true);
    } catch (error) {
      this.#oracle.unread(call, "count", read, error);
    } finally {
      this.readers--;
    }
  }

  #give({ end, peer }: Speaker): Promise<void> {
    const said = this.#said(end, this.#random.below(100));
    const call = this.#oracle.calls(end, said.label, {});
    return this.#judge(call, peer.request("take", { ...said, of: peer.offer(this.#counting(said.n!)) }));
  }

  async #take({ label, n, of }: Said, peer: AnyPeer): Promise<void> {
    let read = 0;
    this.readers++;
    try {
      for await (const value of peer.iterate(of!)) {
        if (value !== read++) this.#oracle.fail(`a stream in params yields ${value} as its number ${read}`);
        if (read % 16 === 0) await sleep(1);
      }
      if (read !== n) this.#oracle.fail(`a stream in params of ${n} ended after ${read}`);
    } catch (error) {
      this.#oracle.unreadParams(label, error);
    } finally {
      this.readers--;
    }
  }

  async *#counting(length: number): AsyncGenerator<number> {
    this.streams++;
    try {
      for (let i = 0; i < length; i++) {
        if (i % 16 === 15) await sleep(0);
        yield i;
      }
    } finally {
      this.streams--;
    }
  }

  async #hang(end: End, signal: AbortSignal): Promise<void> {
    this.#hanging.set(end, this.hanging(end) + 1);
    if (!signal.aborted) await once(signal, "abort");
    this.#hanging.set(end, this.hanging(end) - 1);
  }
}

/** Returns the bytes that a message with this label carries. */
function contentOf(label: string, size: number): Uint8Array {
  const seed = [...label].reduce((sum, character) => sum * 31 + character.charCodeAt(0), 7);
  return Uint8Array.from({ length: size }, (_, i) => seed + i * 7 + 1);
}
