// Imports `socket/socket`, `server/tokens`, `session/session`, `peer/flow`: a fault stands between an end and one of these.
/**
 * Ends that break one rule of the session each. A fault changes what an end reads, what it writes, or what it is limited by, and
 * nothing of the source: the oracle must notice each of them.
 */
import { endsSession } from "../../src/message/close-codes.js";
import type { SendHandle } from "../../src/message/transport.js";
import type { Flow as Outgoing } from "../../src/peer/flow.js";
import type { Socket } from "../../src/socket/socket.js";
import type { TokenRegistry } from "../../src/server/tokens.js";
import type { Session } from "../../src/session/session.js";
import { acceptsFirst, ClientEnd, ServerEnd, type AnyEndpoint, type End, type Fault, type Side } from "./oracle.js";
import type { EndLimits } from "./kit.js";

type Tokens = TokenRegistry<ServerEnd>;
type Frames = readonly string[];
type Change = (frame: string, endpoint: AnyEndpoint) => Frames;
type Where = Side | "both";

/** Returns the functions of an object as they are before a fault replaces some of them. */
function functionsOf<T extends object, K extends keyof T>(object: T, names: readonly K[]): Pick<T, K> {
  return Object.fromEntries(
    names.map((name) => [name, (object[name] as (...args: unknown[]) => unknown).bind(object)]),
  ) as Pick<T, K>;
}

const FUNCTIONS = ["attachSocket", "receiveFrame", "detach", "send", "flush", "reportMissed", "end"] as const;

/** An endpoint of one side, or of both, with other functions. `real`: those that the source has. */
function endpoint(
  where: Where,
  change: (endpoint: AnyEndpoint, real: Pick<AnyEndpoint, (typeof FUNCTIONS)[number]>) => Partial<AnyEndpoint>,
): Fault {
  return {
    changeEndpoint(side, one) {
      if (where === "both" || where === side) Object.assign(one, change(one, functionsOf(one, FUNCTIONS)));
    },
  };
}

function tokens(
  change: (
    real: Pick<Tokens, "open" | "renew" | "find">,
    registry: Tokens,
  ) => Partial<Pick<Tokens, "open" | "renew" | "find" | "drop">>,
): Fault {
  return {
    changeRegistry: (registry) =>
      void Object.assign(registry, change(functionsOf(registry, ["open", "renew", "find"]), registry)),
  };
}

function writes(where: Where, change: Change): Fault {
  return endpoint(where, (one, { attachSocket }) => {
    const bend = (socket: Socket): Socket => {
      const send: Socket["send"] = (...frames) =>
        frames.every((frame) => change(frame as string, one).every((text) => socket.send(text)));
      return Object.assign(Object.create(socket) as Socket, { send });
    };
    return { attachSocket: (socket, ...rest) => attachSocket(bend(socket), ...rest) };
  });
}

function reads(where: Where, change: Change): Fault {
  return endpoint(where, (one, { receiveFrame }) => ({
    receiveFrame: (text) => change(text, one).forEach(receiveFrame),
  }));
}

/** An end that sends what `send` is given in another way. */
function sends(
  send: (end: End, next: (handle?: SendHandle) => boolean, text: string, handle?: SendHandle) => boolean,
): Fault {
  return outgoing((end, real) => ({
    send: (text, handle) => send(end, (other = handle) => real.send(text, other), text as string, handle),
  }));
}

function outgoing(change: (end: End, real: Pick<Outgoing, "send" | "cancel">) => Partial<Outgoing>): Fault {
  return {
    changeOutgoing: (end) =>
      void Object.assign(end.outgoing, change(end, functionsOf(end.outgoing, ["send", "cancel"]))),
  };
}

/** Ends that say of each message that it is sent, or that it is not. */
function marks(sent: boolean): Fault {
  return sends((_one, next, _text, handle) => {
    const isTaken = next();
    if (handle !== undefined) handle.sent = sent;
    return isTaken;
  });
}

function hears(change: (code: number) => number): Fault {
  return endpoint("both", (_one, { detach }) => ({ detach: (end) => detach({ ...end, code: change(end.code) }) }));
}

