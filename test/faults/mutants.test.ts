/**
 * Tests the oracle: mutants break one rule at a time, between real peers, and the oracle must detect each within a
 * limited number of seeds.
 */
import { createHash } from "node:crypto";
import { afterEach, describe, expect, it, vi } from "vitest";
import { TextWithBytes } from "../../src/core/bytes.js";
import type { MessageText } from "../../src/core/codec.js";
import { Connection } from "../../src/core/connection.js";
import { OutgoingCall, OutgoingCalls } from "../../src/core/outgoing-calls.js";
import { SendQueue, type LatestHandle } from "../../src/core/send-queue.js";
import { HeldQueue } from "../../src/server/held-queue.js";
import { ClientDriver } from "../../src/client/driver.js";
import { Gate } from "../../src/server/gate.js";
import { Admission } from "../../src/server/upgrade.js";
import { ServerLink } from "../../src/server/link.js";
import { Sessions } from "../../src/server/sessions.js";
import { TokenRegistry } from "../../src/server/tokens.js";
import { Endpoint } from "../../src/session/endpoint.js";
import { AUTHENTICATED } from "../../src/session/frames.js";
import { PackedLink } from "../../src/session/link.js";
import { Session } from "../../src/session/session.js";
import { Breach } from "./oracle.js";
import { CLIENT_NAME } from "./traffic.js";
import { play } from "./world.js";

/** Short delays, because a client that is cut many times within seconds would mostly wait. */
const LONGEST_WAIT_MS = 8;
vi.mock(import("../../src/client/backoff.js"), async (original) => {
  const { Backoff } = await original();
  return {
    Backoff: class extends Backoff {
      override nextDelayMs(): number {
        return Math.min(super.nextDelayMs(), LONGEST_WAIT_MS);
      }
    },
  };
});

const undo: (() => void)[] = [];
afterEach(() => {
  for (const one of undo.splice(0)) one();
});

/** The names of the methods of `T`. */
type Methods<T> = { [K in keyof T]: T[K] extends (...args: any[]) => unknown ? K : never }[keyof T] & string;
type Args<T, K extends keyof T> = T[K] extends (...args: infer A) => unknown ? A : never;
type Result<T, K extends keyof T> = T[K] extends (...args: any[]) => infer R ? R : never;

/** Replaces a method of all objects of a class until the test ends. `by` gets the object and the original method. */
function replace<T extends object, K extends Methods<T>>(
  { prototype }: { prototype: T },
  name: K,
  by: (self: T, original: (...args: Args<T, K>) => Result<T, K>, ...args: Args<T, K>) => Result<T, K>,
): void {
  const before = Object.getOwnPropertyDescriptor(prototype, name)!;
  const method = before.value as (this: T, ...args: Args<T, K>) => Result<T, K>;
  const value = function (this: T, ...args: Args<T, K>): Result<T, K> {
    return by(this, method.bind(this), ...args);
  };
  Object.defineProperty(prototype, name, { ...before, value });
  undo.push(() => Object.defineProperty(prototype, name, before));
}

/** Replaces a getter in the same way. */
function replaceGetter<T extends object, K extends keyof T & string>(
  { prototype }: { prototype: T },
  name: K,
  value: T[K],
): void {
  const before = Object.getOwnPropertyDescriptor(prototype, name)!;
  Object.defineProperty(prototype, name, { ...before, get: () => value });
  undo.push(() => Object.defineProperty(prototype, name, before));
}

/** Hashes a token like the server. */
function hashOf(token: string): string {
  return createHash("sha256").update(token).digest("base64");
}

