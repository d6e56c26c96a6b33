/** The faults of a connection, from a cut at some byte to a thief with a token. */
import { sleep } from "../support/time.js";
import type { Line, Side } from "./proxy.js";
import { intrude, type Intrusion } from "./thief.js";
import { closeFrame, textFrame, type Unit } from "./units.js";
import { CLIENT_NAME } from "./traffic.js";
import type { World } from "./world.js";
import type { WireSession } from "./wiretap.js";
import { EXPIRED, type End } from "./oracle.js";

type Fault = (world: World) => Promise<unknown>;

/** How often the faults are drawn. The rarest ones end the session, and with it its calls. */
const BY_WEIGHT = [
  [12, ["cut"]],
  [8, ["reset"]],
  [6, ["cutInHandshake", "takeOver"]],
  [4, ["end", "freeze", "freezeAndCut", "silence", "loseAnswer", "loseAck", "lateResume", "closeInPassing"]],
  [3, ["serverLearnsFirst", "refuse", "reconnect"]],
  [2, ["floodWhileAway", "stealFromLive", "stealWhileAway", "stealAsAnother", "stealWithOld"]],
  [0.5, ["closeForGood", "poison", "loseHello"]],
  [0.4, ["stealForGood", "sendAway", "restart", "crash"]],
] as const;

export type FaultKind = (typeof BY_WEIGHT)[number][1][number];

export const FAULT_WEIGHTS = Object.fromEntries(
  BY_WEIGHT.flatMap(([weight, kinds]) => kinds.map((kind) => [kind, weight])),
) as Readonly<Record<FaultKind, number>>;

const PASSING = [undefined, 1000, 1001, 1011, 1012, 3000, 4000, 4999];
const FINAL = [1002, 1003, 1007, 1008, 1009, 1010, 1013];
const HOSTILE = ["[1,", '"text"', "1", '{"ack":-1}', '{"ack":9007199254740991}', '{"missed":0}', '{"missed":"1"}'];

