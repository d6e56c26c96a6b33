/**
 * The network under each page, with a switch. What it cuts is real: the page's TCP connections are reset, with whatever was
 * under way in them, and on new ones nothing comes through until the network is back. Nobody is told.
 */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";

export class Network {
  readonly #sockets = new Map<string, Set<Socket>>();
  /** The pages that are cut off, and until when. */
  readonly #down = new Map<string, Promise<void>>();

  /**
   * Takes an upgrade, before anybody answers it; that of a page that is cut off gets through when the network is back. Answers
   * the page's name, which is in the address it asks for. Strangers have none.
   */
  async carry({ url = "", socket }: IncomingMessage): Promise<string> {
    const page = new URLSearchParams(url.split("?")[1]).get("page") ?? "";
    if (page === "") return page;
    await this.#down.get(page);
    if (!socket.destroyed) this.#add(page, socket);
    return page;
  }

  /** Cuts a page off for so long. */
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
