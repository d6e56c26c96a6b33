/** The gate: what an upgrade request must pass before there is a WebSocket. */
import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { LONGEST_DELAY_MS } from "../core/deadlines.js";
import { isLoopback, refuseHost, refuseOrigin, type OriginRules } from "./origin.js";

/** Why an upgrade was refused: the `refuse` event's argument, and the HTTP answer. */
export interface Refusal {
  /** The HTTP status: 401, 403, 404 or 503. */
  readonly status: number;
  /** What rule was broken, by what value, and where there is one, the option that allows it. */
  readonly reason: string;
}

const STATUS_TEXT: Record<number, string> = {
  401: "Unauthorized",
  403: "Forbidden",
  404: "Not Found",
  503: "Service Unavailable",
};

/** Answers an upgrade request with an HTTP error and ends its socket. */
export function answerRefusal(socket: Duplex, { status, reason }: Refusal): void {
  const body = `${reason}\n`;
  const headers = [
    `HTTP/1.1 ${status} ${STATUS_TEXT[status]}`,
    "Connection: close",
    "Content-Type: text/plain; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
  ];
  if (status === 503) headers.push("Retry-After: 5");
  // Nobody else listens by now, and whoever is refused may be gone: an error without a listener would end the process.
  socket.on("error", () => socket.destroy());
  socket.once("finish", () => socket.destroy());
  socket.end(`${headers.join("\r\n")}\r\n\r\n${body}`);
}

/** Checks `Host` and `Origin`. `boundTo` is the address the server listens on, where it is known. */
export function checkOrigin(
  request: IncomingMessage,
  boundTo: string | undefined,
  rules: OriginRules,
): Refusal | undefined {
  const { host = "", origin } = request.headers;
  const local = boundTo ?? request.socket.localAddress ?? "";
  const reason = refuseHost(host, isLoopback(local), rules) ?? refuseOrigin(origin, host, rules);
  return reason === undefined ? undefined : { status: 403, reason };
}

/** What `authenticate` came to: the peer's data, or why there will be no peer. `error` is what it threw. */
export type Verdict<D> = { data: D } | { refusal: Refusal; error?: unknown };

/** Runs `authenticate`. It fails closed: null, undefined, a throw and a delay beyond `timeoutMs` all refuse. */
export async function runAuthenticate<D>(
  authenticate: (request: IncomingMessage) => D | null | undefined | Promise<D | null | undefined>,
  request: IncomingMessage,
  timeoutMs: number,
): Promise<Verdict<D>> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<Verdict<D>>((resolve) => {
    if (timeoutMs === Infinity) return;
    const reason = `authentication took longer than ${timeoutMs} ms`;
    timer = setTimeout(() => resolve({ refusal: { status: 503, reason } }), Math.min(timeoutMs, LONGEST_DELAY_MS));
    // The socket keeps the process alive for as long as there is somebody to refuse.
    timer.unref();
  });
  const verdict = async (): Promise<Verdict<D>> => {
    const unauthorized: Refusal = { status: 401, reason: "authentication failed" };
    try {
      const data = await authenticate(request);
      return data === null || data === undefined ? { refusal: unauthorized } : { data };
    } catch (error) {
      return { refusal: unauthorized, error };
    }
  };
  try {
    return await Promise.race([verdict(), late]);
  } finally {
    clearTimeout(timer);
  }
}