export const FAULTS: Readonly<Record<FaultKind, Fault>> = {
  cut: async (world) => (await atByte(world)).cut(),
  reset: async (world) => (await atByte(world)).reset(),
  end: async (world) => (await atByte(world)).end(),
  async cutInHandshake(world) {
    let left = 1 + world.random.below(3);
    // A client whose session is unknown comes again at once, so the newest line is cut, and the next one is awaited in the same tick.
    const cut = (): void => {
      world.proxy.newest?.cut();
      if (left-- === 0) return;
      const side = sideOf(world);
      const bytes = world.random.below(side === "client" ? 300 : 700);
      onNextLine(world, (next) => {
        // The line might never pass that many bytes.
        const still = setTimeout(cut, STILL_MS);
        next.to(side).stopAfter(bytes, () => {
          clearTimeout(still);
          cut();
        });
      });
    };
    cut();
    await world.until("the client comes again, and is cut", () => left < 0);
  },
  async freeze(world) {
    const side = sideOf(world);
    const line = await atByte(world, side);
    await sleep(world.random.below(25));
    line.to(side).thaw();
  },
  async freezeAndCut(world) {
    const line = await atByte(world);
    await sleep(world.random.below(20));
    line.reset();
  },
  /** The client resumes while the server considers the old socket alive, and its last frames on that arrive afterwards. */
  async takeOver(world) {
    const { line, end } = await settled(world);
    line.toServer.freeze();
    await sleep(world.random.below(10));
    line.drop("client");
    await unlessLost(world, end, "the client comes back", () => hasLeft(world, line));
    line.toServer.thaw();
    const isClosed = (): boolean => line.wire.isClosedByServer || !line.has("server");
    await unlessLost(world, end, "the server closes the socket that was taken over", isClosed);
    await sleep(1);
    line.drop("server");
  },
  async serverLearnsFirst(world) {
    const { line } = await settled(world);
    line.toClient.freeze();
    await sleep(world.random.below(5));
    line.drop("server");
    await sleep(world.random.below(20));
    line.drop("client");
  },
  /** Both directions freeze. The client abandons the socket, which then delivers its frames. */
  async silence(world) {
    const { line, end } = await settled(world);
    line.toServer.freeze();
    line.toClient.freeze();
    await unlessLost(world, end, "the client comes back", () => hasLeft(world, line));
    line.toServer.thaw();
    line.toClient.thaw();
    await sleep(2);
    line.cut();
  },
  /** The server resumed the session, and `resumed` never reached the client. */
  loseAnswer: (world) => loseResuming(world, "client", has("resumed")),
  /** The client has `resumed`, and its ack has not reached the server. */
  loseAck: (world) => loseResuming(world, "server", (_unit, line) => line.wire.isResumed),
  /** A `resume` arrives when a later one has already resumed, and before its first ack. */
  async lateResume(world) {
    const { line, end } = await settled(world);
    let first: Line | undefined;
    let second: Line | undefined;
    onNextLine(world, (early) => {
      early.toServer.gate = ({ control }) => {
        if (control === undefined || !("resume" in control)) return;
        first = hold(early);
        onNextLine(world, (later) => {
          later.toServer.gate = () => {
            if (later.wire.isResumed) second = hold(later);
          };
        });
        early.drop("client");
      };
    });
    line.cut();
    await unlessLost(world, end, "a later `resume` is answered", () => second !== undefined);
    first?.toServer.thaw();
    const isRefused = (): boolean => first === undefined || isTurnedAway(first);
    await unlessLost(world, end, "the late `resume` is refused", isRefused);
    second?.toServer.thaw();
    first?.drop("server");
  },
  /** The server is unreachable for some attempts. */
  refuse: (world) => refuse(world, () => true),
  /** The same, while the client does not wait between its attempts. */
  reconnect: (world) => refuse(world, () => world.client.reconnect()),
  /** An intermediary closes the connection, with a code after which a client reconnects. */
  async closeInPassing(world) {
    const side = sideOf(world);
    (await settled(world)).line.forge(side, closeFrame(world.random.pick(PASSING), side === "server"));
  },
  /** A topic has more for a suspended peer than its queue limit: no session ends, and all other messages arrive. */
  async floodWhileAway(world) {
    const { end } = await whileAway(world, async () => {
      const { current } = world;
      const isAway = (): boolean => current.other?.suspendedAt !== undefined;
      await unlessLost(world, current, "the server knows that the client is away", isAway);
      world.flood();
    });
    await unlessLost(world, end, "the client goes on", () => world.isFlowing);
  },
  /** A second socket, with the token of a connected client: the newer evicts the older, and is evicted in turn. */
  async stealFromLive(world) {
    const { line, end } = await proven(world);
    line.toServer.freeze();
    const { session } = line.wire;
    const shown = stolen(session!);
    const intrusion = await intrude(world.port, CLIENT_NAME, shown);
    expectAccepted(world, session!, shown, intrusion);
    let code: number | undefined;
    void intrusion.closed.then((closed) => (code = closed));
    line.toServer.thaw();
    // The client was first, by its heartbeat. The server refuses the thief, and waits for its hello.
    if (intrusion.token === undefined) return intrusion.webSocket.terminate();
    await unlessLost(world, end, "the client evicts the thief", () => code !== undefined && hasLeft(world, line));
    // 4001: its credentials have expired before.
    if (code !== 4000 && code !== 4001 && !end.isOver) world.oracle.fail(`the thief was evicted with ${code}`);
    intrusion.webSocket.terminate();
  },
  async stealWhileAway(world) {
    const { session, end } = await whileAway(world, async (away) => {
      const shown = stolen(away);
      const intrusion = await intrude(world.port, CLIENT_NAME, shown);
      expectAccepted(world, away, shown, intrusion);
      await sleep(world.random.below(5));
      intrusion.webSocket.terminate();
    });
    const goesOn = (): boolean => world.isFlowing && world.tap.newest === session;
    await unlessLost(world, end, "the client goes on", goesOn);
  },
  /** The thief's principal matters too: another principal never affects the session. */
  async stealAsAnother(world) {
    const { session } = (await settled(world)).line.wire;
    await expectRefused(world, "bob", stolen(session!), "another principal was given the session");
  },
  /** A replaced token: its successor was confirmed, or issued again. */
  async stealWithOld(world) {
    const { session } = (await settled(world)).line.wire;
    const { tokens, shown, received, attempt } = session!;
    const old = tokens.slice(0, -1).filter((token) => token !== shown);
    if (shown === undefined || old.length === 0) return;
    const token = world.random.chance(0.5) ? old.at(-1)! : world.random.pick(old);
    const wrong = { token, received, attempt: attempt + 1_000 };
    await expectRefused(world, CLIENT_NAME, wrong, "a token was accepted that had been replaced");
  },
  /** If the thief acks, only the thief knows the token: the client must begin a new session, and reports the loss. */
  async stealForGood(world) {
    await proven(world);
    const steal = async (): Promise<void> => {
      let isLate = false;
      await whileAway(world, async (session) => {
        const shown = stolen(session);
        const { token, webSocket } = await intrude(world.port, CLIENT_NAME, shown);
        isLate = token === undefined && isTooLate(session, shown);
        if (isLate) return;
        if (token === undefined) return world.oracle.fail("the newest token was not accepted");
        webSocket.send(JSON.stringify({ ack: session.received }));
        await pong(webSocket);
        webSocket.terminate();
      });
      if (isLate) await steal();
    };
    await world.demandLoss("its token was stolen", steal);
  },
  async closeForGood(world) {
    const side = sideOf(world);
    const code = world.random.pick(FINAL);
    await endBy(world, `closed with ${code}`, (line) => line.forge(side, closeFrame(code, side === "server")));
  },
  async poison(world) {
    const side = sideOf(world);
    const text = world.random.pick(HOSTILE);
    await endBy(world, `poisoned with ${text}`, (line) => line.slipIn(side, textFrame(text, side === "server")));
  },
  /** The client has not closed for good: after 4001 it begins a new session. */
  async sendAway(world) {
    await settled(world);
    await world.until("the server knows the client", () => world.serverPeer !== undefined);
    const { current, serverPeer } = world;
    const { other } = current;
    await world.demandLoss("the server sent it away", () => void serverPeer!.close(4001, "begin anew"));
    // The client may learn of the close before the server has its answer.
    await world.until("the server's peer is over", () => other!.isOver);
  },
  /** The client has accepted the session in a hello that never reaches the server: the session continues, but see rule R9-4. */
  async loseHello(world) {
    await settled(world);
    const earlier = world.oracle.ends.length;
    let isReturning = false;
    const isLost = resetNext(world, "server", (unit, { wire }) => {
      isReturning = wire.isReturning === true;
      return acceptsSession(unit);
    });
    await FAULTS.sendAway(world);
    const { current } = world;
    await world.until("the client's hello is lost", isLost);
    await world.until("the client goes on", () => world.isFlowing || current.isOver);
    // The session may have expired before its client came again.
    const mayBeOver = isReturning || world.oracle.ends.slice(earlier).some(({ reason }) => reason === EXPIRED);
    if (current.isOver && !mayBeOver) world.oracle.fail("a session is over that the client's hello had not confirmed");
  },
  restart: (world) => restart(world, "the server was restarted", () => {}),
  /** The server dies with its unsent messages, and another one starts. */
  crash: (world) =>
    restart(world, "the server crashed", () => {
      world.proxy.refusals = Infinity;
      for (const line of world.proxy.lines) line.reset();
    }),
};

