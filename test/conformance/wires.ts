/** The ways for a raw client to reach a serving peer: a transport by hand, a WebSocket, plain or with `reciproc.v1`, and HTTP POST. */
import { serve, type AnyPeer, type PeerOptions } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { Inbox } from "../support/inbox.js";
import { post } from "../support/post.js";
import { rawPeer } from "../support/raw.js";
import { gate } from "../support/turns.js";

export type WireOptions = Omit<PeerOptions, "around"> & {
  methods: Record<string, (params: any, context: any) => unknown>;
};

/** The raw client's end of a wire. Over HTTP each frame has a peer of its own, which cannot be inspected. */
export interface Wire {
  readonly peer: AnyPeer | undefined;
  readonly errors: unknown[];
  /** Sends one frame: text, or the bytes of a binary frame. */
  send(frame: string | Uint8Array): void;
  /** Resolves with the next received frame. Rejects when the connection has ended. */
  receive(): Promise<string>;
  drain(): string[];
  readonly closed: Promise<number>;
  end(): Promise<void>;
}

export interface Connection extends Wire {
  readonly peer: AnyPeer;
}

/** Returns a wire of what comes in, and of what it does itself. */
function wireOf<P extends AnyPeer | undefined>(
  peer: P,
  emitter: { on(event: "error", listener: (error: unknown) => void): unknown },
  arrivals: Inbox<string>,
  own: Pick<Wire, "closed" | "send" | "end">,
): Wire & { readonly peer: P } {
  const errors: unknown[] = [];
  emitter.on("error", (error) => errors.push(error));
  const ended = async (): Promise<never> => Promise.reject(new Error(`the connection ended with ${await own.closed}`));
  const receive = (): Promise<string> => Promise.race([arrivals.next(), ended()]);
  return { peer, errors, receive, drain: () => arrivals.left, ...own };
}

/** By a transport, which carries texts of any length. Each arrives in a microtask. */
export async function transportWire(options: WireOptions): Promise<Connection> {
  const arrivals = new Inbox<string>();
  const { peer, feed } = rawPeer(options, { onSend: (text) => arrivals.push(text) });
  return wireOf(peer, peer, arrivals, {
    closed: peer.closed.then(({ code }) => code),
    send: (frame) => queueMicrotask(() => feed(frame)),
    end: () => peer.close(),
  });
}

/** Over a WebSocket in memory. `packs`: whether it speaks `reciproc.v1`, which carries JSON, each message in a pack of its own. */
async function webSocketWire(options: WireOptions, packs: boolean): Promise<Connection> {
  const { server, WebSocket } = testServer(options);
  const welcome = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
  const arrivals = new Inbox<string>();
  const webSocket = new WebSocket(server.url, { protocols: packs ? ["reciproc.v1"] : [] });
  const ready = gate();
  webSocket.addEventListener("open", () => packs || ready.resolve());
  webSocket.addEventListener("message", ({ data }) => {
    const text = String(data);
    if (!packs) return arrivals.push(text);
    // Control frames, the hello among them, are objects.
    if (text.startsWith("{")) return ready.resolve();
    for (const message of JSON.parse(text) as unknown[]) arrivals.push(JSON.stringify(message));
  });
  const closed = new Promise<number>((resolve) => webSocket.addEventListener("close", ({ code }) => resolve(code)));
  await ready.promise;
  if (packs) webSocket.send('{"hello":{}}');
  return wireOf(await welcome, server, arrivals, {
    closed,
    send: (frame) => webSocket.send(packs ? `[${frame as string}]` : frame),
    end: () => server.close(),
  });
}

export const plainWire = (options: WireOptions): Promise<Connection> => webSocketWire(options, false);
export const packedWire = (options: WireOptions): Promise<Connection> => webSocketWire(options, true);

/** Over HTTP POST to a real server: one request for each frame, each after the last response. */
export async function postWire(options: WireOptions): Promise<Wire> {
  const server = await serve({ port: 0, ...options });
  const arrivals = new Inbox<string>();
  const send = async (frame: string | Uint8Array): Promise<void> => {
    const response = await post(server.url, frame);
    const body = await response.text();
    if (response.status === 200) arrivals.push(body);
    else if (response.status !== 204 || body !== "") arrivals.push(`HTTP ${response.status}: ${body}`);
  };
  let last = Promise.resolve();
  return wireOf(undefined, server, arrivals, {
    closed: new Promise(() => {}),
    send: (frame) => void (last = last.then(() => send(frame))),
    end: async () => {
      await last;
      await server.close();
    },
  });
}
