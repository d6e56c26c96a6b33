// Imports `core/send-queue`, `core/transport`, `link/socket`, `server/endpoint`, `server/tokens`: a fault is a variant of a class of these.
/**
 * Imports the inside: a fault is a variant of a class, which the oracle takes in its place.
 *
 * Ends that break one rule of the session each. A fault changes what an end reads, what it writes, or what it is limited by, and
 * nothing of the source: the oracle must notice each of them.
 */
import { endsSession } from "../../src/close-codes.js";
import { LatestHandle } from "../../src/core/send-queue.js";
import type { SendHandle } from "../../src/core/transport.js";
import { frameContent } from "../../src/link/socket.js";
import type { ResumeFrame } from "../../src/session/frames.js";
import { ServerEndpoint } from "../../src/server/endpoint.js";
import type { EndpointLimits, Wire } from "../../src/session/state.js";
import { TokenRegistry, type TokenEntry, type TokenOptions } from "../../src/server/tokens.js";
import { ClientEnd, PARTS, ServerEnd, type Line, type Parts, type Side } from "./oracle.js";

/** A wire whose end changes what it writes. */
function rewriting(wire: Wire, change: (frame: string) => readonly string[]): Wire {
  return {
    get open() {
      return wire.open;
    },
    get unsentBytes() {
      return wire.unsentBytes;
    },
    send: (frame) => change(frameContent(frame) as string).every((one) => wire.send(one)),
  };
}

/** Parts whose endpoint for one side, or for both, is of another class. */
function withEndpoint(
  side: Side | "both",
  Faulty: typeof ServerEndpoint,
  change?: (of: EndpointLimits) => EndpointLimits,
): Parts {
  return {
    ...PARTS,
    makeEndpoint: (of, limits, hooks) => {
      const Class = side === "both" || side === of ? Faulty : ServerEndpoint;
      return new Class(change === undefined ? limits : change(limits), true, hooks);
    },
  };
}

/** Parts of which one end changes the frames that it writes. */
function withWrites(
  side: Side | "both",
  change: (frame: string, endpoint: ServerEndpoint) => readonly string[],
): Parts {
  class Faulty extends ServerEndpoint {
    override attach(wire: Wire, isAgreed: boolean, hello: unknown, isAwaited: boolean): void {
      super.attach(
        rewriting(wire, (frame) => change(frame, this)),
        isAgreed,
        hello,
        isAwaited,
      );
    }
    override accept(wire: Wire, session: Parameters<ServerEndpoint["accept"]>[1]): void {
      super.accept(
        rewriting(wire, (frame) => change(frame, this)),
        session,
      );
    }
    override resume(wire: Wire, resume: ResumeFrame, token: string): void {
      super.resume(
        rewriting(wire, (frame) => change(frame, this)),
        resume,
        token,
      );
    }
  }
  return withEndpoint(side, Faulty);
}

/** Parts of which one end reads other frames than those that arrive. */
function withReads(side: Side | "both", change: (frame: string, endpoint: ServerEndpoint) => readonly string[]): Parts {
  class Faulty extends ServerEndpoint {
    override receive(frame: string): void {
      for (const one of change(frame, this)) super.receive(one);
    }
  }
  return withEndpoint(side, Faulty);
}

function withRegistry(Faulty: typeof TokenRegistry): Parts {
  return { ...PARTS, makeRegistry: (options: TokenOptions) => new Faulty<ServerEnd>(options) };
}

/** Rewrites a member of a control frame. */
function editing(name: string, edit: (value: any) => unknown): (frame: string) => readonly string[] {
  return (frame) => {
    if (!frame.startsWith(`{"${name}"`)) return [frame];
    const parsed = JSON.parse(frame) as Record<string, unknown>;
    return [JSON.stringify({ [name]: edit(parsed[name]) })];
  };
}

/** An edit of a hello, after which the other side seems to have no such limit. */
function withoutLimit(name: "logFrames" | "logLength"): (hello: { limits?: object }) => unknown {
  return (hello) => ({ ...hello, ...(hello.limits && { limits: { ...hello.limits, [name]: 2 ** 40 } }) });
}

const dropping =
  (start: string) =>
  (frame: string): readonly string[] =>
    frame.startsWith(start) ? [] : [frame];