/** After this time a connection is faulted at its current byte. */
const STILL_MS = 15;
const PING_EVERY_MS = 2;

function sideOf(world: World): Side {
  return world.random.chance(0.5) ? "client" : "server";
}

/** Waits until a random direction of a connection has passed a random number of bytes, and freezes it there. */
async function atByte(world: World, side = sideOf(world)): Promise<Line> {
  const { random } = world;
  const bytes = random.chance(0.3) ? random.below(40) : random.below(3_000);
  for (;;) {
    await world.until("there is a connection", () => world.proxy.newest !== undefined);
    const line = world.proxy.newest!;
    const flow = line.to(side);
    let isReached: boolean | undefined;
    flow.stopAfter(bytes, () => (isReached = true));
    // The line might never pass that many bytes.
    const patience = performance.now() + STILL_MS;
    await world.until("so many bytes have passed", () => {
      if (!line.isWhole) isReached ??= false;
      else if (performance.now() > patience) isReached = true;
      return isReached !== undefined;
    });
    flow.freeze();
    if (line.isWhole) return line;
    flow.goOn();
  }
}

/** Resolves when a session flows, as both ends know, with its line and the client's end. */
async function settled(world: World): Promise<{ line: Line; end: End }> {
  await world.until("messages flow", () => world.isFlowing);
  return { line: world.proxy.newest!, end: world.current };
}

/** Ends the client's session by what `act` does to its line. If the line is lost before that is read, acts on the next one. */
async function endBy(world: World, why: string, act: (line: Line) => void): Promise<void> {
  await settled(world);
  await world.demandLoss(why, async () => {
    const { current } = world;
    while (!current.isOver) {
      const { line } = await settled(world);
      if (world.current === current) act(line);
      await world.until("the line is lost", () => current.isOver || hasLeft(world, line));
    }
  });
}

/** Waits until the server also has the client's hello or `resume`. */
async function proven(world: World): ReturnType<typeof settled> {
  await world.until("the server has the client's hello", () => world.isFlowing && world.current.isProven);
  return settled(world);
}

export function has(name: string): (unit: Unit) => boolean {
  return ({ control }) => control !== undefined && name in control;
}

