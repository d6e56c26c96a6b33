/** What the page of `run.js` loads: a client of each kind, and what it measures of itself. It runs in a browser. */
import { connect } from "../../dist/index.js";
import { check, perSecond } from "../load.js";

/** JSON-RPC over a WebSocket, written by hand, as `contenders/bare.js` and `contenders/packed.js` speak it. It has no errors and no limits. */
class BareClient {
  #socket;
  #isPacked;
  #pending = new Map();
  #nextId = 1;

  /** `moved`: takes the notifications. */
  constructor(socket, isPacked, moved) {
    this.#socket = socket;
    this.#isPacked = isPacked;
    socket.addEventListener("message", ({ data }) => {
      const frame = JSON.parse(data);
      for (const { id, result, params } of isPacked ? frame : [frame]) {
        if (id === undefined) moved(params[0]);
        else {
          this.#pending.get(id)(result);
          this.#pending.delete(id);
        }
      }
    });
  }

  call(method, x) {
    return new Promise((resolve) => {
      const id = this.#nextId++;
      this.#pending.set(id, resolve);
      const text = JSON.stringify({ jsonrpc: "2.0", id, method, params: [x] });
      this.#socket.send(this.#isPacked ? `[${text}]` : text);
    });
  }

  close() {
    const closed = new Promise((resolve) => this.#socket.addEventListener("close", () => resolve()));
    this.#socket.close();
    return closed;
  }
}

function openBare(url, moved, isPacked) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    const client = new BareClient(socket, isPacked, moved);
    socket.addEventListener("open", () => resolve(client));
    socket.addEventListener("error", () => reject(new Error(`${url} does not open`)));
  });
}

async function openReciproc(url, moved, link) {
  const peer = await connect(url, { link, methods: { moved: ([x]) => moved(x) } });
  return { call: (method, x) => peer.request(method, [x]), close: () => peer.close() };
}

const OPENERS = {
  bare: (url, moved) => openBare(url, moved, false),
  packed: (url, moved) => openBare(url, moved, true),
  "reciproc-packed": (url, moved) => openReciproc(url, moved, "packed"),
  "reciproc-plain": (url, moved) => openReciproc(url, moved, "plain"),
};

const clients = [];
/** Resolves when all expected notifications have come, with the milliseconds from the first to the last. */
let flood;
/** The duration of the longest task, in milliseconds. A browser reports tasks from 50 ms on. */
let longest = 0;
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) longest = Math.max(longest, duration);
}).observe({ type: "longtask" });

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** What the page does: each function gets the opener of its kind, and the arguments of `run.js`. */
const ACTIONS = {
  /** Opens connections one after the other, and makes the first call on each. */
  async open(open, count) {
    for (let n = 0; n < count; n++) {
      const client = await open(() => {});
      clients.push(client);
      check(await client.call("increment", n), n + 1, "increment");
    }
  },
  /** Makes one call at a time on the first connection. Returns the calls per second. */
  async calls(_open, warmUpMs, ms) {
    let n = 0;
    const call = async () => {
      check(await clients[0].call("increment", n), ++n, "increment");
      return 1;
    };
    await perSecond(warmUpMs, call);
    return perSecond(ms, call);
  },
  async close() {
    await Promise.all(clients.splice(0).map((client) => client.close()));
  },
  /** Opens a connection on which `count` notifications will come. */
  async expect(open, count) {
    let moved;
    flood = new Promise((resolve, reject) => {
      let seen = 0;
      let startedAt;
      moved = (x) => {
        startedAt ??= performance.now();
        if (x !== ++seen) reject(new Error(`notification ${seen} has the number ${x}`));
        if (seen === count) resolve(performance.now() - startedAt);
      };
    });
    clients.push(await open(moved));
    longest = 0;
  },
  /** Resolves when they have come, with the longest task meanwhile. */
  async flooded() {
    const ms = await flood;
    // The observer is called some time after a task.
    await sleep(300);
    return { ms, longest };
  },
};

/** Performs an action in a task of its own, because what runs inside a command of DevTools is not counted as the page's. */
globalThis.perform = async (action, kind, url, ...args) => {
  await sleep(0);
  return ACTIONS[action]((moved) => OPENERS[kind](url, moved), ...args);
};
