/** The sessions as the proxy sees them, and the rules whose breach is visible on the wire. */
import type { Line, Side } from "./proxy.js";
import type { Unit } from "./units.js";
import type { Variant } from "./variants.js";

export class WireSession {
  /** In the order in which the server issued them. */
  readonly tokens: string[] = [];
  /** The newest token that was forwarded to the client. */
  held: string | undefined;
  /** The token with which the client resumed last. */
  shown: string | undefined;
  /** The highest attempt number of the client. */
  attempt = 0;
  /** How many of the server's frames the client reported last as received. */
  received = 0;
  /** Whether a hello that accepts it, or an ack, was forwarded to the server. */
  isConfirmed = false;
}

export class WireLine {
  session: WireSession | undefined;
  /** The session that the server's hello offers. If the client offered to resume, it begins with the client's hello. */
  offered: WireSession | undefined;
  isReturning: boolean | undefined;
  /** `"asking"`: the client sent `resume`, and the reply has not been forwarded. `"answered"`: it has, and no frame followed. */
  state: "opening" | "asking" | "answered" | "open" = "opening";
  shown: string | undefined;
  /** Whether the server has sent a close or bye. */
  isClosedByServer = false;
  /** Whether the server resumed the client's session on this line. */
  isResumed = false;
  /** Whether the server answered unknown-session. */
  isRefused = false;

  /** Whether a session flows, and both ends agree on its token. */
  get isSettled(): boolean {
    return this.session?.isConfirmed === true && (!this.isResumed || this.state === "open");
  }
}

/** The subprotocol of a client that offers to resume. */
const RETURNS = "reciproc.resume";
/** How a text frame, a binary frame and a close begin. */
const TEXT = 0x81;
const BINARY = 0x82;
const CLOSE = 0x88;

export class Wiretap {
  readonly #byToken = new Map<string, WireSession>();
  readonly #breach: (what: string) => void;
  /** The session that a client entered last. */
  newest: WireSession | undefined;
  bend: Variant["bend"];
  onOpened: ((line: Line) => void) | undefined;

  constructor(breach: (what: string) => void) {
    this.#breach = breach;
  }

  /** Reads a complete head or frame before it is forwarded. */
  arrived(known: WireLine, to: Side, unit: Unit): void {
    if (to === "server") this.#fromClient(known, unit);
    else this.#fromServer(known, unit);
  }

  /** Reads it again when it has been forwarded completely. */
  forwarded(known: WireLine, to: Side, { control }: Unit): void {
    if (control === undefined) return;
    if (to === "server") {
      if (("ack" in control || "hello" in control) && known.session !== undefined) known.session.isConfirmed = true;
    } else if ("hello" in control) {
      if (known.session !== undefined) this.#holds(known.session, known.session.tokens[0]!);
    } else if ("resumed" in control) {
      const { token } = control["resumed"] as { token?: string };
      known.state = token === undefined ? "opening" : "answered";
      if (token !== undefined && known.session !== undefined) this.#holds(known.session, token);
    }
  }

  #holds(session: WireSession, token: string): void {
    session.held = token;
    this.newest = session;
  }

  #fromClient(known: WireLine, { bytes, control }: Unit): void {
    known.isReturning ??= bytes.includes(RETURNS);
    // Pings, pongs and closes belong to the WebSocket.
    const isOfSession = bytes[0] === TEXT || bytes[0] === BINARY;
    const isBye = control !== undefined && "bye" in control;
    if (known.state === "asking" && isOfSession && !isBye)
      this.#breach("a returning client sent something before `resumed`");
    // The client may have closed before it could read `resumed`.
    if (known.state === "answered" && isOfSession && !isBye) {
      if (control === undefined || !("ack" in control)) this.#breach("the first frame after `resumed` was no ack");
      known.state = "open";
    }
    if (control === undefined) return;
    if ("resume" in control)
      this.#asks(known, control["resume"] as { token: string; received: number; attempt: number });
    if ("hello" in control && known.session === undefined && known.offered !== undefined) {
      known.session = known.offered;
      this.#holds(known.session, known.session.tokens[0]!);
    }
    if ("ack" in control && known.session !== undefined) known.session.received = control["ack"] as number;
  }

  #asks(known: WireLine, { token, received, attempt }: { token: string; received: number; attempt: number }): void {
    known.state = "asking";
    const session = this.#byToken.get(token);
    if (session === undefined) return this.#breach("a client showed a token that no server gave");
    if (attempt <= session.attempt) this.#breach("the attempts of a session do not grow");
    session.attempt = attempt;
    session.received = received;
    known.session = session;
    known.shown = token;
  }

  #fromServer(known: WireLine, { bytes, control }: Unit): void {
    known.isClosedByServer ||= bytes[0] === CLOSE;
    if (control === undefined) return;
    if ("hello" in control) {
      const { session } = control["hello"] as { session?: { token: string } };
      // A hello that asks for `auth`.
      if (session === undefined) return;
      known.offered = new WireSession();
      this.given(known.offered, session.token);
      if (known.isReturning !== true) known.session = known.offered;
    } else if ("resumed" in control) {
      const { token } = control["resumed"] as { token?: string };
      known.isRefused = token === undefined;
      if (token === undefined || known.session === undefined) return void (known.session = undefined);
      known.session.shown = known.shown;
      known.isResumed = true;
      this.given(known.session, token);
    }
  }

  /** Records a token that was issued, to the client or to a thief. */
  given(session: WireSession, token: string): void {
    if (this.#byToken.has(token)) this.#breach("a token was given twice");
    this.#byToken.set(token, session);
    session.tokens.push(token);
  }
}
