/**
 * Puts a command that communicates over stdio (a language server, an MCP server) behind a WebSocket. Each frame carries one
 * unchanged message, in both directions. When the command or the WebSocket ends, the bridge ends the other.
 */
import { isUtf8 } from "node:buffer";
import type { WebSocket } from "ws";
import { expected } from "../message/errors.js";
import { onAbort } from "../base/tell.js";
import { type CloseInfo } from "../message/transport.js";
import { cutReason } from "../message/close-codes.js";
import { Child, type ChildEnd } from "./child.js";
import { FRAMINGS, type Decoder, type Framing } from "./framing.js";
import { checkBridgeOptions, type BridgeOptions, type CheckedOptions } from "./options.js";

export type { BridgeOptions } from "./options.js";

/** How a bridge ended. */
export interface BridgeEnd {
  /** What ended first. */
  readonly endedBy: "command" | "socket" | "signal";
  /** The reason in words, such as "the command exited with code 3". */
  readonly reason: string;
  /** Whether the command failed, or the client broke the WebSocket protocol or a limit. */
  readonly isFailure: boolean;
  /** How the WebSocket was closed, with its error if there was one. */
  readonly close: CloseInfo;
  /** The command's exit code; null if a signal ended it, or if it did not start. */
  readonly exitCode: number | null;
  /** The signal that ended the command. */
  readonly signal: NodeJS.Signals | null;
}

/** High-water mark: above it, the bridge does not read the command's output. The low-water mark is half of it. */
const HIGH_WATER_BYTES = 2 ** 20;

/**
 * Runs a command for an open WebSocket of `ws`, and listens to the WebSocket at once. Resolves when both have ended and no
 * process of the command's group is left. Delivers the command's output before it closes the WebSocket: with 1000 after exit
 * code 0, otherwise with 1011 and the reason. If the command cannot be started, resolves with that reason.
 * Rejects with a `TypeError` for bad options, and for a WebSocket that is not open.
 */
export async function bridge(webSocket: WebSocket, options: BridgeOptions): Promise<BridgeEnd> {
  const checked = checkBridgeOptions(options);
  if (webSocket.readyState !== webSocket.OPEN) throw expected("webSocket.readyState", "1, open", webSocket.readyState);
  return new Bridge(webSocket, checked).run();
}

/** How a WebSocket was closed. An error of `ws` or of the system has a code. */
interface SocketEnd extends CloseInfo {
  readonly error: NodeJS.ErrnoException | undefined;
}

/** Close codes of forbidden messages: not UTF-8, too big. */
const OFFENCES = new Set([1007, 1009]);

/** How a bridge has to end. The code and the reason are for the WebSocket. */
interface Verdict extends Pick<BridgeEnd, "endedBy" | "reason" | "isFailure"> {
  readonly code: number;
}

/** The verdict if the application ends the bridge. */
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
      // Only the first verdict counts.
      this.#decide = (verdict) => {
        this.#isDecided = true;
        resolve(verdict);
      };
    });
    this.#child = new Child({
      ...options,
      output: (chunk) => this.#toSocket(chunk),
      inputClosed: () => this.#commandFailed("the command closed its input"),
    });
    this.#closed = this.#listen(options.pingMs);
  }

  /** Waits until the command or the WebSocket ends, ends the other, and waits for its end. */
  async run(): Promise<BridgeEnd> {
    const ignore = this.#signal && onAbort(this.#signal, this.#onAbort);
    if (this.#signal?.aborted) this.#onAbort();
    const ignoreDrain = this.#drain && onAbort(this.#drain, this.#onDrain);
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
    ignore?.();
    ignoreDrain?.();
    clearTimeout(this.#drainTimer);
    return { ...verdict, close, exitCode, signal };
  }

  /** Ends the command's standard input, so that it may finish and exit. A bridge cannot know which responses are pending. */
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
    // Unsent data detects a lost connection without a ping.
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

  /** Called for each frame, also if it could not be sent. */
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
      // The end inside a message is the cause, so the broken rule is not reported.
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

  /**
   * Closes the WebSocket after all frames are sent. `ws` terminates a connection soon after an unanswered close, so a slow
   * reader must get the close only after it has read the rest.
   */
  async #closeSocket(code: number, reason: string): Promise<void> {
    // The answer to the close follows unread messages, so a paused WebSocket must read again.
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
