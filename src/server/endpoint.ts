/** A server's end of `reciproc.v1`: the sockets and the hello of its client, and messages that go to many clients. */
import { sentForm } from "../core/codec.js";
import { member } from "../core/message.js";
import type { EncodedMessage } from "../core/transport.js";
import { Endpoint } from "../session/endpoint.js";
import { limitsOf, says, type ResumeFrame } from "../session/frames.js";
import type { Session } from "../session/session.js";
import type { Wire } from "../session/state.js";

/** An end whose client connects to it. */
export class ServerEndpoint extends Endpoint {
  /** Takes the socket of a new client. Its hello is sent, with the offer of a session if `session` is given. */
  accept(wire: Wire, session: Session | undefined): void {
    this.wire = wire;
    this.state = { kind: "greeting", session };
  }

  /**
   * Continues the session on another socket. The caller has checked `resume.received` by `session.covers`. `token`: the next token of
   * the session.
   */
  resume(wire: Wire, { received, limits, bytes }: ResumeFrame, token: string): void {
    // Rule 2: the caller has detached the old socket before the count of received frames is read here.
    const session = this.state.session!;
    this.wire = wire;
    // Rule 9: the hello that confirmed the session may never have come.
    session.theirs ??= limits;
    this.takesBytes = this.limits.bytes === true && bytes === true;
    this.write([JSON.stringify({ resumed: { token, received: session.ack() } })]);
    this.goLive(session, received);
  }

  protected override receiveClientHello(hello: unknown): void {
    const { session } = this.state;
    this.takesBytes = this.limits.bytes === true && says(hello, "bytes");
    if (session !== undefined && says(hello, "session")) {
      session.theirs = limitsOf(member(hello, "limits"));
      if (session.theirs === undefined) return this.fail("`limits` of a hello break their rules");
      this.hooks.confirmed?.();
      return this.goLive(session);
    }
    if (session !== undefined) {
      this.writeLog(session, Infinity);
      this.hooks.discarded("the client takes no session");
    }
    this.state = { kind: "packed", session: undefined };
    this.flow();
  }

  protected override receiveOther(frame: object): void {
    // Rule 1: only a client that offered it resumes. Rule 3: a socket takes one `resume`.
    if ("resume" in frame) this.fail("`resume` on a socket that did not say it would");
    else super.receiveOther(frame);
  }

  /**
   * As `send`, for a message to many peers. It is written in the frame that is encoded for all of them, unless others are collected in
   * this tick.
   */
  sendEncoded(message: EncodedMessage): boolean | "full" {
    const text = sentForm(message.source, this.takesBytes, message);
    const { session } = this.state;
    if (session?.accepts(text) === false) return false;
    this.makeRoom(text);
    if (!this.canSend || this.length > 0) return this.send(text);
    const wire = this.wire!;
    const frame = typeof text === "string" ? message.pack : message.binary;
    wire.send(frame);
    if (session !== undefined) {
      session.push(frame.content);
      session.next++;
      this.checkRoom(session, wire);
    }
    return true;
  }
}