const isData = (frame: string): boolean => frame.startsWith("[");

/** An end that hears another close code than the one that came. */
function hearing(change: (code: number) => number): Parts {
  class Faulty extends ServerEndpoint {
    override detach(end: { code: number; reason: string }): void {
      super.detach({ ...end, code: change(end.code) });
    }
  }
  return withEndpoint("both", Faulty);
}

/** An end that sends what `send` is given in another way. */
function sending(
  side: Side | "both",
  send: (endpoint: ServerEndpoint, next: () => boolean, text: string, ticket?: SendHandle) => boolean,
): Parts {
  class Faulty extends ServerEndpoint {
    override send(text: string, ticket?: SendHandle): boolean {
      return send(this, () => super.send(text, ticket), text, ticket);
    }
  }
  return withEndpoint(side, Faulty);
}

const wide =
  (change: Partial<EndpointLimits>) =>
  (of: EndpointLimits): EndpointLimits => ({ ...of, ...change });

/** By rule of docs/PROTOCOL.md: what the end does wrong, and its parts. */
export const FAULTS: readonly (readonly [what: string, parts: Parts])[] = [
  [
    "1: a returning client sends data before `resumed`",
    withWrites("client", (frame) => (frame.startsWith('{"resume"') ? [frame, '[{"label":"early"}]'] : [frame])),
  ],
  [
    "1: a client takes data before `resumed`",
    withReads("client", (frame, { state }) => (state.kind === "resuming" && isData(frame) ? [] : [frame])),
  ],
  [
    "1: a client that closes before `resumed` sends no bye",
    withWrites("client", (frame, { state }) =>
      frame.startsWith('{"bye"') && state.kind === "resuming" ? [] : [frame],
    ),
  ],
  [
    "1: a server takes anything from a client that says it returns",
    {
      ...PARTS,
      acceptsFirst: (frame: string, line: Line) => PARTS.acceptsFirst(frame, line) || !frame.includes("resume"),
    },
  ],
  [
    "1: a server takes a second `resume` after a refusal",
    { ...PARTS, acceptsFirst: (frame: string) => PARTS.acceptsFirst(frame, { isRefused: false } as Line) },
  ],
  ["2: a server reads lines that it has left", { ...PARTS, readsOldLines: true }],
  [
    "2: a server leaves the old line open",
    {
      ...PARTS,
      ServerEnd: class extends ServerEnd {
        override resume(line: Line, resume: ResumeFrame): void {
          if (this.line !== undefined) this.endpoint.detach({ code: 4000, reason: "" });
          this.line = undefined;
          super.resume(line, resume);
        }
      },
    },
  ],
  [
    "2: a server counts before it has left the old line",
    withWrites(
      "server",
      editing("resumed", (value: { received?: number }) => ({
        ...value,
        ...(value.received !== undefined && { received: Math.max(0, value.received - 1) }),
      })),
    ),
  ],
  [
    "3: a server takes attempts that were overtaken",
    withRegistry(
      class<S> extends TokenRegistry<S> {
        override find(resume: ResumeFrame, principal: string | undefined): ReturnType<TokenRegistry<S>["find"]> {
          const found = super.find(resume, principal);
          return found === "stale" ? super.find({ ...resume, attempt: 2 ** 50 }, principal) : found;
        }
      },
    ),
  ],
  [
    "3: a client's attempts do not grow",
    withWrites(
      "client",
      editing("resume", (value: object) => ({ ...value, attempt: 1 })),
    ),
  ],
  [
    "3: a server takes a second `resume` on one line",
    withReads("server", (frame, { state }) => (state.kind === "live" && frame.startsWith('{"resume"') ? [] : [frame])),
  ],
  [
    "4: a client keeps its first token",
    withReads("client", (frame, { state }) =>
      editing("resumed", (value: object) => ("token" in value ? { ...value, token: state.session!.token } : value))(
        frame,
      ),
    ),
  ],
  [
    "4: a server accepts no token before it is confirmed",
    withRegistry(
      class<S> extends TokenRegistry<S> {
        override renew(entry: TokenEntry<S>, token: string): string {
          const newest = super.renew(entry, token);
          const next = entry.next;
          entry.next = `${next}x`;
          return newest;
        }
      },
    ),
  ],
  [
    "4: a server forgets the confirmed token when it gives another",
    withRegistry(
      class<S> extends TokenRegistry<S> {
        override find(resume: ResumeFrame, principal: string | undefined): ReturnType<TokenRegistry<S>["find"]> {
          const found = super.find(resume, principal);
          return typeof found !== "string" && found.next !== undefined && found.confirmed === `#${resume.token}`
            ? "unknown"
            : found;
        }
      },
    ),
  ],
  [
    "4: a server accepts every token that it gave",
    withRegistry(
      class<S> extends TokenRegistry<S> {
        readonly #all = new Map<string, TokenEntry<S>>();
        override open(session: S, principal: string | undefined, token: string): TokenEntry<S> {
          const entry = super.open(session, principal, token);
          this.#all.set(token, entry);
          return entry;
        }
        override renew(entry: TokenEntry<S>, token: string): string {
          const newest = super.renew(entry, token);
          this.#all.set(newest, entry);
          return newest;
        }
        override find(resume: ResumeFrame, principal: string | undefined): ReturnType<TokenRegistry<S>["find"]> {
          const found = super.find(resume, principal);
          const old = this.#all.get(resume.token);
          return found === "unknown" && old?.confirmed !== undefined && old.principal === principal ? old : found;
        }
      },
    ),
  ],
  [
    "4: a client acks no `resumed`",
    withWrites(
      "client",
      (() => {
        let isDue = false;
        return (frame: string, { state }: ServerEndpoint): readonly string[] => {
          if (frame.startsWith('{"resume"')) isDue = true;
          if (!isDue || !frame.startsWith('{"ack"') || state.kind !== "resuming") return [frame];
          isDue = false;
          return [];
        };
      })(),
    ),
  ],
  [
    "5: replay begins before what was received",
    withReads("both", (frame) => editing("resume", back)(frame).flatMap(editing("resumed", back))),
  ],
  [
    "5: replay leaves a frame out",
    withReads("both", (frame) => editing("resume", ahead)(frame).flatMap(editing("resumed", ahead))),
  ],
  [
    "5: queued messages overtake what is replayed",
    { ...PARTS, makeEndpoint: (_side, limits, hooks) => new Overtaking(limits, true, hooks) },
  ],
  [
    "5: a late ack counts",
    withReads("both", (frame, { state }) =>
      frame.startsWith('{"ack"') && state.session !== undefined && isLate(frame, state.session.acked)
        ? ["[1,"]
        : [frame],
    ),
  ],
  [
    "5: an ack of what was never sent is taken",
    withReads("both", (frame, { state }) =>
      frame.startsWith('{"ack"') && state.session !== undefined && !isPossible(frame, state.session.next)
        ? []
        : [frame],
    ),
  ],
  [
    "5: a server takes any count in `resume`",
    {
      ...PARTS,
      ServerEnd: class extends ServerEnd {
        override resume(line: Line, resume: ResumeFrame): void {
          super.resume(line, resume);
        }
        override get session(): ServerEnd["endpoint"]["state"]["session"] {
          const { session } = this.endpoint.state;
          if (session !== undefined) session.covers = () => true;
          return session;
        }
      },
    },
  ],
  [
    "5: a client takes any count in `resumed`",
    withReads("client", (frame, { state }) => {
      if (state.session !== undefined) state.session.covers = () => true;
      return [frame];
    }),
  ],
  ["6: a frame that cannot be read ends nothing", withReads("both", (frame) => (frame === "[1," ? [] : [frame]))],
  ["6: no close is final", hearing((code) => (endsSession(code) ? 1006 : code))],
  ["6: a close for a page is not final", hearing((code) => (code >= 4400 && code < 4500 ? 1006 : code))],
  ["6: every close is final", hearing((code) => (code === 1006 || code === 4000 ? code : 1002))],
  ["6: a lost line is final", hearing((code) => (code === 1006 ? 1002 : code))],
  ["6: a bye ends nothing", withReads("both", dropping('{"bye"'))],
  ["6: an end that closes says no bye", { ...withWrites("client", dropping('{"bye"')) }],
  [
    "6: a message that the other side does not accept is sent",
    sending("both", (_endpoint, next, text) => (text.length > 1500 ? true : next())),
  ],
  [
    "7: a queued message cannot be cancelled",
    withEndpoint(
      "both",
      class extends ServerEndpoint {
        override cancel(): boolean {
          return false;
        }
      },
    ),
  ],
  [
    "7: a cancelled message is sent all the same",
    withEndpoint(
      "both",
      class extends ServerEndpoint {
        override cancel(ticket: SendHandle): boolean {
          return !ticket.sent;
        }
      },
    ),
  ],
  [
    "7: a queued message counts as sent",
    sending("both", (_endpoint, next, _text, ticket) => {
      const isTaken = next();
      if (ticket !== undefined) ticket.sent = true;
      return isTaken;
    }),
  ],
  [
    "7: a message that is sent counts as queued",
    sending("both", (_endpoint, next, _text, ticket) => {
      const isTaken = next();
      if (ticket !== undefined) ticket.sent = false;
      return isTaken;
    }),
  ],
  [
    "7: frames leave above the high-water mark",
    withEndpoint("both", ServerEndpoint, wide({ highWaterBytes: 2 ** 30 })),
  ],
  [
    "7: a full wire is not drained",
    withEndpoint(
      "both",
      class extends ServerEndpoint {
        override drained(): void {}
      },
    ),
  ],
  ["7: the log has no bound in frames", withEndpoint("both", ServerEndpoint, wide({ logFrames: 2 ** 40 }))],
  ["7: the log has no bound in length", withEndpoint("both", ServerEndpoint, wide({ logLength: 2 ** 40 }))],
  [
    "7: the queue has no bound",
    withEndpoint("both", ServerEndpoint, wide({ queueLength: 2 ** 40, burstLength: 2 ** 40 })),
  ],
  [
    "7: too much queued ends no session",
    sending("both", (endpoint, next, text) => {
      if (endpoint.state.session !== undefined && endpoint.queuedLength + text.length > 6000) return false;
      return next();
    }),
  ],
  [
    "7: no ack is sent",
    withWrites("both", (frame, { state }) => (frame.startsWith('{"ack"') && state.kind === "live" ? [] : [frame])),
  ],
  [
    "7: a message with a key replaces none",
    sending("both", (endpoint, _next, text, ticket) =>
      ServerEndpoint.prototype.send.call(endpoint, text, ticket instanceof LatestHandle ? { sent: true } : ticket),
    ),
  ],
  [
    "7: a message with a key gets the place of the one that it replaces",
    sending("both", (endpoint, next, text, ticket) => (putInPlace(endpoint.queue, text, ticket) ? true : next())),
  ],
  [
    "7: the older message of a key stays",
    sending("both", (endpoint, next, _text, ticket) => olderOf(endpoint.queue, ticket) !== undefined || next()),
  ],
  [
    "5: a report of dropped messages has no number",
    withEndpoint(
      "both",
      class extends ServerEndpoint {
        override reportMissed(count: number): void {
          if (this.canSend && this.isToReciproc) this.wire!.send(`{"missed":${count}}`);
          else super.reportMissed(count);
        }
      },
    ),
  ],
  [
    "5: a report of dropped messages is not replayed",
    withWrites(
      "both",
      (() => {
        const written = new WeakMap<ServerEndpoint, Set<string>>();
        return (frame: string, endpoint: ServerEndpoint): readonly string[] => {
          if (!frame.startsWith('{"missed"')) return [frame];
          const before = written.get(endpoint) ?? new Set();
          written.set(endpoint, before);
          const key = `${frame}${endpoint.state.session?.next}`;
          return before.has(key) ? ["[]"] : (before.add(key), [frame]);
        };
      })(),
    ),
  ],
  [
    "5: what is dropped without a socket is not reported",
    withEndpoint(
      "both",
      class extends ServerEndpoint {
        override reportMissed(count: number): void {
          if (this.canSend) super.reportMissed(count);
        }
      },
    ),
  ],
  [
    "5: a report counts too many dropped messages",
    withReads(
      "both",
      editing("missed", (count: number) => count + 1),
    ),
  ],
  ["7: acks are due by length alone", withReads("server", editing("hello", withoutLimit("logFrames")))],
  ["7: acks are due by frames alone", withReads("server", editing("hello", withoutLimit("logLength")))],
  [
    "8: a session outlives its time",
    withEndpoint(
      "both",
      class extends ServerEndpoint {
        override end(code: number, reason: string): void {
          if (reason !== "expired") super.end(code, reason);
        }
      },
    ),
  ],
  [
    "8: an ended session can be resumed",
    withRegistry(
      class<S> extends TokenRegistry<S> {
        override drop(): void {}
      },
    ),
  ],
  ["9: a client says no hello", withWrites("client", dropping('{"hello"'))],
  [
    "8: a refused client is not emitted that its session is lost",
    withReads("client", dropping('{"resumed":{"refused"')),
  ],
  [
    "8: a refused client keeps what it had sent",
    {
      ...PARTS,
      ClientEnd: class extends ClientEnd {
        override startAnew(reason: string): void {
          const { sent } = this.pair.flows.client;
          super.startAnew(reason);
          const { client } = this.world;
          for (const { label, ticket } of sent)
            if (!ticket.sent) client.endpoint.send(JSON.stringify({ label, x: "" }));
          client.act();
        }
      },
    },
  ],
  [
    "9: a session that is not confirmed ends with its line",
    withEndpoint(
      "server",
      class extends ServerEndpoint {
        override detach(end: { code: number; reason: string }): void {
          super.detach(this.state.kind === "greeting" && end.code !== 4000 ? { ...end, code: 1002 } : end);
        }
      },
    ),
  ],
  [
    "10: another principal resumes",
    withRegistry(
      class<S> extends TokenRegistry<S> {
        override find(resume: ResumeFrame): ReturnType<TokenRegistry<S>["find"]> {
          return super.find(resume, "alice");
        }
      },
    ),
  ],
  [
    "10: another principal ends the session",
    withRegistry(
      class<S> extends TokenRegistry<S> {
        override find(resume: ResumeFrame, principal: string | undefined): ReturnType<TokenRegistry<S>["find"]> {
          if (principal !== "alice") {
            const found = super.find(resume, "alice");
            if (typeof found !== "string") this.drop(found);
          }
          return super.find(resume, principal);
        }
      },
    ),
  ],
];

