/**
 * The oracle, shown to work: each rule of the session is taken out of the sources in turn, and the model must notice.
 */
import { rmSync } from "node:fs";
import { afterAll, describe, expect, it, vi } from "vitest";
import { useFakeClock } from "../../support/clock.js";
import { explore } from "./model.js";
import { Mutator, type Change } from "./mutate.js";

useFakeClock();

const SEED = 20_261;
const RUNS = 3000;

const mutator = new Mutator();
afterAll(() => rmSync(mutator.folder, { recursive: true }));

function advance(ms: number): void {
  vi.advanceTimersByTime(ms);
}

async function findings(change?: Change): Promise<string | undefined> {
  const modules = await mutator.modules(change);
  const found = await explore(modules, { runs: RUNS, seed: SEED, shrinks: false, advance });
  vi.clearAllTimers();
  return found;
}

/** By rule of docs/PROTOCOL.md: what is taken out, and how. */
const MUTANTS: [what: string, file: string, find: string, replace: string][] = [
  [
    "1: a returning client sends only `resume` until `resumed`",
    "packed.ts",
    `    this.#incoming = "resuming";
    this.#out.say(frame);`,
    `    this.#incoming = "resuming";
    this.#out.say(frame);
    this.#out.flow();`,
  ],
  [
    "1: a data frame before `resumed` is a breach",
    "packed.ts",
    `|| Array.isArray(frame)) this.breakOff("data before \`resumed\`");`,
    `) this.breakOff("data before \`resumed\`");
    else if (Array.isArray(frame)) this.#takePack(frame, text.length);`,
  ],
  [
    "1: who returns says `resume` or a hello, and nothing else",
    "sessions.ts",
    "else if (isHello(text)) this.#begin(text);",
    "else if (isHello(text) || !text.includes('resume')) this.#begin(text);",
  ],
  [
    "1: after a refusal a hello follows",
    "sessions.ts",
    "if (resume === undefined || this.#isRefused) return",
    "if (resume === undefined) return",
  ],
  [
    "2: the old socket's frames are not read",
    "packed.ts",
    "if (this.#out.socket === socket) this.#take(text);",
    "this.#take(text);",
  ],
  [
    "2: the old socket's end is not told",
    "packed.ts",
    "if (this.#out.socket === socket) this.#lose(info);",
    "this.#lose(info);",
  ],
  ["2: the old socket is closed", "packed.ts", "this.#out.drop()?.close(LEFT, reason);", "this.#out.drop();"],
  [
    "2: the old socket is left before `received` is read",
    "sessions.ts",
    "const handler = this.link.attach(socket);\n    this.#sessions.release(this);",
    "const handler = this.link.attach(socket);\n    this.link.session!.received--;\n    this.#sessions.release(this);",
  ],
  ["3: a stale attempt is not taken", "sessions.ts", "if (attempt <= this.#attempt) return false;", ""],
  [
    "3: a stale attempt leaves the session alone",
    "sessions.ts",
    "if (attempt <= this.#attempt) return false;",
    'if (attempt <= this.#attempt) return this.link.expire(1006, ""), false;',
  ],
  ["3: attempts grow", "client.ts", "attempt: ++this.#attempt", "attempt: 1"],
  [
    "3: a socket takes one `resume`",
    "sessions.ts",
    `if ("resume" in frame) this.link.breakOff(`,
    `if ("never" in frame) this.link.breakOff(`,
  ],
  ["4: a token is new at each resume", "client.ts", "this.#token = resumed.token;", ""],
  [
    "4: the newest unconfirmed token is accepted",
    "sessions.ts",
    "    this.#sessions.accept(this.#successor, this);",
    "    if (this.#confirmed === undefined) this.#sessions.accept(this.#successor, this);",
  ],
  [
    "4: the confirmed token is accepted until its successor is acked",
    "sessions.ts",
    "    this.#sessions.reject(this.#successor);\n    this.#successor = options.hash(token);",
    "    this.#sessions.reject(this.#successor);\n    this.#sessions.reject(this.#confirmed);\n    this.#successor = options.hash(token);",
  ],
  [
    "4: an unconfirmed token that was replaced is not accepted",
    "sessions.ts",
    "    this.#sessions.reject(this.#successor);\n    this.#successor = options.hash(token);",
    "    this.#successor = options.hash(token);",
  ],
  [
    "4: a confirmed token that was replaced is not accepted",
    "sessions.ts",
    "    this.#sessions.reject(this.#confirmed);\n    this.#confirmed = this.#successor;",
    "    this.#confirmed = this.#successor;",
  ],
  [
    "4: the client acks `session` at once",
    "client.ts",
    "    this.link.ack();\n    this.#owner.flows(true);",
    "    this.#owner.flows(true);",
  ],
  [
    "4: the client acks `resumed` at once",
    "client.ts",
    "    this.link.ack();\n    this.link.resume(resumed.received);",
    "    this.link.resume(resumed.received);",
  ],
  [
    "5: replay begins behind what was received",
    "session.ts",
    "    this.log.ackTo(received);\n    this.next = received + 1;",
    "    this.log.ackTo(received - 1);\n    this.next = this.log.acked + 1;",
  ],
  ["5: replay leaves nothing out", "session.ts", "this.next = received + 1;", "this.next = received + 2;"],
  [
    "5: what waits leaves behind what is replayed",
    "outbox.ts",
    "    if (this.session !== undefined) this.#write(this.session);\n    for (",
    "    for (",
  ],
  [
    "5: new messages wait behind what waits",
    "outbox.ts",
    "    if (!this.#isBlocked) this.#makeRoom(text);\n    return this.#isBlocked ?",
    "    if (!this.#isBlocked) this.#makeRoom(text);\n    return this.#isBlocked && !this.#isFlowing ?",
  ],
  ["5: a late ack is ignored", "log.ts", "if (count <= this.#acked) return;", ""],
  [
    "5: an ack of what was never sent is a breach",
    "packed.ts",
    "if (!isCount(count) || count >= session.next)",
    "if (!isCount(count))",
  ],
  [
    "5: an ack is a count",
    "packed.ts",
    "if (!isCount(count) || count >= session.next)",
    "if (Number(count) >= session.next)",
  ],
  ["5: a count below the log ends the session", "session.ts", "return received >= this.log.acked && (", "return ("],
  [
    "5: a count above what was sent ends the session",
    "session.ts",
    "return received >= this.log.acked && (",
    "return received >= this.log.acked || (",
  ],
  [
    "6: a breach of the protocol ends the session",
    "packed.ts",
    "    this.#end = { code, reason };\n    this.#keeper?.drop();\n    this.#out.socket?.close(code, reason);",
    "    this.#out.socket?.close(LEFT, reason);",
  ],
  ["6: final closes end the session", "session.ts", "code === 1002 || code === 1003 ||", ""],
  ["6: final closes of a standard WebSocket end the session", "session.ts", "|| (code >= 4400 && code < 4500)", ""],
  ["6: other closes do not", "session.ts", "code === 1013 || ", "code >= 1000 || "],
  [
    "6: bye ends the session",
    "packed.ts",
    `else if ("bye" in frame) this.#farewell(frame.bye);\n    else this.#keeper.control(frame);`,
    "else this.#keeper.control(frame);",
  ],
  ["6: who closes says bye", "outbox.ts", "    this.say(bye);", ""],
  [
    "6: what the other side does not take is not logged",
    "outbox.ts",
    "if (this.session !== undefined && exceeds(text, this.session.maxMessageBytes)) return false;",
    "",
  ],
  [
    "7: a call that waits can be taken back",
    "outbox.ts",
    "const cost = this.#waiting?.remove(ticket) ?? 0;",
    "const cost = this.#waiting === undefined || ticket.sent ? 0 : 1;",
  ],
  ["7: a message that waits was not sent", "outbox.ts", "if (ticket !== undefined) ticket.sent = true;", ""],
  [
    "7: nothing is numbered above high water",
    "outbox.ts",
    "const isFull = this.socket!.unsentBytes >= this.#keeper!.limits.highWaterBytes;",
    "const isFull = false;",
  ],
  ["7: a full socket is looked at again", "outbox.ts", "    if (isFull) setDeadline(this, DRAIN_CHECK_MS);", ""],
  ["7: the log is bounded", "outbox.ts", "if (!isFull && !log.isFull) return;", "if (!isFull) return;"],
  ["7: the log is bounded in frames", "log.ts", "this.#frames.length >= this.#maxFrames ||", ""],
  ["7: the log is bounded in length", "log.ts", "|| this.#length >= this.#maxLength", ""],
  [
    "7: what waits is bounded",
    "outbox.ts",
    "if (this.#waits(text) > this.#keeper!.limits.waitingLength) {",
    "if (this.#isOver) {",
  ],
  [
    "7: too much ends the session",
    "packed.ts",
    "if (this.session === undefined || this.#end !== undefined) return;",
    "if (this.#end === undefined) return;",
  ],
  [
    "7: acks are sent on receipt",
    "packed.ts",
    "if (this.session?.takes(text.length)) this.#out.ack();",
    "this.session?.takes(text.length);",
  ],
  ["7: acks are due by frames", "session.ts", "return this.#owedFrames >= Math.floor(frames) || ", "return "],
  ["7: acks are due by length", "session.ts", " || this.#owedLength >= Math.floor(length);", ";"],
  ["8: close() while suspended settles at once", "packed.ts", "      this.#tellEnd({ code, reason });", ""],
  [
    "8: close() drops the token",
    "packed.ts",
    "    this.#isClosed = true;\n    this.#keeper?.drop();",
    "    this.#isClosed = true;",
  ],
  ["8: the server's session ends in time", "sessions.ts", "    setDeadline(session, this.options.ttlMs);", ""],
  ["8: the client's session ends in time", "client.ts", "    setDeadline(this, this.#ttlMs);", ""],
  [
    "8: a client that is refused is told that it lost its session",
    "packed.ts",
    "else this.#receiver.lost(new Error(reason));",
    "",
  ],
  [
    "8: a client that is refused begins anew",
    "client.ts",
    'if (this.#letGo("the server has no such session any more")) this.#want();',
    'this.#letGo("the server has no such session any more");',
  ],
  [
    "8: what is of a lost session is never sent on",
    "packed.ts",
    "    this.#out.forget();\n    if (this.#incoming",
    "    if (this.#incoming",
  ],
  [
    "8: what is sent while a loss is told is never sent on",
    "packed.ts",
    "      this.#out.forget();\n      if (!this.#isClosed) this.#receiver.lost(",
    "      if (!this.#isClosed) this.#receiver.lost(",
  ],
  [
    "8: who loses its connection was told that it is suspended",
    "packed.ts",
    "      this.#suspend();\n      // Once more",
    "      // Once more",
  ],
  ["8: who goes on is told that messages flow", "packed.ts", "    this.#receiver.resumed?.();", ""],
  [
    "8: who goes on is told so only where it was suspended",
    "packed.ts",
    "if (!this.#isSuspended || this.#isClosed) return;",
    "if (this.#receiver === undefined || this.#isClosed) return;",
  ],
  [
    "8: a loss in the middle of a pack keeps the rest from the connection that is over",
    "packed.ts",
    'if (this.#receiver !== receiver || this.#incoming === "over") return;',
    "",
  ],
  [
    "8: a loss in the middle of a pack keeps the rest from the connection that goes on",
    "packed.ts",
    'receiver.dispatch(message);\n      // One that is lost while it takes these hands over to another, and they are not for that one.\n      if (this.#receiver !== receiver || this.#incoming === "over") return;',
    "this.#receiver.dispatch(message);",
  ],
  [
    "9: a session whose token was never acked ends with its socket",
    "sessions.ts",
    "return this.#confirmed !== undefined;",
    "return this.link.session !== undefined;",
  ],
  [
    "10: another principal does not resume",
    "sessions.ts",
    "if (session === undefined || session.principal !== principal) return undefined;",
    "if (session === undefined) return undefined;",
  ],
  [
    "10: another principal leaves the session alone",
    "sessions.ts",
    "if (session === undefined || session.principal !== principal) return undefined;",
    "if (session?.principal !== principal) session?.expire();\n    if (session === undefined || session.principal !== principal) return undefined;",
  ],
];

describe("the model", () => {
  it("finds nothing in the sources as they are", async () => {
    expect(await findings()).toBeUndefined();
  });

  it.each(MUTANTS)("notices without rule %s", async (_what, file, find, replace) => {
    expect(await findings({ file, find, replace })).toMatch(/^breach/);
  });
});
