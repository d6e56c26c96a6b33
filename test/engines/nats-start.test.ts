/** How the engine starts and closes over NATS, and which servers and users it refuses. */
import { describe, expect, it, vi } from "vitest";
import { type NatsOptions } from "../../src/nats/index.js";
import { managed, NatsServer, type NatsServerOptions } from "../support/nats.js";
import { Relay } from "../support/relay.js";
import { outcomeOf, refusalOf, TestNode, use, watchHandles } from "./kit.js";
import { linesOf, natsRig, rightsOf, useNats } from "./nats-rig.js";

const FEW = { username: "few", password: "se:cret" };
const PREFIX = "test-rights";
const { own, streams } = rightsOf(PREFIX);

const nats = useNats();
const { rigOf, relayed } = nats;

async function start(options: NatsServerOptions): Promise<NatsServer> {
  return use(await NatsServer.create(options));
}

/** Resolves with the text of the error with which a node of these options does not open. */
async function reasonOf(options: NatsOptions): Promise<string> {
  return (await refusalOf(natsRig(options).engine())).message;
}

describe("the engine nats, at the start", () => {
  it("tries again if the login came too late for the server", async () => {
    const server = await start({ lines: [`authorization { user: few, password: "se:cret", timeout: 0.5 }`] });
    const relay = use(await Relay.to(server.port));
    relay.pause("client");
    const node = use(new TestNode(natsRig({ url: `nats://127.0.0.1:${relay.port}`, ...FEW }).engine()));
    const opened = node.connection.open();
    await Promise.race([node.untilDown(), opened]);
    expect(node.downs[0]!.message).toMatch(/authentication timeout/i);
    relay.mend();
    await opened;
  });

  it("names the rights that its user lacks, and changes nothing", async () => {
    const reasonWith = async (publish: string[], more: object, subscribe?: string[]): Promise<string> => {
      await using refusing = await NatsServer.create({ lines: linesOf(PREFIX, publish, subscribe) });
      const reason = await reasonOf({ ...FEW, prefix: PREFIX, url: refusing.url, ...more });
      expect(await managed(refusing.url, (manager) => manager.streams.names().next())).toEqual([]);
      return reason;
    };
    const published = await reasonWith([`${PREFIX}.1.n.>`, ...streams], {});
    for (const kind of ["t", "u", "a"]) expect(published).toContain(`Publish to "${PREFIX}.1.${kind}.="`);
    expect(published).not.toContain(`${PREFIX}.1.n.=`);
    const subscribed = await reasonWith([...own, ...streams], {}, [`${PREFIX}.1.r.>`, `${PREFIX}.1.t.>`]);
    for (const kind of ["u", "n", "a"]) expect(subscribed).toContain(`Subscription to "${PREFIX}.1.${kind}.="`);
    const kept = streams.filter((right) => !right.includes("MSG"));
    const read = await reasonWith([...own, ...kept], { jetstream: {} });
    expect(read).toContain(`$JS.API.STREAM.MSG.GET.${PREFIX}_1_l`);
    expect(read).not.toContain("PURGE");
    const changed = await reasonWith([...own, "$JS.API.INFO", "$JS.API.STREAM.INFO.*"], { jetstream: {} });
    for (const right of ["CREATE", "UPDATE", "PURGE"])
      expect(changed).toContain(`$JS.API.STREAM.${right}.${PREFIX}_1_l`);
  });

  it("is down while its user has lost a right, and up again with it", async () => {
    const lines = linesOf(PREFIX, [...own, ...streams]);
    const refusing = await start({ lines });
    const rig = natsRig({ url: refusing.url, ...FEW, prefix: PREFIX, jetstream: {} }, refusing);
    const node = await TestNode.open(rig.engine());
    await refusing.reload(linesOf(PREFIX, streams));
    while (!node.downs.some(({ message }) => message.includes("Permissions Violation"))) {
      await outcomeOf(node.connection.send("a:all", "x"));
      await refusing.names();
    }
    await refusing.reload(lines);
    await node.untilHeard();
    expect(await outcomeOf(node.connection.send("a:all", "again"))).toBe("done");
  });

  it("rejects a subscription beyond the maximum of the server, and keeps the others", async () => {
    const limited = await start({ lines: ["max_subscriptions: 20"] });
    const node = await TestNode.open(natsRig({ url: limited.url, jetstream: {} }, limited).engine());
    const outcomes: string[] = [];
    while (outcomes.at(-1) !== "not-sent" && outcomes.length < 20)
      outcomes.push(await outcomeOf(node.connection.subscribe(`t:${outcomes.length}`)));
    expect(outcomes.pop()).toBe("not-sent");
    expect(new Set(outcomes)).toEqual(new Set(["done"]));
    await node.connection.send("t:0", "x");
    expect(await node.until("t:0", 1)).toEqual(["x"]);
    expect(node.downs).toEqual([]);
    node.connection.unsubscribe("t:0");
    expect(await outcomeOf(node.connection.subscribe("t:another"))).toBe("done");
  });

  it("rejects a server without JetStream, without enough servers, or for short messages only, at once", async () => {
    const short = await start({ lines: ["max_payload: 8KB"] });
    expect(await reasonOf({ url: short.url })).toMatch(/max_payload.*16384 bytes/);
    const { url } = await start({ jetstream: false });
    expect(await reasonOf({ url, jetstream: {} })).toMatch(/jetstream/i);
    expect(await reasonOf({ url: nats.server.url, jetstream: { replicas: 3 } })).toMatch(/replicas/);
  });

  it("does not start without one of its streams", async () => {
    const limits = "max_mem: 256MB, max_streams: 1";
    const { url } = await start({
      lines: [`accounts { A { users: [{ user: few, password: "se:cret" }], jetstream: { ${limits} } } }`],
    });
    const node = use(new TestNode(natsRig({ url, ...FEW, jetstream: {} }).engine()));
    const opened = outcomeOf(node.connection.open());
    await node.untilDown(3);
    expect(node.downs.at(-1)!.message).toMatch(/streams/);
    await node.connection.close();
    expect(await opened).toBe("not-sent");
  });

  it("begins the streams once, if many nodes start at the same time", async () => {
    const rig = rigOf();
    const nodes = await Promise.all(Array.from({ length: 8 }, (_, i) => TestNode.open(rig.engine(), `node${i}`)));
    const positions = await Promise.all(nodes.map((node) => node.append("x")));
    expect(new Set(positions.map(({ epoch }) => epoch)).size).toBe(1);
    expect(new Set(positions.map(({ offset }) => offset))).toEqual(new Set(positions.map((_, i) => i + 1)));
  });

  it("begins a stream once, if another node has just begun it", async () => {
    const rig = rigOf();
    const [one, two] = [await relayed(rig), await relayed(rig)];
    // The first node has said where the life begins, and has not begun it.
    const updated = one.wire.hold(new RegExp(`stream_update_response.*"name":"${rig.prefix}_1_l"`));
    const first = TestNode.open(one.rig.engine());
    await updated.taken;
    // The second one asks before that, and looks for what the first one has said after it.
    const aboutLog = (): RegExp => new RegExp(`stream_info_response.*"name":"${rig.prefix}_1_l"`);
    const rights = two.wire.hold(aboutLog());
    const second = TestNode.open(two.rig.engine());
    await rights.taken;
    const info = two.wire.hold(aboutLog());
    rights.release();
    await info.taken;
    updated.release();
    await first;
    const life = (): Promise<string | undefined> =>
      managed(nats.server.url, async (manager) => (await manager.streams.info(`${rig.prefix}_1_l`)).config.description);
    const begun = await life();
    info.release();
    await second;
    expect(await life()).toBe(begun);
  });
});

