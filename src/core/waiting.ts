/** Messages that wait to be sent, and can be taken back until then. */
import type { Ticket } from "./transport.js";

/** What a message that waits costs besides its text: many small ones must not be cheap. */
export const WAITING_COST = 64;

/** The ticket of a broadcast, which waits beside the ordinary messages and takes no room from them. */
export class BroadcastTicket implements Ticket {
  sent = false;
}

/** A queue out of which a message can be taken back. */
export class Waiting {
  /** By ticket, in the order they came. */
  readonly #messages = new Map<Ticket, string>();
  #length = 0;
  #broadcastLength = 0;

  /** The length of all texts, and `WAITING_COST` for each. */
  get length(): number {
    return this.#length;
  }

  /** The part of `length` that broadcasts have. */
  get broadcastLength(): number {
    return this.#broadcastLength;
  }

  /** Adds a message; answers what `length` has grown by. */
  add(text: string, ticket: Ticket = { sent: false }): number {
    ticket.sent = false;
    this.#messages.set(ticket, text);
    const cost = text.length + WAITING_COST;
    this.#grow(cost, ticket);
    return cost;
  }

  /** Takes a message out, wherever it stands; answers what `length` has shrunk by, 0 when it is not there. */
  remove(ticket: Ticket): number {
    const text = this.#messages.get(ticket);
    if (text === undefined) return 0;
    this.#messages.delete(ticket);
    const cost = text.length + WAITING_COST;
    this.#grow(-cost, ticket);
    return cost;
  }

  #grow(by: number, ticket: Ticket): void {
    this.#length += by;
    if (ticket instanceof BroadcastTicket) this.#broadcastLength += by;
  }

  /** In the order they came, those that are added meanwhile included. One may be removed when it is handed out. */
  [Symbol.iterator](): Iterator<[Ticket, string]> {
    return this.#messages.entries();
  }
}
