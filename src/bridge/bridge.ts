/**
 * Puts a command that talks over its standard input and output (a language server, an MCP server) behind a WebSocket: one
 * message a frame, either way, as it is. Whichever of the two ends first, the other ends too.
 */
import { isUtf8 } from "node:buffer";
import type { WebSocket } from "ws";
import { expected } from "../core/errors.js";
import { type CloseInfo } from "../core/transport.js";
import { cutReason } from "../close-codes.js";
import { Child, type ChildEnd } from "./child.js";
import { FRAMINGS, type Decoder, type Framing } from "./framing.js";
import { checkOptions, type BridgeOptions, type CheckedOptions } from "./options.js";

export type { BridgeOptions } from "./options.js";

/** How a bridge came to its end. */
export interface BridgeEnd {
  /** What ended first, and had the other end. */
  readonly endedBy: "command" | "socket" | "signal";
  /** Why, in words: "the command exited with code 3". */
  readonly reason: string;
  /** Whether that calls for attention: the command failed in some way, or the client broke the WebSocket protocol or a limit. */
  readonly isFailure: boolean;
  /** How the WebSocket was closed, with the error behind it where there is one. */
  readonly close: CloseInfo;
  /** The command's exit code; null when a signal ended it, or when it did not start. */
  readonly exitCode: number | null;
  /** The signal that ended the command. */
  readonly signal: NodeJS.Signals | null;
}

/** With so much unsent on the WebSocket, the command's output is not read; it goes on at half of it. */
const HIGH_WATER_BYTES = 2 ** 20;

/**
 * Runs a command for an open WebSocket of `ws`, which it listens to at once, and resolves when both are over and no process
 * of the command's group is left. What the command has written is delivered before the WebSocket is closed: with 1000 when
 * it exited with code 0, otherwise with 1011 and the reason. A command that cannot be started is no error of this function.
 * Rejects with a `TypeError` for bad options, and for a WebSocket that is not open.
 */
export async function bridge(webSocket: WebSocket, options: BridgeOptions): Promise<BridgeEnd> {
  const checked = checkOptions(options);
  if (webSocket.readyState !== webSocket.OPEN) throw expected("webSocket.readyState", "1, open", webSocket.readyState);
  return new Bridge(webSocket, checked).untilOver();
}

/** How a WebSocket was closed; an error of `ws` or of the system has a code. */
interface SocketEnd extends CloseInfo {
  readonly error: NodeJS.ErrnoException | undefined;
}

/** Close codes with which the side that sent a message is told that it must not: not UTF-8, too big. */
const OFFENCES = new Set([1007, 1009]);

/** How a bridge is to end. The code and the reason are for the WebSocket. */
interface Verdict extends Pick<BridgeEnd, "endedBy" | "reason" | "isFailure"> {
  readonly code: number;
}

/** When the bridge itself is to end. */
const CLOSING: Verdict = { endedBy: "signal", code: 1001, reason: "the bridge is closing", isFailure: false };

class Bridge {
  readonly #webSocket: WebSocket;
  readonly #framing: Framing;
  readonly #decoder: Decoder;
  readonly #maxMessageBytes: number;
  readonly #signal: AbortSignal | undefined;
  readonly #drain: AbortSignal | undefined;
  readonly #drainMs: number;
  #drainTimer: NodeJS.Timeout | undefined;
  readonly #aborted: Promise<void>;
  #onAbort!: () => void;
  readonly #child: Child;
  readonly #closed: Promise<SocketEnd>;
  readonly #verdict: Promise<Verdict>;
  #isDecided = false;
  #decide!: (verdict: Verdict) => void;
  /** Frames that were given to the WebSocket and have not left. */
  #unsent = 0;
  #onAllSent: (() => void) | undefined;