/** The mutants that two peers can detect while both keep all other rules, and the rules of broadcasts. */
const BROKEN: Record<string, () => void> = {
  "1: a returning client sends only `resume` until `resumed`": () =>
    replace(Endpoint, "attach", (self, attach, wire, ...rest) => {
      attach(wire, ...rest);
      if (self.state.kind === "resuming") wire.send("[]");
    }),
  "2: the old socket is left before `received` is read": () =>
    replace(PackedLink, "leave", (_self, leave, reason) => {
      if (reason !== "a newer socket took over") leave(reason);
    }),
  "3: a stale attempt is not taken": () => {
    let attempts = 0;
    replace(TokenRegistry, "find", (_self, find, resume, principal) =>
      find({ ...resume, attempt: 1000 + ++attempts }, principal),
    );
  },
  "3: attempts grow": () =>
    replace(Endpoint, "attach", (self, attach, ...args) => {
      if (self.state.session !== undefined) self.state.session.attempt = 0;
      attach(...args);
    }),
  "4: a token is new at each resume": () => replace(TokenRegistry, "renew", (_self, _renew, _entry, token) => token),
  "4: the newest unconfirmed token is accepted": () =>
    replace(TokenRegistry, "find", (_self, find, resume, principal) => {
      const found = find(resume, principal);
      if (typeof found === "string" || found.confirmed === undefined) return found;
      return found.next === hashOf(resume.token) ? "unknown" : found;
    }),
  "5: replay begins behind what was received": () =>
    replace(Session, "rewind", (self, rewind, received) => rewind(Math.max(self.acked, received - 1))),
  "5: replay leaves nothing out": () =>
    replace(Session, "rewind", (self, rewind, received) => rewind(Math.min(self.last, received + 1))),
  "6: other closes do not end a session": () =>
    replace(Endpoint, "detach", (_self, detach, end) => detach({ ...end, code: 1008 })),
  "6: what the other side does not take is not logged": () => replaceGetter(Session, "maxMessageBytes", Infinity),
  "7: a call that waits can be taken back": () => replace(Endpoint, "cancel", () => true),
  "7: a message that waits was not sent": () =>
    replace(SendQueue, "add", (_self, add, text, handle) => {
      const dropped = add(text, handle);
      if (handle !== undefined) handle.sent = true;
      return dropped;
    }),
  "8: the server's session ends in time": () =>
    replace(ServerLink, "accept", (_self, accept, socket, session) => {
      if (session !== undefined) session.ttlMs = 10 * 60_000;
      accept(socket, session);
    }),
  "8: what is of a lost session is never sent on": () => {
    let kept: MessageText | undefined;
    replace(Endpoint, "send", (self, send, text, ...rest) => {
      if (self.state.kind === "suspended") kept = text;
      return send(text, ...rest);
    });
    replace(Endpoint, "attach", (self, attach, ...args) => {
      if (self.state.kind === "connecting" && kept !== undefined) self.send(kept);
      attach(...args);
    });
  },
  "9: a session that its client has not confirmed outlives its socket": () =>
    replace(Endpoint, "detach", (self, detach, end) =>
      detach(self.state.kind === "greeting" ? { ...end, code: 1008 } : end),
    ),
  "10: another principal does not resume": () =>
    replace(TokenRegistry, "find", (_self, find, resume) => find(resume, CLIENT_NAME)),
  "bytes arrive unchanged": () =>
    replace(Session, "push", (_self, push, frame) => {
      if (typeof frame !== "string") frame[frame.length - 1]! ^= 1;
      push(frame);
    }),
  "bytes are copied before their sender may change them": () => replace(TextWithBytes, "keep", () => {}),
  "a broadcast ends no session": () =>
    replace(ServerLink, "send", (_self, send, text, handle, message) =>
      send(text, message === undefined ? handle : undefined),
    ),
  "broadcasts take no room from other messages": () => replaceGetter(HeldQueue, "broadcastLength", 0),
  "no report counts a dropped message twice": () =>
    replace(PackedLink, "missed", (_self, missed, count) => missed(count + 1)),
  "a dropped message is reported to the client": () => replace(Endpoint, "reportMissed", () => {}),
  "the report of dropped messages is replayed": () =>
    replace(Session, "push", (_self, push, frame) => push(String(frame).startsWith('{"missed"') ? "[]" : frame)),
  "the newest message of a key is the last that arrives": () => {
    replace(SendQueue, "replace", () => undefined);
    replace(SendQueue, "add", (self, add, text, handle) => {
      const { latest } = (handle ?? {}) as Partial<LatestHandle>;
      const isOld =
        latest !== undefined && [...self].some(([{ ...queued }]) => "latest" in queued && queued.latest === latest);
      return isOld ? undefined : add(text, handle);
    });
  },
  "a client that closes before `resumed` ends the session at the server": () =>
    replace(Endpoint, "close", (self, close, bye) => {
      if (self.state.kind === "resuming") self.detach({ code: 1006, reason: "" });
      return close(bye);
    }),
  "`reauthenticate` replaces the auth": () =>
    replace(ServerLink, "control", (self, control, frame) => {
      if ("auth" in frame) self.endpoint.sendControl(AUTHENTICATED);
      else control(frame);
    }),
  "`reauthenticate` resolves when its `auth` is accepted": () =>
    replace(ClientDriver, "reauthenticate", (_self, reauthenticate, renewal) => {
      const isTaken = reauthenticate(renewal);
      if (isTaken) renewal.settle(true);
      return isTaken;
    }),
  "`reauthenticate` tells whether its `auth` was sent": () =>
    replace(OutgoingCalls, "rejectAll", (self, rejectAll, ...args) => {
      for (let id = 1; id < 10_000; id++) {
        const call = self.get(id);
        if (call?.method === "$/reauthenticate") call.sent = false;
      }
      rejectAll(...args);
    }),
  "a client that is refused does not stay": () =>
    replace(Gate, "authenticate", async (_self, authenticate, ...args) => {
      const verdict = await authenticate(...args);
      const auth = "refusal" in verdict ? {} : verdict.admission.auth;
      return { admission: new Admission(auth, CLIENT_NAME, { principal: undefined, next: undefined }) };
    }),
  "a refusal of `reauthenticate` is 4401": () =>
    replace(Connection, "end", (_self, end, code, ...rest) => end(code === 4401 ? 4403 : code, ...rest)),
  "a resumed peer has a new auth": () =>
    replace(Sessions, "admit", (_self, admit, socket, principal, timeoutMs, accept, hooks) =>
      admit(socket, principal, timeoutMs, accept, { ...hooks!, resuming: () => undefined }),
    ),
  "`refresh` is emitted once": () =>
    replace(Sessions, "admit", (_self, admit, socket, principal, timeoutMs, accept, hooks) =>
      admit(socket, principal, timeoutMs, accept, {
        ...hooks!,
        resuming: (link) => {
          const resumed = hooks!.resuming!(link);
          return () => {
            resumed?.();
            resumed?.();
          };
        },
      }),
    ),
  "a call that may have run is not made again": () =>
    replace(Endpoint, "send", (_self, send, text, handle) => {
      const isTaken = send(text, handle);
      if (handle instanceof OutgoingCall && handle.again !== undefined) handle.sent = false;
      return isTaken;
    }),
  "a call that was not sent is made again": () =>
    replace(OutgoingCalls, "rejectAll", (_self, rejectAll, cause) => rejectAll(cause)),
  "a broadcast that is dropped is counted": () =>
    replace(
      ServerLink,
      "send",
      (_self, send, text, handle, message) => send(text, handle, message) || message !== undefined,
    ),
};