describe("the engine nats, when it closes while it starts", () => {
  it("leaves no socket of an attempt that times out, and none of one that goes on", async () => {
    vi.unstubAllGlobals();
    const { relay, rig } = await relayed(rigOf());
    // As a server that accepts connections and sends nothing.
    relay.pass = () => undefined;
    const untilReleased = watchHandles();
    const node = new TestNode(rig.engine());
    const opened = outcomeOf(node.connection.open());
    await expect.poll(() => relay.lines.size).toBe(1);
    const [first] = relay.lines;
    await node.untilDown();
    await expect.poll(() => first!.has("client")).toBe(false);
    await expect.poll(() => relay.lines.size).toBe(1);
    await node.connection.close();
    expect(await opened).toBe("not-sent");
    await untilReleased();
  });

  it("leaves no connection at any moment of its start", async () => {
    const rig = rigOf();
    const later = globalThis.setImmediate;
    // The last step of a start waits for `setImmediate`. Closes a number of microtasks after it.
    for (let microtasks = 0; microtasks < 16; microtasks++) {
      const node = new TestNode(rig.engine());
      let started: () => void;
      const isStarted = new Promise<void>((resolve) => (started = resolve));
      let closed: Promise<void> | undefined;
      const spy = vi.spyOn(globalThis, "setImmediate").mockImplementation((run: () => void) =>
        later(async () => {
          run();
          for (let i = 0; i < microtasks; i++) await Promise.resolve();
          closed ??= node.connection.close();
          started();
        }),
      );
      const opened = await outcomeOf(node.connection.open());
      spy.mockRestore();
      await isStarted;
      await closed;
      // Done if the start has ended before.
      expect(["not-sent", "done"]).toContain(opened);
      await expect(node.connection.send("a:all", "x")).rejects.toMatchObject({ outcome: "not-sent" });
      await expect.poll(async () => (await nats.server.names()).join()).not.toContain(node.name);
    }
  });
});
