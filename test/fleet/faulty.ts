/** An engine in memory whose connections a test disturbs: frames are lost or late, commands wait or fail, nodes are not heard. */
import {
  EngineError,
  memory,
  type Channel,
  type Engine,
  type EngineConnection,
  type EngineFacts,
  type EngineHost,
  type EngineSettings,
} from "../../src/node.js";
import { gate, type Gate } from "../support/turns.js";

/** The kinds of frames by which a node is heard, and of which it is the first field. */
const SIGNS = /^1[bjldkm]\t([^\t\n]*)/;

/** The engine of several nodes. */
export class FaultyEngine implements Engine {
  readonly name = "faulty";
  readonly settings: EngineSettings;
  inner = memory();
  /** The connections of the nodes, in the order in which the servers were made. */
  readonly links: FaultyLink[] = [];
  readonly lacks: readonly "log"[];
  /** Nodes that the others do not hear. */
  readonly unheard = new Set<string>();
  /** What differs from the broker, for connections that open from now on. */
  facts: Partial<EngineFacts> = {};
  /** Whether it counts the nodes that a frame reaches. */
  counts = true;
  /** Makes `open` of the next connections wait for `up`. */
  isLate = false;
  /** Resolves when the first server has made its connection. */
  readonly linked = gate();
  /** All channels that had a subscription. */
  readonly channels = new Set<Channel>(["a:all"]);

  constructor(settings: EngineSettings = {}, lacks: readonly "log"[] = []) {
    this.settings = settings;
    this.lacks = lacks;
  }

  createConnection(node: string, host: EngineHost): EngineConnection {
    const link = new FaultyLink(this, node, host);
    this.links.push(link);
    this.linked.resolve();
    this.channels.add(`n:${node}`);
    return link;
  }

  /** Opens a connection without a server. Puts the frames that it receives into `got`. */
  async foreign(node = "foreign", got: string[] = []): Promise<EngineConnection> {
    const received = (_channel: Channel, frame: string): void => void got.push(frame);
    const connection = this.inner.createConnection(node, { received, up() {}, down() {}, resubscribed() {} });
    await connection.open();
    return connection;
  }

  /** The broker ends, and another one begins with nothing. The nodes that have a connection get one to that, the others later. */
  async restart(): Promise<void> {
    this.inner = memory();
    const links = this.links.filter(({ isDown }) => !isDown);
    for (const link of links) link.down();
    for (const link of this.links) link.move();
    for (const link of links) link.up();
  }

  /** Returns what is left in the broker when all nodes are closed, except logs: subscriptions. */
  async leftovers(): Promise<string[]> {
    const left: string[] = [];
    const foreign = await this.foreign();
    for (const channel of this.channels) {
      const own = channel === "a:all" ? 1 : 0;
      if ((await foreign.send(channel, ""))! > own) left.push(`subscription ${channel}`);
    }
    await foreign.close();
    return left;
  }
}

/** A frame that a connection keeps, and what lets it arrive. */
type HeldFrame = [frame: string, receive: () => void];

/** Whether the order of the frame is in it. */
const isOrdered = ([frame]: HeldFrame): boolean => /^1[Ljldm]/.test(frame);

/** The connection of one node. */
export class FaultyLink implements EngineConnection {
  readonly node: string;
  readonly host: EngineHost;
  readonly log: EngineConnection["log"];
  /** Decides which frames are lost on the way to this node. */
  loses: (channel: Channel, frame: string) => boolean = () => false;
  /** Returns how many nodes the broker counts, of those that have received a frame. */
  counted = (count: number | undefined): number | undefined => count;
  /** Called before each command; may throw, or return a promise that the command waits for. */
  before: (command: string) => unknown = () => {};
  /** Called after each command, before it is answered; may throw, or return a promise that the answer waits for. */
  after: (command: string) => unknown = () => {};
  /** The commands so far, and the frames that this node has sent, without its beats. */
  readonly commands: string[] = [];
  readonly sent: string[] = [];
  reconnects = 0;
  facts: EngineFacts | undefined;
  /** What `open` waits for. */
  readonly #opening: Gate<void> | undefined;
  /** Rejects when the connection is closed, and with it each command that waits. */
  readonly #closed = gate<never>();
  readonly engine: FaultyEngine;
  #inner: EngineConnection;
  readonly #channels: Set<Channel>;
  #held: HeldFrame[] | undefined;
  /** Whether the connection is lost, and when it was. */
  isDown = false;
  readonly losses: number[] = [];

  constructor(engine: FaultyEngine, node: string, host: EngineHost) {
    this.node = node;
    this.#channels = new Set<Channel>(["a:all", `n:${node}`]);
    this.host = host;
    this.engine = engine;
    if (engine.isLate) this.#opening = gate();
    this.#closed.promise.catch(() => {});
    this.#inner = this.#connect();
    if (!engine.lacks.includes("log"))
      this.log = {
        append: (...args) => this.#run("append", () => this.#inner.log!.append(...args)),
        read: (...args) => this.#run("read", () => this.#inner.log!.read(...args)),
      };
  }