const limits = (of: Partial<EndLimits>): Fault => ({ limits: of });

/** Rewrites the content of a control frame. */
function editing(name: string, edit: (value: any, endpoint: AnyEndpoint) => unknown): Change {
  return (frame, one) =>
    frame.startsWith(`{"${name}"`)
      ? [JSON.stringify({ [name]: edit((JSON.parse(frame) as Record<string, unknown>)[name], one) })]
      : [frame];
}

/** Moves the count of received frames in a control frame. */
function moving(name: string, by: number): Change {
  return editing(name, (value: { received?: number }) =>
    value.received === undefined ? value : { ...value, received: Math.max(0, value.received + by) },
  );
}

const isResuming = ({ state }: AnyEndpoint): boolean => state.kind === "resuming";
const isLive = ({ state }: AnyEndpoint): boolean => state.kind === "live";

/** Drops the frames that begin so, while `when` returns true. */
function dropping(start: string, when: (endpoint: AnyEndpoint, frame: string) => boolean = () => true): Change {
  return (frame, one) => (frame.startsWith(start) && when(one, frame) ? [] : [frame]);
}

/** Moves the count of received frames in `resume` and `resumed`. */
function moved(by: number): Fault {
  return reads("both", (frame, one) =>
    moving("resume", by)(frame, one).flatMap((text) => moving("resumed", by)(text, one)),
  );
}

/** An edit of a hello, after which the other side seems to have no such limit. */
function unlimited(name: "logFrames" | "logLength"): Fault {
  return reads(
    "server",
    editing("hello", (hello: { limits?: object }) => ({
      ...hello,
      ...(hello.limits && { limits: { ...hello.limits, [name]: 2 ** 40 } }),
    })),
  );
}

const ackOf = (frame: string): unknown => (JSON.parse(frame) as { ack: unknown }).ack;
const oneMore = (count: number): number => count + 1;
const withOneAttempt = (resume: object): object => ({ ...resume, attempt: 1 });
const withFirstToken = (value: object, { state }: AnyEndpoint): object =>
  "token" in value ? { ...value, token: state.session!.token } : value;

type Queued = [text: string, handle: SendHandle & { readonly latest?: string }];

/** Ends that queue a message with a key in another way, if an older one of the key is queued. `queued`: all that is, in order. */
function requeues(change: (queued: Queued[], newer: Queued) => readonly Queued[]): Fault {
  return outgoing((_end, { send, cancel }) => {
    const all: Queued[] = [];
    return {
      send(text, handle = { sent: true }) {
        const newer: Queued = [text as string, handle];
        const isOlder = ([, { latest, sent }]: Queued): boolean =>
          !sent && latest !== undefined && latest === newer[1].latest;
        if (!all.some(isOlder)) return all.push(newer) > 0 && send(text, handle);
        const queued = all.splice(0).filter(([, one]) => cancel(one));
        all.push(...change(queued, newer));
        return all.every(([one, oneHandle]) => send(one, oneHandle));
      },
    };
  });
}

