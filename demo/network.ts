/**
 * The network of each page, with a switch. The cut is real: it resets the page's TCP connections, with all data in flight, and
 * holds new ones until the network is back. Neither peer is notified.
 */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";

export class Network {
  readonly #sockets = new Map<string, Set<Socket>>();
  /** The pages that are cut off, each with a promise that resolves when the network is back. */
  readonly #down = new Map<string, Promise<void>>();

  /**
   * Takes an upgrade request before the server answers it. If the page is cut off, waits until the network is back. Returns
   * the page's name from the URL. Other clients have no name.
   */
  async carry({ url = "", socket }: IncomingMessage): Promise<string> {
    const page = new URLSearchParams(url.split("?")[1]).get("page") ?? "";
    if (page === "") return page;
    await this.#down.get(page);
    if (!socket.destroyed) this.#add(page, socket);
    return page;
  }

  /** Cuts a page off for `ms` milliseconds. */
  cut(page: string, ms: number): void {
    for (const socket of this.#sockets.get(page) ?? []) socket.resetAndDestroy();
    const isOver = new Promise((resolve) => setTimeout(resolve, ms));
    this.#down.set(
      page,
      isOver.then(() => void this.#down.delete(page)),
    );
  }

  #add(page: string, socket: Socket): void {
    const sockets = this.#sockets.get(page) ?? new Set();
    this.#sockets.set(page, sockets.add(socket));
    socket.once("close", () => {
      sockets.delete(socket);
      if (sockets.size === 0) this.#sockets.delete(page);
    });
  }
}