  constructor(webSocket: WebSocket, options: CheckedOptions) {
    this.#webSocket = webSocket;
    this.#framing = FRAMINGS[options.framing];
    this.#decoder = this.#framing.decoder(options.maxMessageBytes);
    this.#maxMessageBytes = options.maxMessageBytes;
    this.#signal = options.signal;
    this.#drain = options.drain;
    this.#drainMs = options.drainMs;
    this.#aborted = new Promise((resolve) => (this.#onAbort = resolve));
    this.#verdict = new Promise((resolve) => {
      // The first counts.
      this.#decide = (verdict) => {
        this.#isDecided = true;
        resolve(verdict);
      };
    });
    this.#child = new Child({
      ...options,
      output: (chunk) => this.#toSocket(chunk),
      deaf: () => this.#commandFailed("the command closed its input"),
    });
    this.#closed = this.#listen(options.pingMs);
  }

  /** Waits for the first of the two to end, ends the other, and waits for that. */
  async untilOver(): Promise<BridgeEnd> {
    this.#signal?.addEventListener("abort", this.#onAbort);
    if (this.#signal?.aborted) this.#onAbort();
    this.#drain?.addEventListener("abort", this.#onDrain);
    if (this.#drain?.aborted) this.#onDrain();
    void this.#aborted.then(() => this.#decide(CLOSING));
    void this.#closed.then(({ code, error }) => {
      const how = error === undefined ? `was closed with ${code}` : `failed: ${error.message}`;
      const isFailure = OFFENCES.has(code) || error?.code?.startsWith("WS_ERR_") === true;
      this.#decide({ endedBy: "socket", code, reason: `the WebSocket ${how}`, isFailure });
    });
    void this.#child.ended.then((end) => this.#commandEnded(end));
    const { code, ...verdict } = await this.#verdict;
    this.#child.end();
    const [{ exitCode, signal }, close] = await Promise.all([
      this.#child.ended,
      this.#closed,
      this.#closeSocket(code, verdict.reason),
      this.#child.gone,
    ]);
    this.#signal?.removeEventListener("abort", this.#onAbort);
    this.#drain?.removeEventListener("abort", this.#onDrain);
    clearTimeout(this.#drainTimer);
    return { ...verdict, close, exitCode, signal };
  }

  /** Nobody knows what of a command's work is an answer that is owed. So it is told that nothing more comes, and may end by itself. */
  readonly #onDrain = (): void => {
    this.#drainTimer = setTimeout(this.#onAbort, this.#drainMs);
    this.#child.endInput();
  };

  #listen(pingMs: number): Promise<SocketEnd> {
    const webSocket = this.#webSocket;
    let error: NodeJS.ErrnoException | undefined;
    webSocket.on("message", (data: Buffer, isBinary: boolean) => this.#toCommand(data, isBinary));
    // Always followed by "close".
    webSocket.on("error", (cause) => (error ??= cause));
    // What waits to be sent finds out by itself.
    const ping = setInterval(() => void (webSocket.bufferedAmount === 0 && webSocket.ping()), pingMs);
    return new Promise((resolve) => {
      webSocket.once("close", (code, reason) => {
        clearInterval(ping);
        resolve({ code, reason: reason.toString(), error });
      });
    });
  }

  #toCommand(data: Buffer, isBinary: boolean): void {
    const webSocket = this.#webSocket;
    if (this.#isDecided || webSocket.readyState !== webSocket.OPEN) return;
    if (data.length > this.#maxMessageBytes) {
      return webSocket.close(1009, `a message has at most ${this.#maxMessageBytes} bytes, got ${data.length}`);
    }
    if (isBinary && !isUtf8(data)) return webSocket.close(1007, "a binary frame must be UTF-8");
    if (this.#child.write(this.#framing.encode(data))) return;
    webSocket.pause();
    this.#child.onceDrained(() => webSocket.resume());
  }

  /** Sends the messages of one chunk, or those before the place where it breaks the framing. */
  #toSocket(chunk: Buffer): void {
    if (this.#isDecided) return;
    try {
      for (const text of this.#decoder.push(chunk)) this.#send(text);
    } catch (error) {
      this.#commandFailed(`the command broke the framing: ${(error as Error).message}`);
    }
    if (this.#webSocket.bufferedAmount > HIGH_WATER_BYTES) this.#child.pause();
  }

  #send(text: Buffer): void {
    if (this.#webSocket.readyState !== this.#webSocket.OPEN) return;
    this.#unsent++;
    this.#webSocket.send(text, { binary: false }, this.#onSent);
  }

  /** Called for each frame, also when it could not leave. */
  readonly #onSent = (): void => {
    this.#unsent--;
    if (this.#unsent === 0) this.#onAllSent?.();
    if (this.#child.isPaused && this.#webSocket.bufferedAmount <= HIGH_WATER_BYTES / 2) this.#child.resume();
  };

  #commandEnded(end: ChildEnd): void {
    if (this.#isDecided) return;
    let place = "";
    try {
      for (const text of this.#decoder.end()) this.#send(text);
    } catch {
      // That it ended there says more than which rule is broken thereby.
      place = ", in the middle of a message";
    }
    if (this.#drain?.aborted) return this.#decide(CLOSING);
    const reason = `the command ${howItEnded(end)}${place}`;
    if (end.exitCode !== 0 || place !== "") this.#commandFailed(reason);
    else this.#decide({ endedBy: "command", code: 1000, reason, isFailure: false });
  }

  #commandFailed(reason: string): void {
    this.#decide({ endedBy: "command", code: 1011, reason, isFailure: true });
  }

  /** Closes behind what was sent. `ws` cuts a connection soon after a close that is not answered, so a slow reader gets the close only when it has read the rest. */
  async #closeSocket(code: number, reason: string): Promise<void> {
    // The answer to the close comes behind what was not read.
    this.#webSocket.resume();
    await Promise.race([this.#allSent(), this.#closed, this.#aborted]);
    this.#webSocket.close(code, cutReason(reason));
  }

  #allSent(): Promise<void> {
    return this.#unsent === 0 ? Promise.resolve() : new Promise((resolve) => (this.#onAllSent = resolve));
  }
}

function howItEnded({ exitCode, signal, error }: ChildEnd): string {
  if (error !== undefined) return `could not be started: ${error.code ?? error.message}`;
  return signal === null ? `exited with code ${exitCode}` : `was killed by ${signal}`;
}
