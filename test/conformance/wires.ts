/** Three ways for a raw client to reach a serving peer: text passed in memory, frames of a real `ws` client, and HTTP POST. */
import { WebSocket } from "ws";
import type { AnyMethods } from "../../src/core/contract.js";
import { Peer, type AnyPeer, type PeerOptions } from "../../src/peer/peer.js";
import { peerLimits } from "../../src/core/limits.js";
import { plain } from "../../src/link/plain.js";
import { serve } from "../../src/node.js";
import { decodeFrame } from "../../src/sockets/inbox.js";
import { memorySockets } from "../../src/sockets/memory.js";

export type WireOptions = Omit<PeerOptions, "around"> & {
  methods: Record<string, (params: any, context: any) => unknown>;
};

/** The raw client's end of a wire. Over HTTP each frame has a peer of its own, which cannot be inspected. */
export interface Wire {
  readonly peer: AnyPeer | undefined;
  /** The `error` events of the peer. */
  readonly errors: unknown[];
  /** Sends one frame unchanged: text, or the bytes of a binary frame. */
  send(frame: string | Uint8Array): void;
  /** Resolves with the next received frame. Rejects after a timeout, or when the connection has ended. */
  receive(): Promise<string>;
  /** Returns the frames that arrived and were not received yet. */
  drain(): string[];
  /** Resolves with the close code when the connection has ended. */
  readonly closed: Promise<number>;
  /** Ends everything. */
  end(): Promise<void>;
}

/** The raw client's end of a connection to `peer`. */
export interface Connection extends Wire {
  readonly peer: AnyPeer;
}

export const wires: Record<string, (options: WireOptions) => Promise<Connection>> = {
  "in memory": memoryWire,
  "over ws": wsWire,
};

const PATIENCE_MS = 20_000;
const UNLIMITED = 2 ** 28;

/** Frames that arrived and were not received yet. */
class Arrivals {
  readonly #frames: string[] = [];
  #waiting: (() => void) | undefined;
  #over = false;

  add(frame: string): void {
    this.#frames.push(frame);
    this.#waiting?.();
  }

  end(): void {
    this.#over = true;
    this.#waiting?.();
  }

  drain(): string[] {
    return this.#frames.splice(0);
  }

  async take(): Promise<string> {
    if (this.#frames.length === 0 && !this.#over) await this.#arrival();
    const frame = this.#frames.shift();
    if (frame === undefined) throw new Error(this.#over ? "the connection ended" : `no frame in ${PATIENCE_MS} ms`);
    return frame;
  }

  #arrival(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, PATIENCE_MS);
      this.#waiting = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

async function memoryWire(options: WireOptions): Promise<Connection> {
  const [left, right] = memorySockets(peerLimits(options.limits).maxMessageBytes, UNLIMITED);
  const peer: AnyPeer = new Peer<AnyMethods, AnyMethods>(plain(left), options);
  const errors: unknown[] = [];
  peer.on("error", (error) => errors.push(error));
  const arrivals = new Arrivals();
  const closed = new Promise<number>((resolve) => {
    right.start({
      frame: (text) => arrivals.add(text),
      closed: ({ code }) => {
        arrivals.end();
        resolve(code);
      },
    });
  });
  return {
    peer,
    errors,
    // A carrier without binary frames gets the text that a socket decodes from one.
    send: (frame) => void right.send(typeof frame === "string" ? frame : decodeFrame(frame)),
    receive: () => arrivals.take(),
    drain: () => arrivals.drain(),
    closed,
    end: async () => {
      right.close();
      await Promise.all([closed, peer.closed]);
    },
  };
}

async function wsWire(options: WireOptions): Promise<Connection> {
  const server = await serve({ port: 0, ...options });
  const welcome = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
  const errors: unknown[] = [];
  server.on("error", (error) => errors.push(error));
  const client = new WebSocket(server.url, { perMessageDeflate: false });
  const arrivals = new Arrivals();
  client.on("message", (data: Buffer) => arrivals.add(data.toString()));
  const closed = new Promise<number>((resolve, reject) => {
    client.on("error", reject);
    client.on("close", (code) => {
      arrivals.end();
      resolve(code);
    });
  });
  await new Promise((resolve) => client.once("open", resolve));
  const peer = await welcome;
  return {
    peer,
    errors,
    send: (frame) => client.send(frame),
    receive: () => arrivals.take(),
    drain: () => arrivals.drain(),
    closed,
    end: async () => {
      client.close();
      await closed;
      await server.close();
    },
  };
}

/** Over HTTP POST: one request for each frame, each after the last response. */
export async function postWire(options: WireOptions): Promise<Wire> {
  const server = await serve({ port: 0, ...options });
  const errors: unknown[] = [];
  server.on("error", (error) => errors.push(error));
  const arrivals = new Arrivals();
  const post = async (frame: string | Uint8Array): Promise<void> => {
    const url = server.url.replace("ws:", "http:");
    const headers = { "Content-Type": "application/json" };
    const response = await fetch(url, { method: "POST", body: frame as BodyInit, headers });
    const body = await response.text();
    if (response.status === 200) arrivals.add(body);
    else if (response.status !== 204 || body !== "") arrivals.add(`HTTP ${response.status}: ${body}`);
  };
  let last = Promise.resolve();
  return {
    peer: undefined,
    errors,
    send: (frame) => void (last = last.then(() => post(frame))),
    receive: () => arrivals.take(),
    drain: () => arrivals.drain(),
    closed: new Promise(() => {}),
    end: async () => {
      await last;
      await server.close();
    },
  };
}