/** Returns whether a unit is the hello with which a client accepts a session, and not the one with its `auth`. */
function acceptsSession({ control }: Unit): boolean {
  return (control?.["hello"] as { session?: unknown } | undefined)?.session === true;
}

/** Resets the client's next connection before the first unit that `matches`. Returns a function that tells whether it has. */
function resetNext(world: World, side: Side, matches: (unit: Unit, line: Line) => boolean): () => boolean {
  let isLost = false;
  onNextLine(world, (next) => {
    next.to(side).gate = (unit) => {
      if (!matches(unit, next)) return;
      isLost = true;
      next.reset();
    };
  });
  return () => isLost;
}

/** Cuts the client, and resets the connection on which it resumes. */
async function loseResuming(world: World, ...what: [Side, (unit: Unit, line: Line) => boolean]): Promise<void> {
  const { line, end } = await settled(world);
  const isLost = resetNext(world, ...what);
  line.cut();
  await unlessLost(world, end, "the reply or its ack is lost", isLost);
}

/** Cuts the client, and refuses some of its attempts. Meanwhile, `act` must return true. */
async function refuse(world: World, act: () => boolean): Promise<void> {
  world.proxy.refusals = 1 + world.random.below(3);
  world.proxy.newest?.cut();
  await world.until("the client has tried", () => {
    if (!act()) world.oracle.fail("`reconnect` of the client returned false");
    return world.proxy.refusals === 0;
  });
}

async function restart(world: World, why: string, begin: () => void): Promise<void> {
  await settled(world);
  await world.demandLoss(why, async () => {
    for (const end of world.oracle.ends) if (!end.isOver) end.reason ??= why;
    begin();
    await world.server.close();
    await world.serve();
    world.proxy.refusals = 0;
  });
}

/** Calls `injectFault` with the next connection when it is accepted. */
export function onNextLine(world: World, injectFault: (line: Line) => void): void {
  world.tap.onOpened = (line) => {
    world.tap.onOpened = undefined;
    injectFault(line);
  };
}

function hasLeft(world: World, old: Line): boolean {
  return world.isFlowing && world.proxy.newest !== old;
}

function hold(line: Line): Line {
  line.toServer.gate = undefined;
  line.toServer.freeze();
  return line;
}

function isTurnedAway(line: Line): boolean {
  const { isClosedByServer, isRefused } = line.wire;
  return isClosedByServer || isRefused || !line.has("server");
}

/** Waits for an event that cannot happen if the client's session has ended for a reason. */
async function unlessLost(world: World, session: End, what: string, holds: () => boolean): Promise<void> {
  await world.until(`${what}, or the session is lost`, () => holds() || session.isOver);
  world.tap.onOpened = undefined;
}

/** What a thief shows: the client's token, and a count that the client has sent. */
type Stolen = Parameters<typeof intrude>[2];

function stolen({ held, received, attempt }: WireSession): Stolen {
  return { token: held!, received, attempt: attempt + 1 };
}

/** Returns whether the client has reconnected before the thief, by its heartbeat. */
function isTooLate(session: WireSession, shown: Stolen): boolean {
  return session.attempt >= shown.attempt;
}

/** Expects that the thief was given the session of the client's end. */
function expectAccepted(world: World, session: WireSession, shown: Stolen, { token }: Intrusion): void {
  if (token !== undefined) world.tap.given(session, token);
  else if (!isTooLate(session, shown)) world.oracle.fail("the newest token was not accepted");
}

async function expectRefused(world: World, name: string, shown: Stolen, breach: string): Promise<void> {
  const { token, webSocket } = await intrude(world.port, name, shown);
  if (token !== undefined) world.oracle.fail(breach);
  webSocket.terminate();
}

/** Keeps the client disconnected while `act` runs with its session. */
async function whileAway(world: World, act: (session: WireSession, end: End) => Promise<unknown>) {
  const { line, end } = await proven(world);
  const session = line.wire.session!;
  world.proxy.refusals = Infinity;
  line.cut();
  await act(session, end);
  world.proxy.refusals = 0;
  return { session, end };
}

/**
 * Resolves when the server has read all earlier frames. Pings until one is answered: a server answers none while 64 KiB are unsent,
 * and after `floodWhileAway` it replays more than that to the thief.
 */
async function pong(socket: Intrusion["webSocket"]): Promise<void> {
  const pinging = setInterval(() => socket.send('{"ping":7}'), PING_EVERY_MS);
  await new Promise<void>((resolve) => {
    socket.on("message", (data: Buffer) => {
      if (data.toString() === '{"pong":7}') resolve();
    });
    socket.once("close", () => resolve());
  });
  clearInterval(pinging);
}
