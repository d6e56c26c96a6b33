/**
 * Attempts to connect that can be ended. The client library has no way to end one. It also keeps the socket of one that times out, if a
 * server accepts the connection and sends nothing.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";

/** Node publishes each socket of a client here, before it connects. */
const SOCKETS = "net.client.socket";

/**
 * Runs an attempt to connect. If it fails, ends its socket. If `signal` aborts, rejects at once, and ends the socket also when the attempt
 * has succeeded.
 */
export async function runAttempt<T>(attempt: () => Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  // Other sockets of this process may be opened meanwhile. Those of this attempt are opened in its context.
  const context = new AsyncLocalStorage<true>();
  let socket: Socket | undefined;
  const end = (): void => void socket?.destroy();
  const opened = (message: unknown): void => {
    if (context.getStore() === undefined) return;
    // The library has given up the socket before, of another server.
    end();
    ({ socket } = message as { socket: Socket });
    // The socket begins to connect after this call.
    if (signal.aborted) process.nextTick(end);
  };
  subscribe(SOCKETS, opened);
  const connecting = context.run(true, attempt);
  void connecting.catch(end).finally(() => {
    unsubscribe(SOCKETS, opened);
    // A context that is not disabled makes all promises of the process slower.
    context.disable();
  });
  const aborted = new Promise<never>((_resolve, reject) => {
    const abort = (): void => {
      end();
      reject(signal.reason as Error);
    };
    signal.addEventListener("abort", abort, { once: true });
  });
  return Promise.race([connecting, aborted]);
}
