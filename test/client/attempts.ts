/** The network of a page: `connect` and `open` of the standard entry reach a test server, or a server that the test scripts. */
import { afterEach, beforeEach, expect, vi } from "vitest";
import { connect, open, type AnyPeer, type CloseInfo } from "../../src/index.js";
import { testServer, type TestServer } from "../../src/testing/index.js";
import { RESUME_OFFER, serverHello } from "../../src/session/frames.js";
import { ScriptedWebSocket } from "../support/scripted.js";
import { use } from "../support/pair.js";
import { pass } from "../support/time.js";
import { record } from "./clients.js";

const LIMITS = { maxMessageBytes: 2 ** 20, logFrames: 4096, logLength: 2 ** 22 };

/** The hello of a server that offers a session, with the given members, and whose other frames the test writes. */
export function helloWith(members: { route?: string } = {}): string {
  return serverHello({ token: "secret-of-another", ttlMs: 60_000, limits: LIMITS, ...members });
}

export const HELLO = helloWith();
export const RESUMES = RESUME_OFFER;

export interface Attempt {
  readonly at: number;
  readonly url: string;
  readonly protocols: readonly string[];
  readonly sent: string[];
  readonly webSocket: { readonly readyState: number };
}

/** A server that the test writes. It accepts the client or ends the connection, or the attempt hangs. */
export type Script = (webSocket: ScriptedWebSocket, attempt: Attempt) => void;

export const refuse: Script = (webSocket) => webSocket.end();

export const hang: Script = () => {};

/** Accepts a client for `reciproc.v1`, sends these frames, and then nothing. */
export function says(...frames: string[]): Script {
  return (webSocket) => webSocket.accept("reciproc.v1", ...frames);
}

export function dismiss(code: number, reason: string): Script {
  return (webSocket) => {
    webSocket.accept("reciproc.v1", bye(code, reason));
    webSocket.end({ code, reason });
  };
}

export function bye(code: number, reason = "", retryMs?: number): string {
  return JSON.stringify({ bye: { code, reason, retryMs } });
}

/** Accepts all clients like a plain server without subprotocols, and echoes. A standard WebSocket fails on an offer then. */
export function plainEcho(webSocket: ScriptedWebSocket, { protocols }: Attempt, protocol = ""): void {
  if (protocols.length > 0) return webSocket.end();
  webSocket.onSend = (text) => {
    const { id, method, params } = JSON.parse(text) as { id?: number; method: string; params?: unknown };
    if (id !== undefined && method !== "never")
      webSocket.say(JSON.stringify({ jsonrpc: "2.0", id, result: params ?? null }));
  };
  webSocket.accept(protocol);
}

/** A double that ends as a standard WebSocket does when its client closes it. */
class ClosingWebSocket extends ScriptedWebSocket {
  override close(code?: number, reason = ""): void {
    const wasOpen = this.readyState === 1;
    super.close(code, reason);
    this.end(wasOpen ? { code: code ?? 1005, reason } : undefined);
  }
}

/** The network as the page of a test sees it: its connection attempts, and what they meet. */
class PageNetwork {
  readonly attempts: Attempt[] = [];
  /** The server of the next attempts. `undefined`: the test server. */
  script: Script | undefined;
  /** The `bufferedAmount` of all WebSockets to the test server. `undefined`: that of the network. */
  unsentBytes: number | undefined;
  /** Called when the client closes a WebSocket to the test server. */
  onClose: (code: number | undefined) => void = () => {};

  open(url: string, protocols: readonly string[]): Attempt["webSocket"] {
    const { script } = this;
    class RecordingWebSocket extends test.WebSocket {
      readonly sent: string[] = [];

      override get bufferedAmount(): number {
        return network.unsentBytes ?? super.bufferedAmount;
      }

      override close(code?: number, reason?: string): void {
        super.close(code, reason);
        network.onClose(code);
      }

      override send(data: string | Uint8Array): void {
        this.sent.push(data as string);
        super.send(data);
      }
    }
    const webSocket = script === undefined ? new RecordingWebSocket(url, protocols) : new ClosingWebSocket();
    const attempt = { at: performance.now(), url, protocols, sent: webSocket.sent, webSocket };
    this.attempts.push(attempt);
    script?.(webSocket as ClosingWebSocket, attempt);
    return webSocket;
  }

  get last(): Attempt {
    return this.attempts.at(-1)!;
  }

  /** The double of the newest attempt, which a script has got. */
  get scripted(): ScriptedWebSocket {
    return this.last.webSocket as ScriptedWebSocket;
  }

  get openCount(): number {
    return this.attempts.filter(({ webSocket }) => webSocket.readyState < 2).length;
  }

  times(from: number): number[] {
    return this.attempts.map(({ at }) => at - from).filter((at) => at >= 0);
  }

  cut(): void {
    test.network.cut();
    for (const { webSocket } of this.attempts)
      if (webSocket instanceof ScriptedWebSocket && webSocket.readyState < 3) {
        webSocket.fire("error");
        webSocket.fire("close", { code: 1006, reason: "" });
      }
  }

  /** Cuts all connections, and makes the server forget all sessions. */
  lose(): void {
    this.cut();
    test.network.lose();
  }

  dismiss(info: CloseInfo, retryMs?: number): void {
    this.scripted.say(bye(info.code, info.reason, retryMs));
    this.scripted.end(info);
  }
}

export const URL = "ws://server.test/";

/** The handlers of most servers of these tests. */
export const METHODS = { echo: (params: unknown) => params, never: () => new Promise(() => {}) };

/** The network, the test server, and the peers that this server has had. */
export let network: PageNetwork;
export let test: TestServer<any, any, any>;
export let served: AnyPeer[];
const peers: AnyPeer[] = [];

/** `connect` of the standard entry, untyped. */
export async function connectPage(options?: object, url: unknown = URL): Promise<AnyPeer> {
  const peer = await (connect as (url: unknown, options?: object) => Promise<AnyPeer>)(url, { use, ...options });
  peers.push(peer);
  return peer;
}

/** `open` of the standard entry, untyped. */
export function openPage(options?: object, url: unknown = URL): AnyPeer {
  const peer = (open as (url: unknown, options?: object) => AnyPeer)(url, { use, ...options });
  peers.push(peer);
  return peer;
}

/** Connects a client whose session both sides have confirmed, and records its events. */
export async function live(options?: object): Promise<{ peer: AnyPeer; emitted: string[] }> {
  const connecting = connectPage(options);
  await pass(10);
  const peer = await connecting;
  return { peer, emitted: record(peer) };
}

export async function expectEcho(peer: AnyPeer): Promise<void> {
  expect(await Promise.all([peer.request("echo", [1]), pass(1)])).toEqual([[1], undefined]);
}

export async function closeAll(): Promise<void> {
  await Promise.all(peers.splice(0).map((peer) => peer.close()));
}

export function draw(value: number): void {
  vi.spyOn(Math, "random").mockReturnValue(value);
}

/** Makes a test server and its network before each test of a file with a virtual clock, and removes both after it. */
export function useNetwork(methods: object = METHODS): void {
  beforeEach(() => {
    draw(0.5);
    network = new PageNetwork();
    served = [];
    test = testServer<any, any, any>({ methods, heartbeat: false });
    test.server.on("peer", (peer) => served.push(peer));
    vi.stubGlobal("WebSocket", function (url: string, protocols: string[]) {
      return network.open(url, protocols);
    });
  });
  afterEach(async () => {
    test.network.start();
    await closeAll();
    await test.server.close();
  });
}
