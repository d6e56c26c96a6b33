/** A client that calls and publishes without a pause, and what it has seen of the log. */
import { connect, type AnyPeer } from "../../../src/node.js";

/** How a call has settled: with a result, with an error of its handler, or with the outcome of a call without a response. */
export type Settled = "result" | "error" | "not-sent" | "unknown";

/** A call, from the moment it was made. */
export interface CallRecord {
  readonly id: number;
  readonly method: "add" | "say" | "ask";
  settled?: Settled;
  /** The result, or the error. */
  value?: any;
}

/** One connection that began anew, or one publication. */
type Entry = { offset: number; id: number } | { since: string | undefined; joined: Joined | undefined };

/** The result of `join`. `at` is undefined while the log is empty. */
interface Joined {
  readonly at: string | undefined;
  readonly outcome: string;
}

const METHODS = ["add", "say", "ask"] as const;
const CALL_TIMEOUT_MS = 20_000;
let calls = 0;

export class DeployClient {
  readonly name: string;
  readonly room: string;
  readonly calls: CallRecord[] = [];
  /** The ids of the calls that this client has served. */
  readonly served: number[] = [];
  readonly #entries: Entry[] = [];
  readonly #pending: Promise<void>[] = [];
  readonly #others: readonly string[];
  /** How often the session ended, and how often one was resumed. */
  lost = 0;
  resumed = 0;
  since: string | undefined;
  peer!: AnyPeer;
  #timer: NodeJS.Timeout | undefined;

  /** `others`: the names of the clients in its room, which it calls. */
  constructor(name: string, room: string, others: readonly string[]) {
    this.name = name;
    this.room = room;
    this.#others = others;
  }

  async open(url: string): Promise<void> {
    this.peer = (await connect(url, {
      auth: this.name,
      timeoutMs: CALL_TIMEOUT_MS,
      methods: {
        said: ({ id, at }: { id: number; at: string }) => {
          this.since = at;
          this.#entries.push({ offset: offsetOf(at), id });
        },
        confirm: ({ id }: { id: number }) => {
          this.served.push(id);
          return this.name;
        },
      },
      onOpen: async (server) => {
        const { since } = this;
        const entry: Entry = { since, joined: undefined };
        this.#entries.push(entry);
        entry.joined = (await server.request("join", { room: this.room, since })) as Joined;
        if (this.since === since && entry.joined.outcome === "gap") this.since = entry.joined.at;
      },
    })) as AnyPeer;
    let isLost = false;
    this.peer.on("lost", () => {
      isLost = true;
      this.lost++;
    });
    this.peer.on("resume", () => {
      if (!isLost) this.resumed++;
      isLost = false;
    });
  }

  /** Makes a call every `everyMs` until `stop`. */
  run(everyMs: number): void {
    this.#timer = setInterval(() => this.#pending.push(this.#call()), everyMs);
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await (this.peer as AnyPeer | undefined)?.close();
  }

  /** Makes no further call. Resolves when all are settled. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.all(this.#pending);
  }

  async #call(): Promise<void> {
    const id = ++calls;
    const call: CallRecord = { id, method: METHODS[id % 3]! };
    this.calls.push(call);
    const name = this.#others[id % this.#others.length];
    try {
      call.value = await this.peer.request(call.method, { id, x: id, y: 1, room: this.room, name });
      call.settled = "result";
    } catch (error) {
      call.value = error;
      call.settled = (error as { outcome?: Settled }).outcome ?? "error";
    }
  }

  /** Returns the ids that this client has seen, in order, and what is wrong with them. */
  seen(): { ids: number[]; gaps: number; faults: string[] } {
    const ids: number[] = [];
    const faults: string[] = [];
    let gaps = 0;
    let last = NaN;
    for (const entry of this.#entries) {
      if ("joined" in entry) {
        if (entry.joined?.outcome !== "gap") continue;
        // The first visit is a gap that is none.
        if (entry.since !== undefined) gaps++;
        last = offsetOf(entry.joined.at);
      } else {
        if (entry.offset !== last + 1) faults.push(`${this.name}: ${entry.offset} after ${last}`);
        last = entry.offset;
        ids.push(entry.id);
      }
    }
    return { ids, gaps, faults };
  }
}

function offsetOf(at: string | undefined): number {
  return at === undefined ? 0 : Number(at.slice(at.lastIndexOf(".") + 1));
}