const back = (value: { received?: number }): unknown =>
  value.received === undefined || value.received === 0 ? value : { ...value, received: value.received - 1 };
const ahead = (value: { received?: number }): unknown =>
  value.received === undefined ? value : { ...value, received: value.received + 1 };

/** Returns the queued message that a message with a key replaces. */
function olderOf(queue: ServerEndpoint["queue"], ticket: SendHandle | undefined): SendHandle | undefined {
  if (!(ticket instanceof LatestHandle)) return undefined;
  return [...(queue ?? [])].find(([handle]) => handle instanceof LatestHandle && handle.latest === ticket.latest)?.[0];
}

/** Puts a message at the place of the one that it replaces. Returns false if there is none. */
function putInPlace(queue: ServerEndpoint["queue"], text: string, ticket: SendHandle | undefined): boolean {
  const older = olderOf(queue, ticket);
  if (older === undefined || queue === undefined) return false;
  const messages = [...queue];
  for (const [handle] of messages) queue.remove(handle);
  for (const [handle, queued] of messages) {
    if (handle === older) queue.add(text, ticket);
    else queue.add(queued, handle);
  }
  return true;
}

function isLate(frame: string, acked: number): boolean {
  const { ack } = JSON.parse(frame) as { ack: unknown };
  return typeof ack === "number" && ack < acked;
}

function isPossible(frame: string, next: number): boolean {
  const { ack } = JSON.parse(frame) as { ack: unknown };
  return Number.isSafeInteger(ack) && (ack as number) >= 0 && (ack as number) < next;
}

/** Writes what is queued before it replays. */
class Overtaking extends ServerEndpoint {
  readonly #held: string[] = [];

  override send(text: string, ticket?: SendHandle): boolean {
    if (this.state.kind !== "suspended") return super.send(text, ticket);
    this.#held.unshift(text);
    if (ticket !== undefined) ticket.sent = false;
    return true;
  }

  override flush(): void {
    if (this.state.kind === "live") for (const text of this.#held.splice(0)) super.send(text);
    super.flush();
  }
}