/** By rule of docs/PROTOCOL.md: what the end does wrong. */
export const FAULTS: Readonly<Record<string, Fault>> = {
  "1: a returning client sends data before `resumed`": writes("client", (frame) =>
    frame.startsWith('{"resume"') ? [frame, '[{"label":"early"}]'] : [frame],
  ),
  "1: a client takes data before `resumed`": reads("client", dropping("[", isResuming)),
  "1: a client that closes before `resumed` sends no bye": writes("client", dropping('{"bye"', isResuming)),
  "1: a server takes anything from a client that says it returns": {
    acceptsFirst: (frame, line) => acceptsFirst(frame, line) || !frame.includes("resume"),
  },
  "1: a server takes a second `resume` after a refusal": {
    acceptsFirst: (frame) => acceptsFirst(frame, { isRefused: false }),
  },
  "2: a server reads lines that it has left": { readsOldLines: true },
  "2: a server leaves the old line open": {
    ServerEnd: class extends ServerEnd {
      override resume(...args: Parameters<ServerEnd["resume"]>): void {
        if (this.line !== undefined) this.endpoint.detach({ code: 4000, reason: "" });
        this.line = undefined;
        super.resume(...args);
      }
    },
  },
  "2: a server counts before it has left the old line": writes("server", moving("resumed", -1)),
  "3: a server takes attempts that were overtaken": tokens(({ find }) => ({
    find(resume, principal) {
      const found = find(resume, principal);
      return found === "stale" ? find({ ...resume, attempt: 2 ** 50 }, principal) : found;
    },
  })),
  "3: a client's attempts do not grow": writes("client", editing("resume", withOneAttempt)),
  "3: a server takes a second `resume` on one line": reads("server", dropping('{"resume"', isLive)),
  "4: a client keeps its first token": reads("client", editing("resumed", withFirstToken)),
  "4: a server accepts no token before it is confirmed": tokens(({ renew }) => ({
    renew(entry) {
      const newest = renew(entry);
      entry.nextHash = `${entry.nextHash}x`;
      return newest;
    },
  })),
  "4: a server forgets the confirmed token when it gives another": tokens(({ find }) => ({
    find(resume, principal) {
      const found = find(resume, principal);
      const isConfirmed = typeof found !== "string" && found.confirmedHash === `#${resume.token}`;
      return isConfirmed && found.nextHash !== undefined ? "unknown" : found;
    },
  })),
  "4: a server accepts every token that it gave": tokens(({ open, renew, find }) => {
    const all = new Map<string, ServerEnd>();
    return {
      open(session, token) {
        open(session, token);
        all.set(token, session);
      },
      renew(entry) {
        const newest = renew(entry);
        all.set(newest, entry);
        return newest;
      },
      find(resume, principal) {
        const found = find(resume, principal);
        const old = all.get(resume.token);
        return found === "unknown" && old?.confirmedHash !== undefined && old.principal === principal ? old : found;
      },
    };
  }),
  "4: a client acks no `resumed`": writes("client", dropping('{"ack"', isResuming)),
  "5: replay begins before what was received": moved(-1),
  "5: replay leaves a frame out": moved(1),
  "5: queued messages overtake what is replayed": outgoing((end, { send }) => {
    const queued: string[] = [];
    const resumed = end.outgoing.resumed.bind(end.outgoing);
    return {
      send(text, handle) {
        if (!end.outgoing.isDown) return send(text, handle);
        queued.unshift(text as string);
        if (handle !== undefined) handle.sent = false;
        return true;
      },
      resumed() {
        resumed();
        for (const text of queued.splice(0)) send(text);
      },
    };
  }),
  "5: a late ack counts": reads("both", (frame, { state: { session } }) => {
    const isLate = session !== undefined && frame.startsWith('{"ack"') && Number(ackOf(frame)) < session.acked;
    return [isLate ? "[1," : frame];
  }),
  "5: an ack of what was never sent is taken": reads(
    "both",
    dropping('{"ack"', ({ state: { session } }, frame) => {
      const ack = ackOf(frame) as number;
      return session !== undefined && !(Number.isSafeInteger(ack) && ack >= 0 && ack < session.next);
    }),
  ),
  "5: a server takes any count in `resume`": endpoint("server", (_one, { attachSocket }) => ({
    attachSocket(wire, kind, session) {
      if (session !== undefined) session.canHaveReceived = () => true;
      return attachSocket(wire, kind, session);
    },
  })),
  "5: a client takes any count in `resumed`": reads("client", (frame, { state }) => {
    if (state.session !== undefined) state.session.canHaveReceived = () => true;
    return [frame];
  }),
  "6: a frame that cannot be read ends nothing": reads("both", dropping("[1,")),
  "6: no close is final": hears((code) => (endsSession(code) ? 1006 : code)),
  "6: a close for a page is not final": hears((code) => (code >= 4400 && code < 4500 ? 1006 : code)),
  "6: every close is final": hears((code) => (code === 1006 || code === 4000 ? code : 1002)),
  "6: a lost line is final": hears((code) => (code === 1006 ? 1002 : code)),
  "6: a bye ends nothing": reads("both", dropping('{"bye"')),
  "6: an end that closes says no bye": writes("client", dropping('{"bye"')),
  "6: a message that the other side does not accept is sent": sends((_one, next, text) => text.length > 1500 || next()),
  "7: a queued message cannot be cancelled": outgoing(() => ({ cancel: () => false })),
  "7: a cancelled message is sent all the same": outgoing(() => ({ cancel: (handle) => !handle.sent })),
  "7: a queued message counts as sent": marks(true),
  "7: a message that is sent counts as queued": marks(false),
  "7: frames leave above the high-water mark": limits({ highWaterBytes: 2 ** 30 }),
  "7: a full wire is not drained": endpoint("both", () => ({ drain: () => {} })),
  "7: the log has no bound in frames": limits({ logFrames: 2 ** 40 }),
  "7: the log has no bound in length": limits({ logLength: 2 ** 40 }),
  "7: the queue has no bound": limits({ maxUnsentBytes: 2 ** 27 }),
  "7: too much queued ends no session": sends((end, next, text) => {
    const isTooMuch = end.session !== undefined && end.outgoing.isDown && end.queued + text.length > 6000;
    return !isTooMuch && next();
  }),
  "7: no ack is sent": writes("both", dropping('{"ack"', isLive)),
  "7: a message with a key replaces none": sends((_one, next, _text, handle) =>
    next(handle !== undefined && "latest" in handle ? { sent: true } : handle),
  ),
  "7: a message with a key gets the place of the one that it replaces": requeues((queued, newer) =>
    queued.map((one) => (one[1].latest === newer[1].latest ? newer : one)),
  ),
  "7: the older message of a key stays": requeues((queued) => queued),
  "5: a report of dropped messages has no number": endpoint("both", (one, { reportMissed }) => ({
    reportMissed(count) {
      if (one.flowing !== undefined && one.isReciproc) one.sendControl(`{"missed":${count}}`);
      else reportMissed(count);
    },
  })),
  "5: a report of dropped messages is not replayed": (() => {
    const newest = new WeakMap<Session, number>();
    return writes("both", (frame, { state: { session } }) => {
      if (session === undefined || !frame.startsWith('{"missed"')) return [frame];
      const isNew = session.next > (newest.get(session) ?? 0);
      if (isNew) newest.set(session, session.next);
      return [isNew ? frame : "[]"];
    });
  })(),
  "5: what is dropped without a socket is not reported": endpoint("both", (one, { reportMissed }) => ({
    reportMissed(count) {
      if (one.flowing !== undefined) reportMissed(count);
    },
  })),
  "5: a report counts too many dropped messages": reads("both", editing("missed", oneMore)),
  "7: acks are due by length alone": unlimited("logFrames"),
  "7: acks are due by frames alone": unlimited("logLength"),
  "8: a session outlives its time": endpoint("both", (_one, { end }) => ({
    end(code, reason) {
      if (reason !== "expired") end(code, reason);
    },
  })),
  "8: an ended session can be resumed": tokens(() => ({ drop: () => {} })),
  "9: a client says no hello": writes("client", dropping('{"hello"')),
  "8: a refused client is not emitted that its session is lost": reads("client", dropping('{"resumed":{"refused"')),
  "8: a refused client keeps what it had sent": {
    ClientEnd: class extends ClientEnd {
      override startAnew(reason: string): void {
        const { sent } = this.pair.flows.client;
        super.startAnew(reason);
        const { client } = this.oracle;
        for (const { label, handle } of sent) if (!handle.sent) client.outgoing.send(JSON.stringify({ label, x: "" }));
        client.act();
      }
    },
  },
  "9: a session that is not confirmed ends with its line": endpoint("server", (one, { detach }) => ({
    detach: (end) => detach(one.state.kind === "greeting" && end.code !== 4000 ? { ...end, code: 1002 } : end),
  })),
  "10: another principal resumes": tokens(({ find }) => ({ find: (resume) => find(resume, "alice") })),
  "10: another principal ends the session": tokens(({ find }, registry) => ({
    find(resume, principal) {
      const found = principal === "alice" ? "unknown" : find(resume, "alice");
      if (typeof found !== "string") registry.drop(found);
      return find(resume, principal);
    },
  })),
};