  #connect(): EngineConnection {
    const { host } = this;
    return this.engine.inner.createConnection(this.node, {
      ...host,
      received: (channel, frame) => {
        const [, from = ""] = SIGNS.exec(frame) ?? [];
        const isUnheard = from !== this.node && this.engine.unheard.has(from);
        if (this.isDown || isUnheard || this.loses(channel, frame)) return;
        if (this.#held === undefined) host.received(channel, frame);
        else this.#held.push([frame, () => host.received(channel, frame)]);
      },
    });
  }

  /** Connects to the present broker of the engine, with the same subscriptions. */
  move(): void {
    this.#inner = this.#connect();
    void this.#inner.open();
    for (const channel of this.#channels) void this.#inner.subscribe(channel);
  }

  /** For the broker, the node has ended. */
  async kill(): Promise<void> {
    this.down();
    this.engine.links.splice(this.engine.links.indexOf(this), 1);
    await this.#inner.close();
  }

  async open(): ReturnType<EngineConnection["open"]> {
    await this.#opening?.promise;
    this.facts = { ...(await this.#inner.open()), ...this.engine.facts };
    return this.facts;
  }

  /** Rejects `open`, if it waits. */
  refuse(error: EngineError): void {
    this.#opening?.reject(error);
  }

  close(): Promise<void> {
    this.#opening?.reject(new EngineError("closed", "not-sent"));
    this.#closed.reject(new EngineError("closed", "unknown"));
    return this.#inner.close();
  }

  reconnect(): void {
    this.reconnects++;
    this.down();
    this.up();
  }

  subscribe(channel: Channel): Promise<void> {
    this.engine.channels.add(channel);
    this.#channels.add(channel);
    return this.#run("subscribe", () => this.#inner.subscribe(channel));
  }

  unsubscribe(channel: Channel): void {
    this.commands.push("unsubscribe");
    this.#channels.delete(channel);
    this.#inner.unsubscribe(channel);
  }

  async send(channel: Channel, frame: string): Promise<number | undefined> {
    if (!this.isDown && !frame.startsWith("1b")) this.sent.push(frame);
    let missing = 0;
    const count = await this.#run("send", () => {
      // A node without a connection is subscribed to nothing.
      const isMissing = (link: FaultyLink): boolean => link.isDown && link.#channels.has(channel);
      missing = this.engine.links.filter(isMissing).length;
      return this.#inner.send(channel, frame);
    });
    return this.counted(count === undefined || !this.engine.counts ? undefined : count - missing);
  }

  async #run<T>(command: string, run: () => Promise<T>): Promise<T> {
    if (this.isDown) throw new EngineError("faulty: down", "not-sent");
    this.commands.push(command);
    const wait = this.before(command);
    // What waits for nothing is done in the order of the calls.
    if (wait instanceof Promise) await Promise.race([wait, this.#closed.promise]);
    const answer = await run();
    const held = this.after(command);
    if (held instanceof Promise) await Promise.race([held, this.#closed.promise]);
    return answer;
  }

  /** Makes each command of this name wait until the test settles the gate that is returned. */
  blocks(command: string): Gate<void> {
    const answer = gate();
    this.before = (name) => (name === command ? answer.promise : undefined);
    return answer;
  }

  /** Makes the next commands of this name reject, before or after they are done. */
  fails(command: string, { times = 1, when = "before" }: { times?: number; when?: "before" | "after" } = {}): void {
    let left = times;
    this[when] = (name) => {
      if (name === command && left-- > 0) throw new EngineError("faulty: lost", "unknown");
    };
  }

  /** Returns how often a command was run. */
  count(command: string): number {
    return this.commands.filter((name) => name === command).length;
  }

  /** The connection is lost, with the frames on their way. */
  down(): void {
    if (this.isDown) return;
    this.isDown = true;
    if (this.#held !== undefined) this.#held = [];
    // A connection that has not opened yet has not worked.
    if (this.facts !== undefined) this.losses.push(performance.now());
    this.host.down(new EngineError("faulty: lost", "unknown"));
  }

  /** The connection is restored. */
  up(): void {
    this.#opening?.resolve();
    if (!this.isDown) return;
    this.isDown = false;
    this.host.up();
    this.host.resubscribed("all");
  }

  /** Keeps the frames that arrive. */
  hold(): void {
    this.#held = [];
  }

  /** Lets the frames arrive that were kept. `pick`: which of those with an order that are left is next. */
  release(pick: (count: number) => number = () => 0): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const [, receive] of held.filter((one) => !isOrdered(one))) receive();
    const ordered = held.filter(isOrdered);
    while (ordered.length > 0) ordered.splice(pick(ordered.length), 1)[0]![1]();
  }
}