/** In several runs, none needed more than 20. */
const SEEDS = 100;
const SEEDS_OF_THE_SOURCES = 16;
const SIDE_BY_SIDE = 8;
const SIZE = { messages: 400, cuts: 20 };
const PATIENCE_MS = 30_000;
/** A fault that hangs has a shorter timeout. */
const LITTLE_PATIENCE_MS = 5_000;

/** Resolves with the first breach of any seed, or `undefined`. */
async function findings(seeds: number, patienceMs: number): Promise<string | undefined> {
  let found: string | undefined;
  let next = 1;
  const work = async (): Promise<void> => {
    while (found === undefined && next <= seeds) {
      const seed = next++;
      try {
        await play({ ...SIZE, seed, patienceMs });
      } catch (error) {
        found ??= `${error instanceof Breach ? "breach" : "crash"} of seed ${seed}: ${(error as Error).message}`;
      }
    }
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, work));
  return found;
}

describe("the oracle", () => {
  it("finds no breach if all rules are kept", { timeout: 120_000 }, async () => {
    expect(await findings(SEEDS_OF_THE_SOURCES, PATIENCE_MS)).toBeUndefined();
  });

  it.each(Object.entries(BROKEN))("detects a broken rule %s", { timeout: 120_000 }, async (_what, breakRule) => {
    breakRule();
    expect(await findings(SEEDS, LITTLE_PATIENCE_MS)).toMatch(/^breach/);
  });

  it("is tested with each of the ten rules", () => {
    const rules = new Set(Object.keys(BROKEN).map((what) => Number.parseInt(what)));
    expect([...rules].filter((rule) => rule > 0)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });
});
