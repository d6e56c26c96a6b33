/** An engine in memory whose connections a test disturbs: frames are lost or late, commands wait or fail, leases expire. */
import {
  EngineError,
  type Channel,
  type Engine,
  type EngineConnection,
  type EngineHost,
  type EngineSettings,
  type Incarnation,
} from "../../src/fleet/engine.js";
import { inspectMemory, memory } from "../../src/fleet/memory.js";
import { gate, type Gate } from "../support/turns.js";

/** The engine of several nodes. */
export class FaultyEngine implements Engine {
  readonly name = "faulty";
  readonly settings: EngineSettings;
  readonly inner = memory();
  /** The connections of the nodes, in the order in which the servers were made. */
  readonly links: FaultyLink[] = [];
  readonly lacks: readonly ("log" | "roster")[];
  /** The incarnations whose leases have expired. */
  readonly given: Set<Incarnation> = new Set();
  /** Whether a node may receive a frame that the broker counts as received by none. */
  undercounts = false;
  /** Whether the broker reports how many nodes have received a frame. */
  counts = true;
  /** Settings of the broker that weaken a promise, as they are when a node connects. */
  unmet: string[] = [];
  /** Makes `open` of the next connections wait for `up`. */
  isLate = false;

  constructor(settings: EngineSettings = {}, lacks: readonly ("log" | "roster")[] = []) {
    this.settings = settings;
    this.lacks = lacks;
  }

  createConnection(node: string, host: EngineHost): EngineConnection {
    const link = new FaultyLink(this, node, host);
    this.links.push(link);
    return link;
  }

  /** What is left in the broker, without logs. */
  leftovers(): string[] {
    return inspectMemory(this.inner).filter((text) => !text.startsWith("log "));
  }
}

/** The connection of one node. */
export class FaultyLink implements EngineConnection {
  readonly node: string;
  readonly host: EngineHost;
  readonly log: EngineConnection["log"];
  readonly roster: EngineConnection["roster"];
  /** Decides which frames are lost on the way to this node. */
  loses: (channel: Channel, frame: string) => boolean = () => false;
  /** Returns how many nodes the broker counts, of those that have received a frame. */
  counted = (count: number | undefined): number | undefined => count;
  /** Called before each command; may throw, or return a promise that the command waits for. */
  before: (command: string) => unknown = () => {};
  /** Called after each command, before it is answered; may throw, or return a promise that the answer waits for. */
  after: (command: string) => unknown = () => {};
  /** The commands so far. */
  readonly commands: string[] = [];
  reconnects = 0;
  /** What `open` waits for. */
  readonly #opening: Gate<void> | undefined;
  readonly #engine: FaultyEngine;
  readonly #inner: EngineConnection;
  #held: (() => void)[] | undefined;
  /** Whether the connection is lost. */
  isDown = false;

  constructor(engine: FaultyEngine, node: string, host: EngineHost) {
    this.node = node;
    this.host = host;
    this.#engine = engine;
    if (engine.isLate) this.#opening = gate();
    const inner = engine.inner.createConnection(node, {
      ...host,
      received: (channel, frame) => {
        if (this.isDown || this.loses(channel, frame)) return;
        if (this.#held === undefined) host.received(channel, frame);
        else this.#held.push(() => host.received(channel, frame));
      },
    });
    this.#inner = inner;
    if (!engine.lacks.includes("log"))
      this.log = {
        append: (...args) => this.#run("append", () => inner.log!.append(...args)),
        read: (...args) => this.#run("read", () => inner.log!.read(...args)),
      };
    if (!engine.lacks.includes("roster"))
      this.roster = {
        put: (...args) => this.#run("put", () => inner.roster!.put(...args)),
        list: (...args) => this.#run("list", () => inner.roster!.list(...args)),
        enter: (...args) => this.#run("enter", () => inner.roster!.enter(...args)),
        beat: (incarnation, leaseMs) =>
          this.#run("beat", async () => {
            const state = await inner.roster!.beat(incarnation, leaseMs);
            const live = state.live.filter((one) => !engine.given.has(one));
            return engine.given.has(incarnation) ? { isMine: false, live: [] } : { ...state, live };
          }),
      };
  }

  async open(): ReturnType<EngineConnection["open"]> {
    await this.#opening?.promise;
    const engine = this.#engine;
    const { undercounts, counts } = engine;
    const facts = { ...(await this.#inner.open()), undercounts, counts };
    return {
      ...facts,
      get unmet() {
        return engine.unmet;
      },
    };
  }

  /** Rejects `open`, if it waits. */
  refuse(error: EngineError): void {
    this.#opening?.reject(error);
  }

  close(): Promise<void> {
    this.#opening?.reject(new EngineError("closed", "not-sent"));
    return this.#inner.close();
  }

  reconnect(): void {
    this.reconnects++;
    this.down();
    this.up();
  }

  subscribe(channel: Channel): Promise<void> {
    return this.#run("subscribe", () => this.#inner.subscribe(channel));
  }

  unsubscribe(channel: Channel): void {
    this.commands.push("unsubscribe");
    this.#inner.unsubscribe(channel);
  }

  async send(channel: Channel, frame: string): Promise<number | undefined> {
    const count = await this.#run("send", () => this.#inner.send(channel, frame));
    // Nodes without a connection are not subscribed to the channel of all nodes.
    const missing = channel === "a:all" ? this.#engine.links.filter(({ isDown }) => isDown).length : 0;
    return this.counted(count === undefined || !this.#engine.counts ? undefined : count - missing);
  }

  async #run<T>(command: string, run: () => Promise<T>): Promise<T> {
    if (this.isDown) throw new EngineError("faulty: down", "not-sent");
    this.commands.push(command);
    const wait = this.before(command);
    // What waits for nothing is done in the order of the calls.
    if (wait instanceof Promise) await wait;
    const answer = await run();
    const held = this.after(command);
    if (held instanceof Promise) await held;
    return answer;
  }

  /** The connection is lost. */
  down(): void {
    this.isDown = true;
    this.host.down(new EngineError("faulty: lost", "unknown"));
  }

  /** The connection is restored. */
  up(): void {
    this.#opening?.resolve();
    if (!this.isDown) return;
    this.isDown = false;
    this.host.up();
    this.host.heard("all");
  }

  /** Keeps the frames that arrive. */
  hold(): void {
    this.#held = [];
  }

  /** Lets the frames arrive that were kept. */
  release(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const receive of held) receive();
  }

  /** The lease of this node's present incarnation has expired, and another node removes its members. */
  async expire(number = 1): Promise<void> {
    this.#engine.given.add(`${this.node}/${number}`);
    const reaper = this.#engine.inner.createConnection("reaper", { received() {}, up() {}, down() {}, heard() {} });
    await reaper.open();
    for (const text of inspectMemory(this.#engine.inner)) {
      if (!text.startsWith("roster ")) continue;
      const topic = text.slice("roster ".length);
      for (const [id] of (await reaper.roster!.list(topic)).members)
        if (id.startsWith(`${this.node}/${number}.`)) await reaper.roster!.put(topic, id, undefined);
    }
    await reaper.close();
  }
}
