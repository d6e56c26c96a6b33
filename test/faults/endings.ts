/** How a world ends: which side closes, live or suspended, and what the other side must report. */
import type { AuthRefusal } from "./credentials.js";
import { has, onNextLine } from "./faults.js";
import type { Line } from "./proxy.js";
import type { World } from "./world.js";

export type EndingKind =
  "clientCloses" | "serverCloses" | "clientClosesAway" | "clientClosesReturning" | "vanish" | "drain" | "authRefused";

/** The endings that wait for a session to expire. */
export const WAITING: ReadonlySet<EndingKind> = new Set(["clientClosesAway", "vanish"]);

export const ENDINGS: Readonly<Record<EndingKind, (world: World) => Promise<unknown>>> = {
  async clientCloses(world) {
    const { current, client } = world;
    current.reason ??= "the client closes";
    void client.close();
    await world.until("both ends are over", () => current.isOver && current.other!.isOver);
  },
  /** A client that is closed with 1000 does not reconnect. */
  async serverCloses(world) {
    const { current, client, serverPeer } = world;
    current.reason ??= "the server closes";
    void serverPeer!.close();
    // A client whose heartbeat disconnected it earlier cannot know the close. It finds no session, and begins another.
    const isAnother = (): boolean => world.hasHeartbeat && world.current !== current;
    await world.until("the client is closed for good", () => client.state === "closed" || isAnother());
    if (client.state === "closed" && !current.isOver) world.oracle.fail("the close was not reported");
    world.current.reason ??= "the client closes";
    void client.close();
  },
  async clientClosesAway(world) {
    const { current, client } = world;
    world.proxy.refusals = Infinity;
    world.proxy.newest?.cut();
    await world.until("the client is suspended", () => client.state === "suspended");
    current.reason ??= "the client closes";
    const { other } = current;
    void client.close();
    if (!current.isOver) world.oracle.fail("close() while suspended did not settle at once");
    await world.until("the server gives up who does not come back", () => other!.isOver);
    world.proxy.refusals = 0;
  },
  /** The server has resumed the session, and the client closes before it can know that. */
  async clientClosesReturning(world) {
    const { current, client } = world;
    const { other } = current;
    let held: Line | undefined;
    onNextLine(world, (line) => {
      line.toClient.gate = (unit) => {
        if (!has("resumed")(unit)) return;
        held = line;
        line.toClient.freeze();
      };
    });
    world.proxy.newest?.cut();
    await world.until("the server has resumed", () => held !== undefined);
    current.reason ??= "the client closes";
    void client.close();
    await world.until("the server knows that the client has closed", () => other!.isOver);
    if (other!.closedWith !== 1000) world.oracle.fail(`the server's peer was closed with ${other!.closedWith}`);
    held!.toClient.gate = undefined;
    held!.toClient.thaw();
    await world.until("the client is closed", () => current.isOver);
  },
  /** The server does not accept a fresh `auth`. */
  async authRefused(world) {
    const { current, client, credentials, random } = world;
    current.reason ??= "its `auth` is refused";
    credentials.refusal = random.pick<AuthRefusal>(["unknown user", "other user"]);
    const { other } = current;
    await credentials.renew({ end: current, peer: client });
    await world.until("both ends are over", () => current.isOver && other!.isOver);
    // A client whose heartbeat disconnected it earlier cannot know the close, and then finds no session.
    const isCutOff = world.hasHeartbeat && current.closedWith === undefined;
    for (const { side, closedWith } of isCutOff ? [other!] : [current, other!])
      if (closedWith !== 4401) world.oracle.fail(`the ${side} was closed with ${closedWith}, not with 4401`);
  },
  async vanish(world) {
    const { current, client } = world;
    world.proxy.refusals = Infinity;
    world.proxy.newest?.cut();
    await world.until("both ends are over in their time", () => current.isOver && current.other!.isOver);
    world.current.reason ??= "the client closes";
    void client.close();
  },
  async drain(world) {
    const { current, client, server } = world;
    current.reason ??= "the server goes away";
    world.proxy.refusals = Infinity;
    await server.drain({ timeoutMs: world.plan.patienceMs, retryMs: 5 });
    // A client whose heartbeat disconnected it earlier cannot know the close.
    const isCutOff = (): boolean => world.hasHeartbeat && client.state === "suspended";
    await world.until("the client knows", () => current.isOver || isCutOff());
    world.current.reason ??= "the client closes";
    void client.close();
  },
};
